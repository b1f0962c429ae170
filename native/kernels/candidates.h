// The tokens a choice is narrowed down to.
//
// A candidate is one number: the bits of its weight, then the complement of its id, so that a greater number is the
// heavier token and, of equally heavy ones, the lower id. Nothing is sorted: what is asked is always how far the
// heaviest reach.
#pragma once

#include "vector.h"

namespace ferrum::FERRUM_ISA {

using Candidate = uint64_t;

FERRUM_INLINE float float_of(uint32_t bits) {
  float value;
  memcpy(&value, &bits, 4);
  return value;
}
FERRUM_INLINE uint32_t bits_of(float value) {
  uint32_t bits;
  memcpy(&bits, &value, 4);
  return bits;
}

FERRUM_INLINE Candidate candidate(float weight, int32_t id) { return Candidate(bits_of(weight)) << 32 | uint32_t(~id); }
FERRUM_INLINE int32_t id_of(Candidate candidate) { return ~int32_t(uint32_t(candidate)); }
FERRUM_INLINE float weight_of(Candidate candidate) { return float_of(uint32_t(candidate >> 32)); }

// The first ``count`` candidates, whose weights add up to ``sum``.
struct Run {
  int count;
  double sum;
};

// Where the heaviest reach a sum: their lightest, and what they weigh with it.
struct Reached {
  Candidate last;
  double sum;
};

// Moves the ``keep`` heaviest to the front.
Run keep_heaviest(Candidate* candidates, int count, int keep);
// Moves the shortest run of heaviest ones that weighs ``wanted`` to the front, its lightest last; all if none does.
Run keep_weighing(Candidate* candidates, int count, double wanted);
// The same with the candidates in another order: those whose surprise is nearest to the entropy come first (Meister et
// al., "Locally typical sampling", 2023). ``weights`` are those of the row; surprises are measured by ``total``.
Run keep_typical(Candidate* candidates, int count, double total, double entropy, double wanted, const float* weights);

// Few tokens, one by one: what is asked of a WeighedRow, asked of these alone.
class ListedTokens {
 public:
  ListedTokens(Candidate* candidates, Run run, const float* weights)
      : candidates_(candidates), run_(run), weights_(weights) {}

  double total() const { return run_.sum; }
  Reached reach(double wanted);
  double sum_from(float least) const;
  void keep_typical(double share);

 private:
  Candidate* candidates_;
  Run run_;
  const float* weights_;
};

}  // namespace ferrum::FERRUM_ISA
