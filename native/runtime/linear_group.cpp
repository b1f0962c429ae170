#include "linear_group.h"

#include <algorithm>

namespace ferrum {
namespace {

int tiles_of(const Memory& memory, const LinearSegment& segment) {
  return divide_up(memory.weights[size_t(segment.weight)].rows, kTileColumns);
}

// Quantised activations of this many rows stay in the second-level cache while tiles stream past them.
constexpr int kMostRowsPerTask = 132;
// A whole number of the kernels' blocks of 6 (AVX-512) or 4 rows.
constexpr int kRowBlock = 12;
// Claims per member and operation: enough that a descheduled member does not hold the others up.
constexpr int kTasksPerMember = 32;
constexpr int kMostTilesPerTask = 32;

}  // namespace

int LinearGroup::prepare(const Memory& memory, const Step& step) {
  const int rows = step.rows(space_);
  if (rows == 0) return 0;
  int tiles = 0;
  for (const LinearSegment& segment : segments_) tiles += tiles_of(memory, segment);
  Cut cut;
  cut.row_tasks = divide_up(rows, kMostRowsPerTask);
  cut.rows_per_task = divide_up(divide_up(rows, cut.row_tasks), kRowBlock) * kRowBlock;
  cut.row_tasks = divide_up(rows, cut.rows_per_task);
  cut.tiles_per_task = std::clamp(tiles * cut.row_tasks / (step.num_threads * kTasksPerMember), 1, kMostTilesPerTask);
  // Kernels of several rows work on pairs of tiles.
  if (rows > 1) cut.tiles_per_task = divide_up(cut.tiles_per_task, 2) * 2;
  if (!(cut_ == cut)) cut_ = cut;  // written only when it changes: every member reads it
  int tasks = 0;
  for (const LinearSegment& segment : segments_) tasks += divide_up(tiles_of(memory, segment), cut_.tiles_per_task);
  return tasks * cut_.row_tasks;
}

void LinearGroup::run(const Memory& memory, const Step& step, int task, int member) {
  const int copy = step.copy_of(member);
  const int row_begin = task % cut_.row_tasks * cut_.rows_per_task;
  const int row_end = std::min(step.rows(space_), row_begin + cut_.rows_per_task);
  int chunk = task / cut_.row_tasks;
  for (const LinearSegment& segment : segments_) {
    const int tiles = tiles_of(memory, segment);
    const int chunks = divide_up(tiles, cut_.tiles_per_task);
    if (chunk >= chunks) {
      chunk -= chunks;
      continue;
    }
    const WeightView& weight = memory.weights[size_t(segment.weight)];
    const Buffer& out = memory.buffers[size_t(segment.out)];
    const float* bias = segment.bias >= 0 ? memory.vectors[size_t(segment.bias)].data() : nullptr;
    const int begin = chunk * cut_.tiles_per_task;
    const int end = std::min(tiles, begin + cut_.tiles_per_task);
    if (quantized_) {
      memory.kernels->linear_quantized(weight, begin, end, memory.quantized[size_t(input_)][size_t(copy)], row_begin,
                                       row_end, out.row(0, 0), out.stride, bias);
    } else {
      const Buffer& input = memory.buffers[size_t(input_)];
      memory.kernels->linear_float(weight, begin, end, input.row(0, copy), input.stride, row_begin, row_end,
                                   out.row(0, 0), out.stride, bias);
    }
    return;
  }
}

}  // namespace ferrum
