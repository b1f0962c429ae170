// How far the heaviest tokens reach, by partitions as quickselect makes them (Hoare, "Algorithm 65: Find", 1961).
#include "candidates.h"

#include "natural_log.h"
#include "token_weights.h"

namespace ferrum::FERRUM_ISA {
namespace {

constexpr double kBitsPerNat = 1.44269504088896340736;
// Shorter runs are sorted.
constexpr int kShortRun = 24;

struct Partition {
  int pivot;     // its place; greater candidates stand before it
  double above;  // what those weigh
};

FERRUM_INLINE void swap(Candidate& a, Candidate& b) {
  const Candidate old = a;
  a = b;
  b = old;
}

template <typename WeightOf>
FERRUM_INLINE Partition partition(Candidate* candidates, int low, int high, const WeightOf& weight_of) {
  Candidate& middle = candidates[low + (high - low) / 2];
  Candidate& first = candidates[low];
  Candidate& last = candidates[high - 1];
  if (first < middle) swap(first, middle);
  if (first < last) swap(first, last);
  if (middle > last) swap(middle, last);  // the last is the median of three now
  const Candidate pivot = last;
  int place = low;
  double above = 0.0;
  for (int i = low; i < high - 1; ++i) {  // without branches: which way a candidate goes is anyone's guess
    const Candidate each = candidates[i];
    candidates[i] = candidates[place];
    candidates[place] = each;
    const bool is_greater = each > pivot;
    above += is_greater ? double(weight_of(each)) : 0.0;
    place += is_greater;
  }
  swap(candidates[place], last);
  return {place, above};
}

FERRUM_INLINE void sort_short(Candidate* candidates, int low, int high) {
  for (int i = low + 1; i < high; ++i) {
    const Candidate each = candidates[i];
    int place = i;
    for (; place > low && candidates[place - 1] < each; --place) candidates[place] = candidates[place - 1];
    candidates[place] = each;
  }
}

template <typename WeightOf>
FERRUM_INLINE Run reach(Candidate* candidates, int count, double wanted, const WeightOf& weight_of) {
  int low = 0, high = count;
  double sum = 0.0;  // of those before ``low``
  while (high - low > kShortRun) {
    const Partition parts = partition(candidates, low, high, weight_of);
    if (sum + parts.above >= wanted) {
      high = parts.pivot;
      continue;
    }
    sum += parts.above + double(weight_of(candidates[parts.pivot]));
    low = parts.pivot + 1;
    if (sum >= wanted) return {low, sum};
  }
  sort_short(candidates, low, high);
  while (low < high && sum < wanted) sum += double(weight_of(candidates[low++]));
  return {low, sum};
}

// How many tokens weigh at least each of three bounds, and what they weigh together.
struct Levels {
  int count[3];
  double sum[3];
};
constexpr float kLevels[3] = {0x1p-4f, 0x1p-8f, 0x1p-14f};

Levels measure_levels(const float* weights, int vocabulary) {
  Levels levels{};
  DoubleSums sums[3] = {d_zero(), d_zero(), d_zero()};
  int i = 0;
  for (; i + kWidth <= vocabulary; i += kWidth) {
    const Vector weight = v_load(weights + i);
    for (int level = 0; level < 3; ++level) {
      const Vector bound = v_set(kLevels[level]);
      levels.count[level] += __builtin_popcount(v_mask_not_less(weight, bound));
      sums[level] = d_add(sums[level], v_keep_not_less(weight, weight, bound));
    }
  }
  for (int level = 0; level < 3; ++level) levels.sum[level] = d_total(sums[level]);
  for (; i < vocabulary; ++i)
    for (int level = 0; level < 3; ++level)
      if (weights[i] >= kLevels[level]) {
        ++levels.count[level];
        levels.sum[level] += double(weights[i]);
      }
  return levels;
}

}  // namespace

int collect(const float* weights, int vocabulary, float least, Candidate* out) {
  int count = 0;
  int i = 0;
  const Vector bound = v_set(least);
  for (; i + kWidth <= vocabulary; i += kWidth)
    for (uint32_t lanes = v_mask_not_less(v_load(weights + i), bound); lanes != 0; lanes &= lanes - 1) {
      const int id = i + __builtin_ctz(lanes);
      out[count++] = candidate(weights[id], id);
    }
  for (; i < vocabulary; ++i)
    if (weights[i] >= least) out[count++] = candidate(weights[i], i);
  return count;
}

int collect_heaviest(const float* weights, int vocabulary, int count, Candidate* out) {
  const Levels levels = measure_levels(weights, vocabulary);
  int level = 0;
  while (level < 3 && levels.count[level] < count) ++level;
  return collect(weights, vocabulary, level < 3 ? kLevels[level] : kLeastWeight, out);
}

int collect_weighing(const float* weights, int vocabulary, double wanted, Candidate* out) {
  const Levels levels = measure_levels(weights, vocabulary);
  int level = 0;
  while (level < 3 && levels.sum[level] < wanted) ++level;
  return collect(weights, vocabulary, level < 3 ? kLevels[level] : kLeastWeight, out);
}

double sum_of(const Candidate* candidates, int count) {
  double sum = 0.0;
  for (int i = 0; i < count; ++i) sum += double(weight_of(candidates[i]));
  return sum;
}

Run keep_heaviest(Candidate* candidates, int count, int keep) {
  int low = 0, high = count;
  while (keep < count && high - low > 1) {
    const Partition parts = partition(candidates, low, high, [](Candidate) { return 0.0f; });
    if (parts.pivot >= keep) high = parts.pivot;
    else low = parts.pivot + 1;
    if (low >= keep) break;
  }
  const int kept = keep < count ? keep : count;
  return {kept, sum_of(candidates, kept)};
}

Run keep_weighing(Candidate* candidates, int count, double wanted) {
  return reach(candidates, count, wanted, [](Candidate each) { return weight_of(each); });
}

Run keep_typical(Candidate* candidates, int count, double total, double wanted, const float* weights) {
  int64_t products = 0;  // rounded to multiples of 2^-32, for a sum in any order
  for (int i = 0; i < count; ++i) {
    const double weight = double(weight_of(candidates[i]));
    products += int64_t(weight * natural_log(total / weight) * 0x1p32 + 0.5);
  }
  const double entropy = double(products) * 0x1p-32 / total;
  for (int i = 0; i < count; ++i) {
    const float distance = float(__builtin_fabs(natural_log(total / double(weight_of(candidates[i]))) - entropy));
    uint32_t bits;
    memcpy(&bits, &distance, 4);
    candidates[i] = Candidate(~bits) << 32 | uint32_t(candidates[i]);
  }
  const Run run = reach(candidates, count, wanted, [weights](Candidate each) { return weights[id_of(each)]; });
  for (int i = 0; i < run.count; ++i) candidates[i] = candidate(weights[id_of(candidates[i])], id_of(candidates[i]));
  return run;
}

int drop_top_choices(Candidate* candidates, int count, double least) {
  int num_top = 0;
  Candidate last = ~Candidate(0);
  for (int i = 0; i < count; ++i) {
    if (double(weight_of(candidates[i])) < least) continue;
    ++num_top;
    if (candidates[i] < last) last = candidates[i];
  }
  if (num_top < 2) return count;
  int kept = 0;
  for (int i = 0; i < count; ++i) {
    const Candidate each = candidates[i];
    if (each <= last) candidates[kept++] = each;
  }
  return kept;
}

int keep_unsurprising(Candidate* candidates, int count, double total, double most_bits) {
  Candidate heaviest = 0;
  for (int i = 0; i < count; ++i) heaviest = candidates[i] > heaviest ? candidates[i] : heaviest;
  int kept = 0;
  for (int i = 0; i < count; ++i) {
    const Candidate each = candidates[i];
    if (each == heaviest || surprise(total, weight_of(each)) <= most_bits) candidates[kept++] = each;
  }
  return kept;
}

double surprise(double total, float weight) { return natural_log(total / double(weight)) * kBitsPerNat; }

}  // namespace ferrum::FERRUM_ISA
