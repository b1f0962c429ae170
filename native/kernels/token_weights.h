// From logits to the weights that tokens are drawn by.
//
// A weight is a multiple of 2^-32 and at most 1, so that float64 sums of up to 2^21 of them are exact: they come out the
// same in any order, and a draw may look at parts of a row only.
#pragma once

#include "kernel_table.h"

namespace ferrum::FERRUM_ISA {

inline constexpr float kLeastWeight = 0x1p-32f;

// weights[i] = exp((logits[i] - largest) * inverse), or 0 where that is below ``min_p``; the two may be the same memory.
// ``block_sums`` [one for each kSumBlock]; returns the sum of all.
double weigh(const float* logits, int vocabulary, float largest, float inverse, float min_p, float* weights,
             double* block_sums);

struct RowEntropy {
  double entropy;  // in nats, at temperature 1
  int num_allowed;
};

RowEntropy entropy_of(const float* logits, int vocabulary, float largest);

}  // namespace ferrum::FERRUM_ISA
