// Rules on logits; docs/sampling.md says what each computes, sampling/logit_rules.py the same in NumPy.
#include "logit_rules.h"

#include "natural_log.h"
#include "token_weights.h"
#include "vector.h"

namespace ferrum::FERRUM_ISA {
namespace {

constexpr float kBanned = -__builtin_inff();
constexpr float kLargestPenalty = 1e30f;

void penalize_counted(float* logits, const TokenRules& rules) {
  for (int i = 0; i < rules.num_counted; ++i) {
    float& logit = logits[rules.counted_ids[i]];
    if (rules.window_counts[i] > 0 && rules.repetition_penalty != 1.0f)
      logit = logit > 0.0f ? logit / rules.repetition_penalty : logit * rules.repetition_penalty;
    if (rules.output_counts[i] > 0)
      logit -= rules.frequency_penalty * float(rules.output_counts[i]) + rules.presence_penalty;
  }
}

// lengths[k]: how far the tokens before the k-th last one agree with those before the last one, both included (the Z
// function of the reversed history; D. Gusfield, "Algorithms on Strings, Trees and Sequences", 1997).
void measure_repetitions(const int32_t* tokens, int count, int32_t* lengths) {
  const int32_t* last = tokens + count - 1;
  int left = 0, right = 0;
  for (int k = 1; k < count; ++k) {
    int length = 0;
    if (k < right) length = lengths[k - left] < right - k ? lengths[k - left] : right - k;
    while (k + length < count && last[-length] == last[-k - length]) ++length;
    lengths[k] = length;
    if (k + length > right) {
      left = k;
      right = k + length;
    }
  }
}

float dry_penalty(const TokenRules& rules, int length) {
  float penalty = rules.dry_multiplier;
  if (rules.dry_base == 1.0f) return penalty;
  for (int i = rules.dry_allowed_length; i < length && penalty < kLargestPenalty; ++i) penalty *= rules.dry_base;
  return penalty < kLargestPenalty ? penalty : kLargestPenalty;
}

// Each token that would go on with a repetition is penalised once, for the longest of them.
void penalize_repetitions(float* logits, int vocabulary, const TokenRules& rules, uint64_t* marks, int32_t* lengths) {
  const int32_t* tokens = rules.dry_tokens;
  const int count = rules.num_dry_tokens;
  if (count < 2 || rules.dry_limit < rules.dry_allowed_length) return;
  measure_repetitions(tokens, count, lengths);
  const auto token_after = [&](int k) { return tokens[count - k]; };
  const auto is_long = [&](int k) {
    return lengths[k] >= rules.dry_allowed_length && uint32_t(token_after(k)) < uint32_t(vocabulary);
  };
  for (int k = 1; k < count; ++k)
    if (is_long(k)) marks[token_after(k)] = 0;
  for (int k = 1; k < count; ++k) {
    if (!is_long(k)) continue;
    const int length = lengths[k] < rules.dry_limit ? lengths[k] : rules.dry_limit;
    uint64_t& longest = marks[token_after(k)];
    if (uint64_t(length) > longest) longest = uint64_t(length);
  }
  for (int k = 1; k < count; ++k) {
    if (!is_long(k)) continue;
    uint64_t& longest = marks[token_after(k)];
    if (longest > 0) logits[token_after(k)] -= dry_penalty(rules, int(longest));
    longest = 0;
  }
}

// The sum of a value of each logit in 16 lanes by id, folded 16, 8, 4, 2, 1: the order of additions is part of the numerics.
template <typename ValueOf>
FERRUM_INLINE double fold_in_lanes(const float* logits, int count, const ValueOf& value_of) {
  double lane[16] = {};
  int i = 0;
  for (; i + 16 <= count; i += 16)
    for (int j = 0; j < 16; ++j) lane[j] += value_of(logits[i + j]);
  for (int j = 0; i + j < count; ++j) lane[j] += value_of(logits[i + j]);
  for (int width = 8; width > 0; width /= 2)
    for (int j = 0; j < width; ++j) lane[j] += lane[j + width];
  return lane[0];
}

}  // namespace

void adjust_logits(float* logits, int vocabulary, const TokenRules& rules, uint64_t* marks, int32_t* lengths) {
  for (int i = 0; i < rules.num_biased; ++i) logits[rules.biased_ids[i]] += rules.biases[i];
  penalize_counted(logits, rules);
  if (rules.dry_multiplier > 0.0f) penalize_repetitions(logits, vocabulary, rules, marks, lengths);
}

void cut_below_sigma(float* logits, int vocabulary, float largest, float factor) {
  int num_allowed = 0;
  const double sum = fold_in_lanes(logits, vocabulary, [&num_allowed](float logit) {
    num_allowed += logit > kBanned;
    return logit > kBanned ? double(logit) : 0.0;
  });
  const double mean = sum / double(num_allowed);
  const double squares = fold_in_lanes(logits, vocabulary, [mean](float logit) {
    const double distance = logit > kBanned ? double(logit) - mean : 0.0;
    return distance * distance;
  });
  const double least = double(largest) - double(factor) * __builtin_sqrt(squares / double(num_allowed));
  for (int i = 0; i < vocabulary; ++i) logits[i] = double(logits[i]) < least ? kBanned : logits[i];
}

float dynamic_temperature(const float* logits, int vocabulary, float largest, float temperature,
                          const TokenRules& rules) {
  const RowEntropy row = entropy_of(logits, vocabulary, largest);
  if (row.num_allowed < 2) return temperature;
  const double share = row.entropy / natural_log(double(row.num_allowed));
  float power = 0.0f;
  if (share > 0.0) {
    float lane[kWidth];
    v_store(lane, v_exp(v_set(float(double(rules.dynatemp_exponent) * natural_log(share)))));
    power = lane[0] < 1.0f ? lane[0] : 1.0f;
  }
  const float lowest = temperature > rules.dynatemp_range ? temperature - rules.dynatemp_range : 0.0f;
  return lowest + (temperature + rules.dynatemp_range - lowest) * power;
}

}  // namespace ferrum::FERRUM_ISA
