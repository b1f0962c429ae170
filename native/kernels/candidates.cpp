// How far the heaviest tokens reach, by partitions as quickselect makes them (Hoare, "Algorithm 65: Find", 1961).
#include "candidates.h"

#include "natural_log.h"
#include "token_weights.h"

namespace ferrum::FERRUM_ISA {
namespace {

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

Levels measure_levels(const float* weights, int vocabulary, const float (&bounds)[3]) {
  Levels levels{};
  DoubleSums sums[3] = {d_zero(), d_zero(), d_zero()};
  int i = 0;
  for (; i + kWidth <= vocabulary; i += kWidth) {
    const Vector weight = v_load(weights + i);
    for (int level = 0; level < 3; ++level) {
      const Vector bound = v_set(bounds[level]);
      levels.count[level] += __builtin_popcount(v_mask_not_less(weight, bound));
      sums[level] = d_add(sums[level], v_keep_not_less(weight, weight, bound));
    }
  }
  for (int level = 0; level < 3; ++level) levels.sum[level] = d_total(sums[level]);
  for (; i < vocabulary; ++i)
    for (int level = 0; level < 3; ++level)
      if (weights[i] >= bounds[level]) {
        ++levels.count[level];
        levels.sum[level] += double(weights[i]);
      }
  return levels;
}

constexpr float kFirstBounds[3] = {0x1p-4f, 0x1p-8f, 0x1p-14f};
// So many candidates are looked at one by one sooner than their row is looked at again.
constexpr int kFew = 8192;

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

// Tokens that weigh at least the float32 with the bits ``low`` and less than that with the bits ``high``: among them the
// heaviest reach a sum. Positive floats are in the order of their bits.
struct Bracket {
  uint32_t low, high;
  int num_reaching, num_above;  // that weigh at least low, and high
  double above;                 // what the latter weigh

  int count() const { return num_reaching - num_above; }
};

// A row of weights and what is known of it: each look at it tells of three bounds.
class WeighedRow {
 public:
  WeighedRow(const float* weights, int vocabulary) : weights_(weights), vocabulary_(vocabulary) {}

  // Where the heaviest reach ``wanted``, which is at most what all weigh: with few candidates inside, or of one weight.
  Bracket find(double wanted) {
    Bracket bracket = known_around(wanted);
    while (bracket.count() > kFew && bracket.high - bracket.low > 1 && num_known_ + 3 <= kMostKnown) {
      float bounds[3] = {kFirstBounds[0], kFirstBounds[1], kFirstBounds[2]};
      if (num_known_ > 0)
        for (uint32_t i = 0; i < 3; ++i)
          bounds[i] = float_of(bracket.high - uint32_t(uint64_t(bracket.high - bracket.low) * (i + 1) / 4));
      look(bounds);
      bracket = known_around(wanted);
    }
    return bracket;
  }

 private:
  struct Known {
    uint32_t bits;
    int count;
    double sum;
  };
  static constexpr int kMostKnown = 96;  // 32 looks: a bracket is down to one weight after 14

  void look(const float (&bounds)[3]) {
    const Levels levels = measure_levels(weights_, vocabulary_, bounds);
    for (int level = 0; level < 3; ++level)
      known_[num_known_++] = {bits_of(bounds[level]), levels.count[level], levels.sum[level]};
  }

  Bracket known_around(double wanted) const {
    Bracket bracket{bits_of(kLeastWeight), bits_of(1.0f) + 1, vocabulary_, 0, 0.0};
    for (int i = 0; i < num_known_; ++i) {
      const Known& each = known_[i];
      if (each.sum >= wanted && each.bits > bracket.low) {
        bracket.low = each.bits;
        bracket.num_reaching = each.count;
      }
      if (each.sum < wanted && each.bits < bracket.high) {
        bracket.high = each.bits;
        bracket.num_above = each.count;
        bracket.above = each.sum;
      }
    }
    return bracket;
  }

