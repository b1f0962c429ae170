// Weights of tokens; docs/sampling.md says what they are.
#include "token_weights.h"

#include "natural_log.h"
#include "vector.h"

namespace ferrum::FERRUM_ISA {
namespace {

// To a multiple of 2^-32: float32 values from 2^-9 on are some, and so are the sums of 2^-9 and a smaller one.
FERRUM_INLINE Vector to_grid(Vector weight) {
  const Vector step = v_set(0x1p-9f);
  return v_choose_less(weight, step, v_sub(v_add(weight, step), step), weight);
}

FERRUM_INLINE Vector weights_of(const float* logits, Vector largest, Vector inverse) {
  return to_grid(v_exp_of_not_positive(v_mul(v_sub(v_load(logits), largest), inverse)));
}

}  // namespace

double weigh(const float* logits, int vocabulary, float largest, float inverse, float min_p, float* weights,
             double* block_sums) {
  const Vector highest = v_set(largest), factor = v_set(inverse), least = v_set(min_p);
  double total = 0.0;
  for (int start = 0; start < vocabulary; start += kSumBlock) {
    const int end = vocabulary - start < kSumBlock ? vocabulary : start + kSumBlock;
    DoubleSums sums = d_zero();
    int i = start;
    for (; i + kWidth <= end; i += kWidth) {
      Vector weight = weights_of(logits + i, highest, factor);
      weight = v_keep_not_less(weight, weight, least);
      v_store(weights + i, weight);
      sums = d_add(sums, weight);
    }
    if (i < end) {
      float chunk[kWidth];
      for (int j = 0; j < kWidth; ++j) chunk[j] = i + j < end ? logits[i + j] : -__builtin_inff();
      Vector weight = weights_of(chunk, highest, factor);
      weight = v_keep_not_less(weight, weight, least);
      v_store(chunk, weight);
      for (int j = i; j < end; ++j) weights[j] = chunk[j - i];
      sums = d_add(sums, weight);
    }
    const double sum = d_total(sums);
    block_sums[start / kSumBlock] = sum;
    total += sum;
  }
  return total;
}

RowEntropy entropy_of(const float* logits, int vocabulary, float largest) {
  // The entropy is ln(sum w) - sum(w ln w) / sum w. The products are rounded to multiples of 2^-32, for sums in any order.
  constexpr int kChunk = 64;
  DoubleSums total{d_zero()};
  int64_t products = 0;
  int num_allowed = 0;
  float chunk[kChunk], weight[kChunk], distance[kChunk];
  for (int start = 0; start < vocabulary; start += kChunk) {
    const float* row = logits + start;
    if (start + kChunk > vocabulary) {
      for (int j = 0; j < kChunk; ++j) chunk[j] = start + j < vocabulary ? row[j] : -__builtin_inff();
      row = chunk;
    }
    for (int i = 0; i < kChunk; i += kWidth) {
      const Vector x = v_load(row + i), weights = weights_of(row + i, v_set(largest), v_set(1.0f));
      num_allowed += __builtin_popcount(v_mask_not_less(x, v_set(-__FLT_MAX__)));
      total = d_add(total, weights);
      v_store(weight + i, weights);
      v_store(distance + i, v_min(v_sub(v_set(largest), x), v_set(1e30f)));  // infinity times weight 0 is no number
    }
    for (int j = 0; j < kChunk; ++j) products += int64_t(double(weight[j]) * double(distance[j]) * 0x1p32 + 0.5);
  }
  const double sum = d_total(total);
  return {natural_log(sum) + double(products) * 0x1p-32 / sum, num_allowed};
}

}  // namespace ferrum::FERRUM_ISA
