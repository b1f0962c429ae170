// Tokens drawn by temperature and truncation, and log-probabilities.
#include <vector>

#include "../runtime/step.h"
#include "vector_groups.h"

namespace ferrum::vectors {
namespace {

void small_row_vectors(const KernelTable& kernels) {
  constexpr int vocabulary = 700;
  std::vector<float> weights(vocabulary);
  std::vector<double> block_sums(1);
  std::vector<uint64_t> candidates(vocabulary);
  std::vector<int32_t> lengths(64);
  const SamplingScratch scratch{weights.data(), block_sums.data(), candidates.data(), lengths.data()};
  Generator generator(10);
  Digest digest;
  for (int trial = 0; trial < 4; ++trial) {
    std::vector<float> logits = generator.normals(vocabulary, 3.0f);
    if (trial == 3)
      for (float& logit : logits) logit = float(generator.below(4));  // many ties
    for (float temperature : {0.0f, 0.3f, 1.0f, 1.7f})
      for (int top_k : {0, 1, 17, 300})
        for (float top_p : {1.0f, 0.9f, 0.5f})
          for (float min_p : {0.0f, 0.02f}) {
            const SamplingRule rule{temperature, top_k,  top_p, min_p, generator.next(), generator.below(1 << 20),
                                    nullptr,     nullptr};
            digest.add(uint32_t(kernels.sample(logits.data(), vocabulary, rule, scratch).token));
          }
  }
  print("sample", digest);
}

// Rows so large and flat that the likeliest are found by their weights, not one by one.
void large_row_vectors(const KernelTable& kernels) {
  constexpr int vocabulary = 40000;
  std::vector<float> weights(vocabulary);
  std::vector<double> block_sums(size_t(divide_up(vocabulary, kSumBlock)));
  std::vector<uint64_t> candidates(vocabulary);
  const SamplingScratch scratch{weights.data(), block_sums.data(), candidates.data(), nullptr};
  Generator generator(12);
  Digest digest;
  for (float spread : {0.0f, 0.2f, 1.0f, 4.0f}) {
    const std::vector<float> logits = generator.normals(vocabulary, spread);
    for (int top_k : {0, 20000})
      for (float top_p : {1.0f, 0.999f, 0.9f, 0.1f}) {
        const SamplingRule rule{1.0f, top_k, top_p, 0.0f, generator.next(), generator.below(1 << 20), nullptr, nullptr};
        digest.add(uint32_t(kernels.sample(logits.data(), vocabulary, rule, scratch).token));
      }
  }
  print("sample large rows", digest);
}

void log_probability_vectors(const KernelTable& kernels) {
  Generator generator(11);
  Digest digest;
  for (int vocabulary : {1, 15, 700, 1025, 5000}) {
    const std::vector<float> logits = generator.normals(vocabulary, 4.0f);
    for (int num_top : {0, 1, 20}) {
      float value = 0.0f, top_values[20] = {};
      int32_t rank = 0, top_ids[20] = {};
      kernels.log_probabilities(logits.data(), vocabulary, generator.below(vocabulary), num_top,
                                {&value, &rank, top_ids, top_values});
      digest.add(value);
      digest.add(uint32_t(rank));
      for (int32_t id : top_ids) digest.add(uint32_t(id));
      for (float top : top_values) digest.add(top);
    }
  }
  print("log probabilities", digest);
}

}  // namespace

void sampling_vectors(const KernelTable& kernels) {
  small_row_vectors(kernels);
  large_row_vectors(kernels);
  log_probability_vectors(kernels);
}

}  // namespace ferrum::vectors
