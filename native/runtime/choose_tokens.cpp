#include "choose_tokens.h"

#include <cstring>

namespace ferrum {
namespace {

uint64_t digest_of(const float* logits, int count) {
  uint64_t hash = 0xcbf29ce484222325u;
  for (int i = 0; i < count; ++i) {
    uint32_t bits;
    memcpy(&bits, logits + i, 4);
    hash = (hash ^ bits) * 0x100000001b3u;
    hash ^= hash >> 29;
  }
  return hash;
}

// False for a row whose logits are not all finite numbers.
bool note_log_probabilities(const KernelTable& kernels, const float* logits, int vocabulary,
                            const LogProbabilityColumns& columns, int row, int32_t token) {
  const int32_t num_entries = columns.num_entries[row];
  if (num_entries == 0) return true;
  const size_t top = size_t(row) * size_t(columns.top_stride);
  return kernels.log_probabilities(
      logits, vocabulary, token, num_entries - 1,
      {columns.values + row, columns.ranks + row, columns.top_ids + top, columns.top_values + top});
}

}  // namespace

void ChooseTokens::reserve(const Memory&, int, int context_length, int num_threads) {
  members_.resize(size_t(num_threads));
  for (PerMember& member : members_) {
    member.weights.resize(size_t(vocabulary_));
    member.block_sums.resize(size_t(divide_up(vocabulary_, kSumBlock)));
    member.candidates.resize(size_t(vocabulary_));
    member.lengths.resize(size_t(context_length));
  }
}

int ChooseTokens::prepare(const Memory&, const Step& step) {
  return step.sampling != nullptr || step.digests != nullptr ? step.num_outputs : 0;
}

void ChooseTokens::run(const Memory& memory, const Step& step, int task, int member) {
  const float* logits = memory.buffers[size_t(logits_)].row(task, step.copy_of(member));
  if (step.digests != nullptr) step.digests[task] = digest_of(logits, vocabulary_);
  if (step.sampling == nullptr) return;
  const LogProbabilityColumns* wanted = step.log_probabilities;
  int32_t& token = step.sampled_tokens[task];
  token = wanted != nullptr ? wanted->known_tokens[task] : -1;
  if (token < 0) token = choose(memory, step, task, member, logits);
  if (token >= 0 && wanted != nullptr &&
      !note_log_probabilities(*memory.kernels, logits, vocabulary_, *wanted, task, token))
    token = -1;
}

int32_t ChooseTokens::choose(const Memory& memory, const Step& step, int task, int member, const float* logits) {
  PerMember& own = members_[size_t(member)];
  const SamplingScratch scratch{own.weights.data(), own.block_sums.data(), own.candidates.data(), own.lengths.data()};
  const Choice choice = memory.kernels->sample(logits, vocabulary_, step.sampling->row(task), scratch);
  if (step.sampling->mirostat_mu != nullptr) step.sampling->mirostat_mu[task] = choice.mirostat_mu;
  return choice.token;
}

}  // namespace ferrum
