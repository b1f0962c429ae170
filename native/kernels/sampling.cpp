// Choosing a token from one row of logits. The arithmetic is that of sampling/reference_sampler.py, bit for bit;
// docs/sampling.md has the order of the processors.
#include "kernel_table.h"
#include "logit_rules.h"
#include "natural_log.h"
#include "philox.h"
#include "token_weights.h"
#include "vector.h"
#include "weighed_row.h"

namespace ferrum::FERRUM_ISA {
namespace {

constexpr double kNatsPerBit = 0.69314718055994531;

struct RowRange {
  float largest;
  bool is_finite;
};

// One number after the other, in the lanes of vectors.
struct RunningRange {
  Vector largest = v_set(-__builtin_inff());
  Vector differences = v_zero();  // x - x is 0 for a number, and no number for the rest

  void add(Vector x, Vector counted) {
    largest = v_max(largest, counted);
    differences = v_add(differences, v_sub(x, x));
  }

  RowRange of_lanes() const {
    float lane[kWidth], difference[kWidth];
    v_store(lane, largest);
    v_store(difference, differences);
    RowRange range{lane[0], true};
    for (int j = 0; j < kWidth; ++j) {
      range.largest = lane[j] > range.largest ? lane[j] : range.largest;
      range.is_finite = range.is_finite && difference[j] == 0.0f;
    }
    return range;
  }
};

RowRange range_of(const float* logits, int count) {
  RunningRange running;
  int i = 0;
  for (; i + kWidth <= count; i += kWidth) {
    const Vector x = v_load(logits + i);
    running.add(x, x);
  }
  RowRange range = running.of_lanes();
  for (; i < count; ++i) {
    range.largest = logits[i] > range.largest ? logits[i] : range.largest;
    range.is_finite = range.is_finite && logits[i] - logits[i] == 0.0f;
  }
  return range;
}

// Copies the row to ``out``, with minus infinity in place of the logits that the mask does not allow: the largest of those
// that it allows, and whether all are numbers.
RowRange copy_allowed(const float* logits, int count, const uint32_t* mask, float* out) {
  const Vector banned = v_set(-__builtin_inff());
  RunningRange running;
  int i = 0;
  for (; i + kWidth <= count; i += kWidth) {
    const Vector x = v_load(logits + i);
    const Vector allowed = v_choose_bits(mask[i / 32] >> (i % 32), x, banned);
    running.add(x, allowed);
    v_store(out + i, allowed);
  }
  RowRange range = running.of_lanes();
  for (; i < count; ++i) {
    out[i] = (mask[i / 32] >> (i % 32)) & 1u ? logits[i] : -__builtin_inff();
    range.largest = out[i] > range.largest ? out[i] : range.largest;
    range.is_finite = range.is_finite && logits[i] - logits[i] == 0.0f;
  }
  return range;
}

// How many tokens the mask allows when they are the first ones, 0 when they are others: an output layer that is wider
// than the vocabulary is then as good as one that is not.
int allowed_prefix(const uint32_t* mask, int vocabulary) {
  const int num_words = (vocabulary + 31) / 32;
  int word = 0;
  while (word < num_words && mask[word] == 0xffffffffu) ++word;
  int count = 32 * word;
  if (word < num_words) {
    const int num_ones = __builtin_ctz(~mask[word]);
    if (mask[word] >> num_ones != 0) return 0;
    count += num_ones;
  }
  for (++word; word < num_words; ++word)
    if (mask[word] != 0) return 0;
  return count < vocabulary ? count : vocabulary;
}

int32_t first_equal(const float* logits, int count, float value) {
  int i = 0;
  while (i + 1 < count && logits[i] != value) ++i;
  return i;
}

// The first token by id with which the sum of weights exceeds ``threshold``, or the last with a weight.
int32_t draw_by_id(const float* weights, int vocabulary, const double* block_sums, double threshold) {
  double sum = 0.0;
  int32_t last = 0;
  for (int start = 0; start < vocabulary; start += kSumBlock) {
    const double block_sum = block_sums[start / kSumBlock];
    if (sum + block_sum <= threshold && start + kSumBlock < vocabulary) {
      sum += block_sum;
      continue;
    }
    for (int i = start; i < vocabulary && i < start + kSumBlock; ++i) {
      if (weights[i] == 0.0f) continue;
      sum += double(weights[i]);
      last = i;
      if (sum > threshold) return i;
    }
  }
  return last;
}

// Which weights are at most ``mu`` bits surprising among tokens that weigh ``total``: those from here on.
float least_weight(double total, double mu) {
  float lane[kWidth];
  v_store(lane, v_exp(v_set(float(-mu * kNatsPerBit))));
  return float(total * double(lane[0]));
}

double surprise(double total, float weight) { return natural_log(total / double(weight)) / kNatsPerBit; }

// Sums are multiples of 2^-32. The least one that is not below ``sum``, and the least one that is above it.
double sum_not_below(double sum) { return __builtin_ceil(sum * 0x1p32) * 0x1p-32; }
double sum_above(double sum) { return (__builtin_floor(sum * 0x1p32) + 1.0) * 0x1p-32; }

// The least float32 that is not below it.
float float_not_below(double bound) {
  const float nearest = float(bound);
  return double(nearest) < bound ? float_of(bits_of(nearest) + 1) : nearest;
}

// Typical-p, top-p, XTC and mirostat, in this order, then the draw.
//
// Typical-p apart, what a limit leaves is a stretch of the tokens in the order of their weights: those at which the
// running sum is above ``begin`` and at most ``end``. So limits are found by their sums, whatever number of tokens there is.
template <typename Tokens>
Choice choose_from(Tokens& tokens, const SamplingRule& rule, const TokenRules& rules) {
  if (rules.typical_p < 1.0f) tokens.keep_typical(double(rules.typical_p));
  double begin = 0.0, end = tokens.total();
  if (rule.top_p < 1.0f) end = tokens.reach(sum_not_below(double(rule.top_p) * end)).sum;
  const auto end_of_those_from = [&](float least) {
    const double sum = tokens.sum_from(least);
    return sum < end ? sum : end;
  };
  if (rules.xtc_probability > 0.0f &&
      uniform_draw(rule.seed, rule.position, DrawPurpose::top_choices) < double(rules.xtc_probability)) {
    const double top = end_of_those_from(float_not_below(double(rules.xtc_threshold) * end));
    if (top > 0.0) begin = top - double(weight_of(tokens.reach(top).last));
  }
  const bool has_mirostat = rules.mirostat_tau > 0.0;
  if (has_mirostat) {
    const double unsurprising = end_of_those_from(least_weight(end - begin, rules.mirostat_mu));
    end = unsurprising > begin ? unsurprising : tokens.reach(sum_above(begin)).sum;
  }
  const double draw = begin + sum_above(uniform_draw(rule.seed, rule.position, DrawPurpose::token) * (end - begin));
  const Candidate chosen = tokens.reach(draw < end ? draw : end).last;
  Choice choice{id_of(chosen), rules.mirostat_mu};
  if (has_mirostat) {
    const double error = surprise(end - begin, weight_of(chosen)) - rules.mirostat_tau;
    choice.mirostat_mu = rules.mirostat_mu - rules.mirostat_eta * error;
  }
  return choice;
}

// Top-k comes before them. ``total`` is what all weights add up to.
Choice choose_candidate(const SamplingRule& rule, int vocabulary, double total, const SamplingScratch& scratch) {
  static constexpr TokenRules no_rules{};
  const TokenRules& rules = rule.rules != nullptr ? *rule.rules : no_rules;
  WeighedRow row(scratch.weights, vocabulary, total, scratch.candidates);
  if (rule.top_k <= 0) return choose_from(row, rule, rules);
  const Run run = keep_heaviest(scratch.candidates, row.collect_heaviest(rule.top_k), rule.top_k);
  ListedTokens listed(scratch.candidates, run, scratch.weights);
  return choose_from(listed, rule, rules);
}

bool has_candidates(const SamplingRule& rule) {
  const TokenRules* rules = rule.rules;
  return rule.top_k > 0 || rule.top_p < 1.0f ||
         (rules != nullptr && (rules->typical_p < 1.0f || rules->xtc_probability > 0.0f || rules->mirostat_tau > 0.0));
}

}  // namespace

Choice sample(const float* logits, int vocabulary, const SamplingRule& rule, const SamplingScratch& scratch) {
  const TokenRules* rules = rule.rules;
  const uint32_t* mask = rule.mask;
  const int prefix = mask != nullptr && rules == nullptr ? allowed_prefix(mask, vocabulary) : 0;
  if (prefix > 0) {
    if (!range_of(logits + prefix, vocabulary - prefix).is_finite) return {kNoNumbers, 0.0};
    vocabulary = prefix;
    mask = nullptr;
  }
  float* adjusted = scratch.weights;  // which the weights replace, in the same places
  const RowRange range =
      mask != nullptr ? copy_allowed(logits, vocabulary, mask, adjusted) : range_of(logits, vocabulary);
  if (!range.is_finite) return {kNoNumbers, 0.0};
  const Choice unchanged{0, rules != nullptr ? rules->mirostat_mu : 0.0};
  float largest = range.largest, temperature = rule.temperature;
  if (mask == nullptr && rules != nullptr) memcpy(adjusted, logits, sizeof(float) * size_t(vocabulary));
  if (mask != nullptr || rules != nullptr) logits = adjusted;
  if (rules != nullptr) {
    adjust_logits(adjusted, vocabulary, *rules, scratch.candidates, scratch.lengths);
    largest = range_of(adjusted, vocabulary).largest;
  }
  if (largest == -__builtin_inff()) return {kNothingLeft, 0.0};
  if (largest == __builtin_inff()) return {kNoNumbers, 0.0};
  if (rules != nullptr && temperature >= __FLT_MIN__) {
    if (rules->top_n_sigma > 0.0f) cut_below_sigma(adjusted, vocabulary, largest, rules->top_n_sigma);
    if (rules->dynatemp_range > 0.0f)
      temperature = dynamic_temperature(adjusted, vocabulary, largest, temperature, *rules);
  }
  // Greedy too when the temperature is no normal number: its inverse must be finite.
  if (temperature < __FLT_MIN__) return {first_equal(logits, vocabulary, largest), unchanged.mirostat_mu};
  const double total =
      weigh(logits, vocabulary, largest, 1.0f / temperature, rule.min_p, scratch.weights, scratch.block_sums);
  if (has_candidates(rule)) return choose_candidate(rule, vocabulary, total, scratch);
  const double threshold = uniform_draw(rule.seed, rule.position, DrawPurpose::token) * total;
  return {draw_by_id(scratch.weights, vocabulary, scratch.block_sums, threshold), unchanged.mirostat_mu};
}

}  // namespace ferrum::FERRUM_ISA
