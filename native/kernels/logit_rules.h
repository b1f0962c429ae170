// What changes a row of logits before tokens are weighed.
#pragma once

#include "kernel_table.h"

namespace ferrum::FERRUM_ISA {

// Biases and penalties. ``marks`` [vocabulary] and ``lengths`` [num_dry_tokens] are room to work in.
void adjust_logits(float* logits, int vocabulary, const TokenRules& rules, uint64_t* marks, int32_t* lengths);

// Minus infinity for logits more than ``factor`` standard deviations below ``largest`` (Tang et al., "Top-n sigma", 2024).
void cut_below_sigma(float* logits, int vocabulary, float largest, float factor);

// The temperature between ``temperature`` - range and + range that the entropy of the row asks for.
float dynamic_temperature(const float* logits, int vocabulary, float largest, float temperature,
                          const TokenRules& rules);

}  // namespace ferrum::FERRUM_ISA
