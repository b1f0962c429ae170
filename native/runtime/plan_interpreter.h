// Runs an executable plan: one call per step, operations in order, tasks claimed by the thread team.
#pragma once

#include <atomic>
#include <memory>
#include <vector>

#include "linear_group.h"
#include "paged_attention.h"
#include "row_chain.h"
#include "step.h"
#include "task_ranges.h"
#include "thread_team.h"
#include "weight_store.h"

namespace ferrum {

struct Limits {
  int max_tokens;   // rows of one step
  int max_outputs;  // output rows of one step
  int num_blocks;   // of the KV arena
  int context_length;
};

class PlanInterpreter {
 public:
  PlanInterpreter(const KernelTable* kernels, int num_threads, const Limits& limits);

  // Building. Ids count from 0 in order of adding.
  void reserve_weights(size_t bytes) { weights_.reserve(bytes); }
  // Weights whose tiles lie by turns, see WeightStore; returns the first one's id.
  int add_weights(const std::vector<WeightShape>& shapes);
  void pack_weights(const std::vector<WeightRows>& parts) { weights_.pack(parts, team_); }
  int add_vector(const float* values, int count);
  // Replicated: every member has a copy for steps of few rows.
  int add_buffer(int width, RowSpace space, bool replicated);
  int add_quantized(int width, RowSpace space, bool replicated);
  int add_kv_layer(KvType type, int num_heads, int head_width);
  int add_rope_table(const double* inverse_frequencies, int count);
  void add_operation(std::unique_ptr<Operation> operation);
  // No more building after this. ``logits`` is the buffer of the final logits.
  void finish(int logits, int vocabulary);

  // False when ``abort`` stopped it. Fills step.row_sequences itself.
  bool run(Step step);
  void abort() { abort_.store(true, std::memory_order_release); }

  // From now on every step adds to each operation's wall time, waiting for the other members included; from zero.
  void start_timing() { operation_seconds_.assign(operations_.size(), 0.0); }
  void stop_timing() { operation_seconds_.clear(); }
  // In running order, the rope tables first and the choice of tokens last; empty unless timing.
  const std::vector<double>& operation_seconds() const { return operation_seconds_; }

  const float* logits_row(int output) const { return memory_.buffers[size_t(logits_)].row(output, 0); }
  const Memory& memory() const { return memory_; }
  const Limits& limits() const { return limits_; }
  int num_threads() const { return team_.size(); }
  std::vector<int> thread_places() const { return team_.places(); }
  size_t weight_bytes() const { return weights_.bytes(); }
  size_t kv_bytes() const { return memory_.kv.bytes(); }
  // Of buffers, tables and attention; complete when the plan is finished.
  size_t scratch_bytes() const;

 private:
  QuantizedRows make_quantized(int width, size_t rows);
  // One member's part of a step; false when it was stopped. Timing is a template: off, it costs nothing.
  template <bool Timed>
  bool run_operations(const Step& step, int member);

  Limits limits_;
  ThreadTeam team_;
  Memory memory_;
  std::vector<std::unique_ptr<Operation>> operations_;
  std::vector<TaskRanges> tasks_;  // per operation
  WeightStore weights_;
  std::vector<Arena> arenas_;
  std::vector<int32_t> row_sequences_;
  std::vector<double> operation_seconds_;  // written by member 0
  std::atomic<bool> abort_{false};
  int logits_ = -1;
};

}  // namespace ferrum
