// How far the heaviest tokens reach, by partitions as quickselect makes them (Hoare, "Algorithm 65: Find", 1961).
#include "candidates.h"

#include "surprise.h"

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
FERRUM_INLINE Run reach_sum(Candidate* candidates, int count, double wanted, const WeightOf& weight_of) {
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

FERRUM_INLINE double sum_of(const Candidate* candidates, int count) {
  double sum = 0.0;
  for (int i = 0; i < count; ++i) sum += double(weight_of(candidates[i]));
  return sum;
}

}  // namespace

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
  return reach_sum(candidates, count, wanted, [](Candidate each) { return weight_of(each); });
}

Run keep_typical(Candidate* candidates, int count, double total, double entropy, double wanted, const float* weights) {
  SurpriseChunk chunk;
  for (int start = 0; start < count; start += kSurpriseChunk) {
    const int end = look_at_surprises(chunk, start, count, total, [&](int i) { return weight_of(candidates[i]); });
    for (int i = 0; i < end; ++i) {
      const float distance = float(__builtin_fabs(chunk.surprise[i] - entropy));
      candidates[start + i] = Candidate(~bits_of(distance)) << 32 | uint32_t(candidates[start + i]);
    }
  }
  const Run run = reach_sum(candidates, count, wanted, [weights](Candidate each) { return weights[id_of(each)]; });
  for (int i = 0; i < run.count; ++i) candidates[i] = candidate(weights[id_of(candidates[i])], id_of(candidates[i]));
  return run;
}

Reached ListedTokens::reach(double wanted) {
  const Run reached = keep_weighing(candidates_, run_.count, wanted);
  return {candidates_[reached.count - 1], reached.sum};
}

double ListedTokens::sum_from(float least) const {
  double sum = 0.0;
  for (int i = 0; i < run_.count; ++i)
    sum += weight_of(candidates_[i]) >= least ? double(weight_of(candidates_[i])) : 0.0;
  return sum;
}

void ListedTokens::keep_typical(double share) {
  const double entropy = mean_surprise(run_.count, run_.sum, [this](int i) { return weight_of(candidates_[i]); });
  run_ = ferrum::FERRUM_ISA::keep_typical(candidates_, run_.count, run_.sum, entropy, share * run_.sum, weights_);
}

}  // namespace ferrum::FERRUM_ISA
