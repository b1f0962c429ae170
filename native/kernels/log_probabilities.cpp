// Log-probabilities of one row of logits. The arithmetic is that of docs/numerics.md and of
// runtimes/exact_log_probabilities.py, bit for bit.
#include "kernel_table.h"
#include "natural_log.h"
#include "vector.h"

namespace ferrum::FERRUM_ISA {
namespace {

// Weights that are summed in float32 before the sum goes on in float64: part of the numerics.
constexpr int kRun = 1024;

// 16 values from ``i`` on; what lies behind the row is minus infinity, so that it weighs nothing and is never first.
FERRUM_INLINE Lanes load_lanes(const float* row, int i, int count) {
  if (i + kLanes <= count) return l_load(row + i);
  float padded[kLanes];
  for (int j = 0; j < kLanes; ++j) padded[j] = i + j < count ? row[i + j] : -__builtin_inff();
  return l_load(padded);
}

bool are_finite(const float* row, int count) {
  Lanes differences = l_set(0.0f);  // x - x is 0 for a number, and no number for the rest
  int i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    const Lanes x = l_load(row + i);
    for (int part = 0; part < kParts; ++part)
      differences.part[part] = v_add(differences.part[part], v_sub(x.part[part], x.part[part]));
  }
  float difference[kLanes];
  l_store(difference, differences);
  bool finite = true;
  for (int j = 0; j < kLanes; ++j) finite = finite && difference[j] == 0.0f;
  for (; i < count; ++i) finite = finite && row[i] - row[i] == 0.0f;
  return finite;
}

float largest_of(const float* row, int count) {
  Lanes largest = load_lanes(row, 0, count);
  for (int i = kLanes; i < count; i += kLanes) largest = l_max(largest, load_lanes(row, i, count));
  return l_fold_max(largest);
}

double log_of_weights(const float* row, int count, float largest) {
  const Lanes top = l_set(largest);
  double total = 0.0;
  for (int run = 0; run < count; run += kRun) {
    const int end = run + kRun < count ? run + kRun : count;
    Lanes sum = l_set(0.0f);
    for (int i = run; i < end; i += kLanes) {
      Lanes x = load_lanes(row, i, count);
      for (int part = 0; part < kParts; ++part) x.part[part] = v_sub(x.part[part], top.part[part]);
      sum = l_add(sum, l_exp_of_not_positive(x));
    }
    total += double(l_fold_add(sum));
  }
  return natural_log(total);
}

int rank_of(const float* row, int count, int32_t token) {
  const float value = row[token];
  int before = 0;
  for (int i = 0; i < count; ++i) before += row[i] > value;
  for (int i = 0; i < token; ++i) before += row[i] == value;
  return before + 1;
}

// Ids of the ``num_top`` largest, larger first, then lower id.
void find_top(const float* row, int count, int num_top, int32_t* ids) {
  int found = 0;
  if (num_top == 0) return;
  for (int i = 0; i < count; i += kLanes) {
    if (found == num_top && !(l_fold_max(load_lanes(row, i, count)) > row[ids[found - 1]])) continue;
    for (int id = i; id < count && id < i + kLanes; ++id) {
      if (found == num_top && !(row[id] > row[ids[found - 1]])) continue;
      int place = found < num_top ? found++ : found - 1;
      for (; place > 0 && row[id] > row[ids[place - 1]]; --place) ids[place] = ids[place - 1];
      ids[place] = id;
    }
  }
}

}  // namespace

bool log_probabilities(const float* logits, int vocabulary, int32_t token, int num_top, const LogProbabilityRow& out) {
  if (!are_finite(logits, vocabulary)) return false;
  const float largest = largest_of(logits, vocabulary);
  const double normaliser = log_of_weights(logits, vocabulary, largest);
  const auto log_probability = [&](int32_t id) { return float((double(logits[id]) - double(largest)) - normaliser); };
  *out.log_probability = log_probability(token);
  *out.rank = rank_of(logits, vocabulary, token);
  if (num_top > vocabulary) num_top = vocabulary;
  find_top(logits, vocabulary, num_top, out.top_ids);
  for (int i = 0; i < num_top; ++i) out.top_log_probabilities[i] = log_probability(out.top_ids[i]);
  return true;
}

}  // namespace ferrum::FERRUM_ISA
