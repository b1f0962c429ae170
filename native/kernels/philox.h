// Draws from Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011), keyed by the
// request's seed and the token's position, so a draw depends on nothing else.
#pragma once

#include "vector.h"

namespace ferrum::FERRUM_ISA {

// What a draw of one position is for; each has numbers of its own.
enum class DrawPurpose : uint32_t { token = 0, top_choices = 1 };

// In [0, 1), with 53 random bits.
FERRUM_INLINE double uniform_draw(uint64_t seed, int32_t position, DrawPurpose purpose) {
  uint32_t counter[4] = {uint32_t(position), 0, uint32_t(purpose), 0};  // position, sample, purpose, attempt
  uint32_t key[2] = {uint32_t(seed), uint32_t(seed >> 32)};
  for (int round = 0; round < 10; ++round) {
    const uint64_t p0 = uint64_t(0xD2511F53u) * counter[0];
    const uint64_t p1 = uint64_t(0xCD9E8D57u) * counter[2];
    const uint32_t next[4] = {uint32_t(p1 >> 32) ^ counter[1] ^ key[0], uint32_t(p1),
                              uint32_t(p0 >> 32) ^ counter[3] ^ key[1], uint32_t(p0)};
    memcpy(counter, next, sizeof next);
    key[0] += 0x9E3779B9u;
    key[1] += 0xBB67AE85u;
  }
  return (double(counter[0] >> 5) * 67108864.0 + double(counter[1] >> 6)) / 9007199254740992.0;
}

}  // namespace ferrum::FERRUM_ISA
