#include "plan_interpreter.h"

#include <algorithm>
#include <chrono>

#include "choose_tokens.h"

namespace ferrum {

PlanInterpreter::PlanInterpreter(const KernelTable* kernels, int num_threads, const Limits& limits)
    : limits_(limits), team_(num_threads) {
  memory_.kernels = kernels;
  row_sequences_.resize(size_t(limits.max_tokens));
  operations_.push_back(std::make_unique<FillRopeTables>());
}

int PlanInterpreter::add_weights(const std::vector<WeightShape>& shapes) {
  const std::vector<WeightView> views = weights_.add(shapes);
  memory_.weights.insert(memory_.weights.end(), views.begin(), views.end());
  return int(memory_.weights.size() - views.size());
}

int PlanInterpreter::add_vector(const float* values, int count) {
  std::vector<float> padded(padded_width(count), 0.0f);
  std::copy_n(values, count, padded.begin());
  memory_.vectors.push_back(std::move(padded));
  return int(memory_.vectors.size()) - 1;
}

int PlanInterpreter::add_buffer(int width, RowSpace space, bool replicated) {
  const size_t stride = padded_width(width);
  const size_t rows = size_t(space == RowSpace::tokens ? limits_.max_tokens : limits_.max_outputs);
  // Copies lie over the shared rows: a step uses many of those or few rows of each copy, never both. Apart they would
  // cost a huge page for each member.
  const size_t copy_rows = replicated ? kReplicatedRows : 0;
  arenas_.emplace_back(std::max(rows, copy_rows * size_t(team_.size())) * stride * sizeof(float));
  memory_.buffers.push_back({width, stride, space, arenas_.back().as<float>(), copy_rows * stride});
  return int(memory_.buffers.size()) - 1;
}

int PlanInterpreter::add_quantized(int width, RowSpace space, bool replicated) {
  const size_t rows = size_t(space == RowSpace::tokens ? limits_.max_tokens : limits_.max_outputs);
  std::vector<QuantizedRows> copies;
  for (int member = 0; member < team_.size(); ++member)
    copies.push_back(member == 0 || replicated ? make_quantized(width, member == 0 ? rows : kReplicatedRows)
                                               : copies.front());
  memory_.quantized.push_back(std::move(copies));
  return int(memory_.quantized.size()) - 1;
}

QuantizedRows PlanInterpreter::make_quantized(int width, size_t rows) {
  const size_t groups = size_t(divide_up(width, kGroup));
  const size_t padded = groups * kGroup;
  // Codes, then a scale, a sum and a scaled sum per group, and two of the latter per group for types by 16.
  arenas_.emplace_back(rows * (padded + groups * 7 * 4));
  QuantizedRows out{};
  int8_t* codes = arenas_.back().as<int8_t>();
  float* floats = reinterpret_cast<float*>(codes + rows * padded);
  out.codes = out.codes_out = codes;
  out.scales = out.scales_out = floats;
  out.scaled_sums32 = out.scaled_sums32_out = floats + rows * groups;
  out.scaled_sums16 = out.scaled_sums16_out = floats + 2 * rows * groups;
  out.sums32 = out.sums32_out = reinterpret_cast<int32_t*>(floats + 4 * rows * groups);
  out.sums16 = out.sums16_out = reinterpret_cast<int32_t*>(floats + 5 * rows * groups);
  out.padded = int(padded);
  out.groups = int(groups);
  return out;
}

int PlanInterpreter::add_kv_layer(KvType type, int num_heads, int head_width) {
  const size_t head_bytes = kv_head_bytes(type, head_width);
  memory_.kv_layers.push_back({type, num_heads, head_width, head_bytes, memory_.kv_block_bytes});
  memory_.kv_block_bytes += head_bytes * size_t(num_heads);
  return int(memory_.kv_layers.size()) - 1;
}

int PlanInterpreter::add_rope_table(const double* inverse_frequencies, int count) {
  const size_t floats = size_t(limits_.max_tokens) * size_t(count);
  arenas_.emplace_back(2 * floats * sizeof(float));
  float* data = arenas_.back().as<float>();
  memory_.rope_tables.push_back({{inverse_frequencies, inverse_frequencies + count}, data, data + floats});
  return int(memory_.rope_tables.size()) - 1;
}

void PlanInterpreter::add_operation(std::unique_ptr<Operation> operation) {
  operations_.push_back(std::move(operation));
}

void PlanInterpreter::finish(int logits, int vocabulary) {
  logits_ = logits;
  memory_.kv = Arena(memory_.kv_block_bytes * size_t(limits_.num_blocks));
  operations_.push_back(std::make_unique<ChooseTokens>(logits, vocabulary));
  for (const auto& operation : operations_)
    operation->reserve(memory_, limits_.max_tokens, limits_.context_length, team_.size());
  for (size_t i = 0; i < operations_.size(); ++i) tasks_.emplace_back(team_.size());
}

size_t PlanInterpreter::scratch_bytes() const {
  size_t bytes = memory_.attention->partials.bytes();
  for (const Arena& arena : arenas_) bytes += arena.bytes();
  return bytes;
}

bool PlanInterpreter::run(Step step) {
  step.num_threads = std::max(1, team_.size() - step.num_lent_threads);
  step.row_sequences = row_sequences_.data();
  for (int sequence = 0; sequence < step.num_sequences; ++sequence)
    std::fill(row_sequences_.begin() + step.sequence_starts[sequence],
              row_sequences_.begin() + step.sequence_starts[sequence + 1], sequence);
  abort_.store(false, std::memory_order_relaxed);
  const bool timed = !operation_seconds_.empty();
  bool finished = true;
  team_.run(step.num_threads, [&](int member) {
    // The others wake up meanwhile.
    if (member == 0)
      for (size_t i = 0; i < operations_.size(); ++i)
        tasks_[i].set_count(operations_[i]->prepare(memory_, step), step.num_threads);
    team_.barrier(member, false);
    const bool ok = timed ? run_operations<true>(step, member) : run_operations<false>(step, member);
    if (member == 0) finished = ok;
  });
  return finished;
}

template <bool Timed>
bool PlanInterpreter::run_operations(const Step& step, int member) {
  using Clock = std::chrono::steady_clock;
  Clock::time_point last;
  if constexpr (Timed) last = Clock::now();
  const auto note_time = [&](size_t operation) {
    if (!Timed || member != 0) return;
    const Clock::time_point now = Clock::now();
    operation_seconds_[operation] += std::chrono::duration<double>(now - last).count();
    last = now;
  };
  for (size_t i = 0; i < operations_.size(); ++i) {
    TaskRanges& tasks = tasks_[i];
    if (tasks.num_tasks() == 0) continue;
    if (operations_[i]->is_replicated(step)) {
      for (int task = 0; task < tasks.num_tasks(); ++task) operations_[i]->run(memory_, step, task, member);
      note_time(i);
      continue;
    }
    tasks.claim_all(member, [&](int task) { operations_[i]->run(memory_, step, task, member); });
    if (operations_[i]->is_read_later()) {
      note_time(i);
      continue;
    }
    const bool stopped = team_.barrier(member, abort_.load(std::memory_order_acquire));
    note_time(i);
    if (stopped) return false;
  }
  return true;
}

}  // namespace ferrum
