// How surprising tokens are: ln(total / weight), in nats.
#pragma once

#include "natural_log.h"

namespace ferrum::FERRUM_ISA {

// Looked at so many at a time, so that the loop over them becomes vectors.
inline constexpr int kSurpriseChunk = 64;

struct SurpriseChunk {
  double weight[kSurpriseChunk];
  double surprise[kSurpriseChunk];  // of a token without weight any number: it counts for nothing
};

template <typename WeightAt>
FERRUM_INLINE int look_at_surprises(SurpriseChunk& chunk, int start, int count, double total,
                                    const WeightAt& weight_at) {
  const int end = count - start < kSurpriseChunk ? count - start : kSurpriseChunk;
  if (end == kSurpriseChunk) {
    for (int i = 0; i < kSurpriseChunk; ++i) chunk.weight[i] = double(weight_at(start + i));
  } else {
    for (int i = 0; i < kSurpriseChunk; ++i) chunk.weight[i] = i < end ? double(weight_at(start + i)) : 0.0;
  }
  for (int i = 0; i < kSurpriseChunk; ++i)
    chunk.surprise[i] = natural_log(total / (chunk.weight[i] > 0.0 ? chunk.weight[i] : 1.0));
  return end;
}

// The mean surprise: the entropy. Products are rounded to multiples of 2^-32, for a sum in any order.
template <typename WeightAt>
FERRUM_INLINE double mean_surprise(int count, double total, const WeightAt& weight_at) {
  SurpriseChunk chunk;
  int64_t products = 0;
  for (int start = 0; start < count; start += kSurpriseChunk) {
    look_at_surprises(chunk, start, count, total, weight_at);
    for (int i = 0; i < kSurpriseChunk; ++i) products += int64_t(chunk.weight[i] * chunk.surprise[i] * 0x1p32 + 0.5);
  }
  return double(products) * 0x1p-32 / total;
}

}  // namespace ferrum::FERRUM_ISA
