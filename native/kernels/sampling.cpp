// Choosing a token from one row of logits. The arithmetic is that of sampling/reference_sampler.py, bit for bit.
//
// Draws come from Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011), keyed by the
// request's seed and the token's position, so a draw depends on nothing else.
#include "kernel_table.h"
#include "vector.h"

namespace ferrum::FERRUM_ISA {
namespace {

double uniform_draw(uint64_t seed, int32_t position) {
  uint32_t counter[4] = {uint32_t(position), 0, 0, 0};  // position, sample, purpose, attempt
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

struct RowRange {
  float largest;
  bool is_finite;
};

RowRange range_of(const float* logits, int count) {
  Vector largest = v_set(-__builtin_inff());
  Vector differences = v_zero();  // x - x is 0 for a number, and no number for the rest
  int i = 0;
  for (; i + kWidth <= count; i += kWidth) {
    const Vector x = v_load(logits + i);
    largest = v_max(largest, x);
    differences = v_add(differences, v_sub(x, x));
  }
  float lane[kWidth], difference[kWidth];
  v_store(lane, largest);
  v_store(difference, differences);
  RowRange range{lane[0], true};
  for (int j = 0; j < kWidth; ++j) {
    range.largest = lane[j] > range.largest ? lane[j] : range.largest;
    range.is_finite = range.is_finite && difference[j] == 0.0f;
  }
  for (; i < count; ++i) {
    range.largest = logits[i] > range.largest ? logits[i] : range.largest;
    range.is_finite = range.is_finite && logits[i] - logits[i] == 0.0f;
  }
  return range;
}

// ``out`` has minus infinity in place of the logits that are not allowed. False when none is.
bool apply_mask(const float* logits, int count, const uint32_t* mask, float* out) {
  uint32_t any = 0;
  for (int start = 0; start < count; start += 32) {
    const int end = count - start < 32 ? count - start : 32;
    const uint32_t word = end < 32 ? mask[start / 32] & ((1u << end) - 1u) : mask[start / 32];
    any |= word;
    for (int i = 0; i < end; ++i) out[start + i] = (word >> i) & 1u ? logits[start + i] : -__builtin_inff();
  }
  return any != 0;
}

int32_t first_equal(const float* logits, int count, float value) {
  int i = 0;
  while (i + 1 < count && logits[i] != value) ++i;
  return i;
}

// Heavier first, then lower id.
FERRUM_INLINE bool comes_before(const float* weights, int32_t a, int32_t b) {
  return weights[a] > weights[b] || (weights[a] == weights[b] && a < b);
}

// Quickselect: afterwards the first ``keep`` entries are the ``keep`` that come first, in any order.
void select_first(int32_t* order, int count, int keep, const float* weights) {
  int low = 0, high = count - 1;
  while (low < high) {
    const int32_t pivot = order[low + (high - low) / 2];
    int i = low, j = high;
    while (i <= j) {
      while (comes_before(weights, order[i], pivot)) ++i;
      while (comes_before(weights, pivot, order[j])) --j;
      if (i <= j) {
        const int32_t swap = order[i];
        order[i++] = order[j];
        order[j--] = swap;
      }
    }
    if (keep - 1 <= j) high = j;
    else if (keep - 1 >= i) low = i;
    else return;
  }
}

void sort_first(int32_t* order, int count, const float* weights) {  // heap sort: no recursion, no library template
  auto sift = [&](int root, int end) {
    while (2 * root + 1 < end) {
      int child = 2 * root + 1;
      if (child + 1 < end && comes_before(weights, order[child], order[child + 1])) ++child;
      if (!comes_before(weights, order[root], order[child])) return;
      const int32_t swap = order[root];
      order[root] = order[child];
      order[child] = swap;
      root = child;
    }
  };
  for (int root = count / 2 - 1; root >= 0; --root) sift(root, count);
  for (int end = count - 1; end > 0; --end) {
    const int32_t swap = order[0];
    order[0] = order[end];
    order[end] = swap;
    sift(0, end);
  }
}

}  // namespace

int32_t sample(const float* logits, int vocabulary, const SamplingRule& rule, const SamplingScratch& scratch) {
  const RowRange range = range_of(logits, vocabulary);
  if (!range.is_finite) return kNoNumbers;
  float largest = range.largest;
  if (rule.mask != nullptr) {
    if (!apply_mask(logits, vocabulary, rule.mask, scratch.weights)) return kNothingLeft;
    logits = scratch.weights;  // which their weights replace, in the same places
    largest = range_of(logits, vocabulary).largest;
  }
  // Greedy too when the temperature is no normal number: its inverse must be finite.
  if (rule.temperature < __FLT_MIN__) return first_equal(logits, vocabulary, largest);

  float* weights = scratch.weights;
  const float inverse = 1.0f / rule.temperature;
  float chunk[kWidth];
  for (int i = 0; i < vocabulary; i += kWidth) {
    const int count = vocabulary - i < kWidth ? vocabulary - i : kWidth;
    for (int j = 0; j < kWidth; ++j) chunk[j] = j < count ? logits[i + j] : largest;
    const Vector z = v_mul(v_sub(v_load(chunk), v_set(largest)), v_set(inverse));
    v_store(chunk, v_exp(z));
    for (int j = 0; j < count; ++j) weights[i + j] = chunk[j];
  }
  const double draw = uniform_draw(rule.seed, rule.position);
  const bool ordered = rule.top_k > 0 || rule.top_p < 1.0f;
  if (!ordered) {
    double total = 0.0;
    for (int i = 0; i < vocabulary; ++i)
      if (weights[i] >= rule.min_p && weights[i] > 0.0f) total += double(weights[i]);
    const double threshold = draw * total;
    double sum = 0.0;
    int32_t last = 0;
    for (int i = 0; i < vocabulary; ++i) {
      if (!(weights[i] >= rule.min_p && weights[i] > 0.0f)) continue;
      sum += double(weights[i]);
      last = i;
      if (sum > threshold) return i;
    }
    return last;
  }

  int32_t* order = scratch.order;
  int count = 0;
  for (int i = 0; i < vocabulary; ++i)
    if (weights[i] >= rule.min_p && weights[i] > 0.0f) order[count++] = i;
  if (rule.top_k > 0 && rule.top_k < count) {
    select_first(order, count, rule.top_k, weights);
    count = rule.top_k;
  }
  double total = 0.0;
  if (rule.top_p < 1.0f) {
    // Summed by ascending id, or heaviest first where top-k has sorted the list anyway.
    if (rule.top_k > 0) sort_first(order, count, weights);
    double kept = 0.0;
    for (int i = 0; i < count; ++i) kept += double(weights[order[i]]);
    const double wanted = double(rule.top_p) * kept;
    // Sort only as far as the nucleus reaches: 256 first, then twice as many, until it is covered.
    int sorted = rule.top_k > 0 ? count : 0;
    int taken = 0;
    double sum = 0.0;
    while (taken < count) {
      if (taken == sorted) {
        int next = sorted == 0 ? 256 : 2 * sorted;
        if (next > count) next = count;
        if (next < count) select_first(order + sorted, count - sorted, next - sorted, weights);
        sort_first(order + sorted, next - sorted, weights);
        sorted = next;
      }
      sum += double(weights[order[taken++]]);
      if (sum >= wanted) break;
    }
    count = taken;
    total = sum;
  } else {
    sort_first(order, count, weights);
    for (int i = 0; i < count; ++i) total += double(weights[order[i]]);
  }
  const double threshold = draw * total;
  double sum = 0.0;
  for (int i = 0; i < count; ++i) {
    sum += double(weights[order[i]]);
    if (sum > threshold) return order[i];
  }
  return order[count - 1];
}

}  // namespace ferrum::FERRUM_ISA
