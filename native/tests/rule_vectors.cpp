// Tokens drawn under rules: penalties, DRY, biases, masks, typical-p, XTC, mirostat.
#include <vector>

#include "../runtime/step.h"
#include "vector_groups.h"

namespace ferrum::vectors {
namespace {

TokenRules some_rules(Generator& generator, int trial) {
  TokenRules rules;
  const auto is_on = [&](int which) { return trial % 16 == which || trial % 5 == 0; };
  if (is_on(0)) rules.repetition_penalty = 1.3f;
  if (is_on(1)) rules.presence_penalty = 0.7f;
  if (is_on(2)) rules.frequency_penalty = -0.2f;
  if (is_on(3)) rules.dry_multiplier = 0.8f;
  rules.dry_base = 1.75f;
  rules.dry_limit = generator.below(40);
  if (is_on(4)) rules.top_n_sigma = 1.0f;
  if (is_on(5)) rules.dynatemp_range = 0.5f;
  rules.dynatemp_exponent = 0.7f;
  if (is_on(6)) rules.typical_p = 0.6f;
  if (is_on(7)) rules.xtc_probability = 0.5f;
  rules.xtc_threshold = 0.02f;
  if (is_on(8)) rules.mirostat_tau = 3.0;
  rules.mirostat_eta = 0.1;
  rules.mirostat_mu = 5.5;
  return rules;
}

}  // namespace

void rule_vectors(const KernelTable& kernels) {
  constexpr int vocabulary = 700;
  constexpr int num_tokens = 200;
  std::vector<float> weights(vocabulary);
  std::vector<double> block_sums(1);
  std::vector<uint64_t> candidates(vocabulary);
  std::vector<int32_t> lengths(num_tokens);
  const SamplingScratch scratch{weights.data(), block_sums.data(), candidates.data(), lengths.data()};
  Generator generator(13);
  Digest digest;
  for (int trial = 0; trial < 120; ++trial) {
    const std::vector<float> logits = generator.normals(vocabulary, 2.0f);
    std::vector<int32_t> tokens(num_tokens), ids{3, 17, 698}, counts{2, 0, 1};
    for (int32_t& token : tokens) token = generator.below(4);  // repeats itself
    const std::vector<float> biases = generator.normals(3, 5.0f);
    std::vector<uint32_t> mask(size_t(divide_up(vocabulary, 32)), ~0u);
    for (uint32_t& word : mask) word = trial % 3 == 0 ? uint32_t(generator.next()) : word;
    TokenRules rules = some_rules(generator, trial);
    rules.biased_ids = rules.counted_ids = ids.data();
    rules.biases = biases.data();
    rules.window_counts = rules.output_counts = counts.data();
    rules.num_biased = rules.num_counted = 3;
    rules.dry_tokens = tokens.data();
    rules.num_dry_tokens = num_tokens;
    const SamplingRule rule{trial % 7 == 0 ? 0.0f : 0.9f,
                            trial % 4 == 0 ? 40 : 0,
                            trial % 3 == 1 ? 0.9f : 1.0f,
                            0.0f,
                            generator.next(),
                            trial,
                            mask.data(),
                            &rules};
    const Choice choice = kernels.sample(logits.data(), vocabulary, rule, scratch);
    digest.add(uint32_t(choice.token));
    digest.add(float(choice.mirostat_mu));
  }
  print("sample by rules", digest);
}

}  // namespace ferrum::vectors
