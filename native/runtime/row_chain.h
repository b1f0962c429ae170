// RowChain: neighbouring row-wise operations done one row at a time, so that a row stays in the nearest cache.
#pragma once

#include "step.h"

namespace ferrum {

enum class RowStepKind {
  embed,
  rms_norm,
  add,
  multiply,
  silu,
  gelu_tanh,
  soft_cap,
  rope,
  store_kv,
  select,
  quantize,
};

struct RowStep {
  RowStepKind kind;
  int out = -1;         // buffer; quantize: quantised rows; store_kv: KV layer
  int a = -1;           // buffer
  int b = -1;           // buffer
  int weight = -1;      // embed: weight; rms_norm: vector; rope: table
  int group_width = 0;  // rms_norm: values normed together; rope: head width
  float factor = 0.0f;  // embed: scale; rms_norm: epsilon; soft_cap: cap
  bool interleaved = false;
};

// Whether each value depends on the same column, or group of 32, of the inputs alone.
bool is_column_step(RowStepKind kind);
// Such a step on ``width`` columns of a row from ``column`` on, a multiple of 32.
void run_column_step(const Memory& memory, const RowStep& step, int row, int copy, int column, int width);

// Steps of up to so many rows have what only needs a group's columns done by columns, with the linears: see LinearGroup.
// Measured: a prompt of 512 rows is 5 % slower so, 16 rows 4 to 7 % faster.
inline constexpr int kColumnStepRows = 32;

class RowChain final : public Operation {
 public:
  // ``replicable``: writes replicated memory only. ``follows_group``: the linears before it do the same by columns in
  // steps of up to kColumnStepRows rows, which this chain leaves to them.
  RowChain(RowSpace space, bool replicable, std::vector<RowStep> steps, bool follows_group)
      : space_(space), replicable_(replicable), steps_(std::move(steps)), follows_group_(follows_group) {}
  int prepare(const Memory& memory, const Step& step) override;
  void run(const Memory& memory, const Step& step, int task, int member) override;
  bool is_replicated(const Step& step) const override { return replicable_ && step.is_replicated(); }

 private:
  RowSpace space_;
  bool replicable_;
  std::vector<RowStep> steps_;
  bool follows_group_;
};

// Fills the rope tables for this step's positions; once a step, before anything reads them.
class FillRopeTables final : public Operation {
 public:
  int prepare(const Memory& memory, const Step& step) override;
  void run(const Memory& memory, const Step& step, int task, int member) override;
  // Queries and keys are products: the linears that make them lie between.
  bool is_read_later() const override { return true; }
};

}  // namespace ferrum
