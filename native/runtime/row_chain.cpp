#include "row_chain.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "weight_packing.h"

namespace ferrum {
namespace {

// A row of a chain takes about a microsecond; a claim costs a tenth of that.
constexpr int kRowsPerTask = 4;

void run_step(const Memory& memory, const Step& step, const RowStep& s, int row, int copy) {
  const KernelTable& kernels = *memory.kernels;
  const auto buffer_row = [&](int buffer) { return memory.buffers[size_t(buffer)].row(row, copy); };
  const auto width = [&](int buffer) { return int(memory.buffers[size_t(buffer)].stride); };
  switch (s.kind) {
    case RowStepKind::embed: {
      float* out = buffer_row(s.out);
      read_row(memory.weights[size_t(s.weight)], step.token_ids[row], out);
      if (s.factor != 1.0f) kernels.scale_row(out, s.factor, width(s.out), out);
      break;
    }
    case RowStepKind::rms_norm: {
      const Buffer& x = memory.buffers[size_t(s.a)];
      const int group = s.group_width > 0 ? s.group_width : x.width;
      kernels.rms_norm_row(x.row(row, copy), memory.vectors[size_t(s.weight)].data(), x.width, group, s.factor,
                           buffer_row(s.out));
      break;
    }
    case RowStepKind::add:
    case RowStepKind::multiply:
    case RowStepKind::silu:
    case RowStepKind::gelu_tanh: run_column_step(memory, s, row, copy, 0, width(s.out)); break;
    case RowStepKind::soft_cap: kernels.soft_cap_row(buffer_row(s.a), s.factor, width(s.out), buffer_row(s.out)); break;
    case RowStepKind::rope: {
      const RopeTable& table = memory.rope_tables[size_t(s.weight)];
      const int pairs = int(table.inverse_frequencies.size());
      kernels.rope_row(buffer_row(s.a), table.cosine + size_t(row) * pairs, table.sine + size_t(row) * pairs, pairs,
                       s.group_width, memory.buffers[size_t(s.a)].width / s.group_width, s.interleaved,
                       buffer_row(s.out));
      break;
    }
    case RowStepKind::store_kv: {
      const KvLayer& layer = memory.kv_layers[size_t(s.out)];
      const int block = step.block_of(row);
      const int slot = step.positions[row] % kBlockTokens;
      for (int head = 0; head < layer.num_heads; ++head)
        kernels.store_kv(buffer_row(s.a) + size_t(head) * layer.head_width,
                         buffer_row(s.b) + size_t(head) * layer.head_width, layer.head_width, slot, layer.type,
                         memory.kv_head(layer, block, head));
      break;
    }
    case RowStepKind::select:
      memcpy(buffer_row(s.out), memory.buffers[size_t(s.a)].row(step.output_rows[row], copy),
             sizeof(float) * size_t(width(s.out)));
      break;
    case RowStepKind::quantize: run_column_step(memory, s, row, copy, 0, memory.buffers[size_t(s.a)].width); break;
  }
}

}  // namespace

bool is_column_step(RowStepKind kind) {
  switch (kind) {
    case RowStepKind::add:
    case RowStepKind::multiply:
    case RowStepKind::silu:
    case RowStepKind::gelu_tanh:
    case RowStepKind::quantize: return true;
    default: return false;
  }
}

void run_column_step(const Memory& memory, const RowStep& s, int row, int copy, int column, int width) {
  const KernelTable& kernels = *memory.kernels;
  const auto slice = [&](int buffer) { return memory.buffers[size_t(buffer)].row(row, copy) + column; };
  switch (s.kind) {
    case RowStepKind::add: kernels.add_row(slice(s.a), slice(s.b), width, slice(s.out)); break;
    case RowStepKind::multiply: kernels.multiply_row(slice(s.a), slice(s.b), width, slice(s.out)); break;
    case RowStepKind::silu: kernels.silu_row(slice(s.a), width, slice(s.out)); break;
    case RowStepKind::gelu_tanh: kernels.gelu_tanh_row(slice(s.a), width, slice(s.out)); break;
    case RowStepKind::quantize:
      kernels.quantize_row(slice(s.a), width, memory.quantized[size_t(s.out)][size_t(copy)].from_group(column / kGroup),
                           row);
      break;
    default: break;  // not a column step: callers have asked
  }
}

int RowChain::prepare(const Memory&, const Step& step) {
  const int rows = step.rows(space_);
  return follows_group_ && rows <= kColumnStepRows ? 0 : divide_up(rows, kRowsPerTask);
}

void RowChain::run(const Memory& memory, const Step& step, int task, int member) {
  const int copy = step.copy_of(member);
  const int end = std::min(step.rows(space_), (task + 1) * kRowsPerTask);
  for (int row = task * kRowsPerTask; row < end; ++row)
    for (const RowStep& s : steps_) run_step(memory, step, s, row, copy);
}

int FillRopeTables::prepare(const Memory& memory, const Step& step) {
  return memory.rope_tables.empty() ? 0 : divide_up(step.num_tokens, kRowsPerTask);
}

void FillRopeTables::run(const Memory& memory, const Step& step, int task, int) {
  const int end = std::min(step.num_tokens, (task + 1) * kRowsPerTask);
  for (const RopeTable& table : memory.rope_tables) {
    const size_t pairs = table.inverse_frequencies.size();
    for (int row = task * kRowsPerTask; row < end; ++row)
      for (size_t i = 0; i < pairs; ++i) {
        const double angle = double(step.positions[row]) * table.inverse_frequencies[i];
        table.cosine[size_t(row) * pairs + i] = float(std::cos(angle));
        table.sine[size_t(row) * pairs + i] = float(std::sin(angle));
      }
  }
}

}  // namespace ferrum
