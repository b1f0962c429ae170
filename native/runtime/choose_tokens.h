// The end of a step: a token from each output row's logits, and when asked for, log-probabilities and the digest of its
// bits.
#pragma once

#include "step.h"

namespace ferrum {

class ChooseTokens final : public Operation {
 public:
  ChooseTokens(int logits, int vocabulary) : logits_(logits), vocabulary_(vocabulary) {}
  void reserve(const Memory& memory, int max_tokens, int context_length, int num_threads) override;
  int prepare(const Memory& memory, const Step& step) override;
  void run(const Memory& memory, const Step& step, int task, int member) override;

 private:
  int32_t choose(const Memory& memory, const Step& step, int task, int member, const float* logits);

  int logits_;
  int vocabulary_;
  struct PerMember {
    std::vector<float> weights;
    std::vector<double> block_sums;
    std::vector<uint64_t> candidates;
    std::vector<int32_t> lengths;
  };
  std::vector<PerMember> members_;
};

}  // namespace ferrum