  const float* weights_;
  const int vocabulary_;
  int num_known_ = 0;
  Known known_[kMostKnown];
};

int collect_between(const float* weights, int vocabulary, float least, float bound, Candidate* out) {
  const Vector low = v_set(least), high = v_set(bound);
  int count = 0;
  int i = 0;
  for (; i + kWidth <= vocabulary; i += kWidth) {
    const Vector weight = v_load(weights + i);
    for (uint32_t lanes = v_mask_not_less(weight, low) & ~v_mask_not_less(weight, high); lanes != 0;
         lanes &= lanes - 1) {
      const int id = i + __builtin_ctz(lanes);
      out[count++] = candidate(weights[id], id);
    }
  }
  for (; i < vocabulary; ++i)
    if (weights[i] >= least && weights[i] < bound) out[count++] = candidate(weights[i], i);
  return count;
}

// Sums are multiples of 2^-32: exceeding one is reaching the next.
FERRUM_INLINE double next_sum(double threshold) { return (__builtin_floor(threshold * 0x1p32) + 1.0) * 0x1p-32; }

}  // namespace

int collect(const float* weights, int vocabulary, float least, Candidate* out) {
  return collect_between(weights, vocabulary, least, __builtin_inff(), out);
}

int collect_heaviest(const float* weights, int vocabulary, int count, Candidate* out) {
  const Levels levels = measure_levels(weights, vocabulary, kFirstBounds);
  int level = 0;
  while (level < 3 && levels.count[level] < count) ++level;
  return collect(weights, vocabulary, level < 3 ? kFirstBounds[level] : kLeastWeight, out);
}

Candidate draw_from_nucleus(const float* weights, int vocabulary, double total, double share, double draw,
                            Candidate* out) {
  WeighedRow row(weights, vocabulary);
  const auto reach_in = [&](const Bracket& bracket, double wanted) {
    const int count = collect_between(weights, vocabulary, float_of(bracket.low), float_of(bracket.high), out);
    return keep_weighing(out, count, wanted - bracket.above);
  };
  const Bracket nucleus = row.find(share * total);
  const double sum = nucleus.above + reach_in(nucleus, share * total).sum;
  const double wanted = next_sum(draw * sum);
  return out[reach_in(row.find(wanted), wanted).count - 1];
}

Candidate draw_by_weight(Candidate* candidates, int count, double threshold) {
  return candidates[keep_weighing(candidates, count, next_sum(threshold)).count - 1];
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
  constexpr int kChunk = 64;
  double weight[kChunk], surprises[kChunk];
  const auto look_at = [&](int start) {
    const int end = count - start < kChunk ? count - start : kChunk;
    for (int i = 0; i < kChunk; ++i) weight[i] = i < end ? double(weight_of(candidates[start + i])) : 1.0;
    for (int i = 0; i < kChunk; ++i) surprises[i] = natural_log(total / weight[i]);
    return end;
  };
  int64_t products = 0;  // rounded to multiples of 2^-32, for a sum in any order
  for (int start = 0; start < count; start += kChunk) {
    const int end = look_at(start);
    for (int i = 0; i < end; ++i) products += int64_t(weight[i] * surprises[i] * 0x1p32 + 0.5);
  }
  const double entropy = double(products) * 0x1p-32 / total;
  for (int start = 0; start < count; start += kChunk) {
    const int end = look_at(start);
    for (int i = 0; i < end; ++i) {
      const float distance = float(__builtin_fabs(surprises[i] - entropy));
      candidates[start + i] = Candidate(~bits_of(distance)) << 32 | uint32_t(candidates[start + i]);
    }
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

int keep_from(Candidate* candidates, int count, float least) {
  int kept = 0;
  Candidate heaviest = 0;
  for (int i = 0; i < count; ++i) {
    const Candidate each = candidates[i];
    heaviest = each > heaviest ? each : heaviest;
    if (weight_of(each) >= least) candidates[kept++] = each;
  }
  if (kept > 0) return kept;
  candidates[0] = heaviest;
  return 1;
}

}  // namespace ferrum::FERRUM_ISA
