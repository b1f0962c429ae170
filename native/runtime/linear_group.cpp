#include "linear_group.h"

#include <algorithm>

namespace ferrum {
namespace {

int tiles_of(const Memory& memory, const LinearSegment& segment) {
  return divide_up(memory.weights[size_t(segment.weight)].rows, kTileColumns);
}

const uint8_t* tile_at(const Memory& memory, const LinearSegment& segment, int tile) {
  return memory.weights[size_t(segment.weight)].tile(tile);
}

// Quantised activations of this many rows stay in the second-level cache while tiles stream past them.
constexpr int kMostRowsPerTask = 132;
// A whole number of the kernels' blocks of 6 (AVX-512) or 4 rows.
constexpr int kRowBlock = 12;
// Claims per member and operation: enough that a descheduled member does not hold the others up.
constexpr int kTasksPerMember = 32;
constexpr int kMostTilesPerTask = 32;
constexpr int kPairedTiles = kGroup / kTileColumns;
// Steps on columns wait for one another; several groups side by side do not.
constexpr int kLeastTilesThen = 8;

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
  cut.does_then = !then_.empty() && rows <= kColumnStepRows;
  if (cut.does_then)
    cut.tiles_per_task = std::max(kLeastTilesThen, divide_up(cut.tiles_per_task, int(segments_.size())));
  // Kernels of several rows work on pairs of tiles, and so do groups that are quantised together.
  if (rows > 1 || cut.does_then) cut.tiles_per_task = divide_up(cut.tiles_per_task, kPairedTiles) * kPairedTiles;
  if (!(cut_ == cut)) cut_ = cut;  // written only when it changes: every member reads it
  int tasks = 0;
  for (const LinearSegment& segment : segments_) tasks += divide_up(tiles_of(memory, segment), cut_.tiles_per_task);
  return (cut_.does_then ? tasks / int(segments_.size()) : tasks) * cut_.row_tasks;
}

void LinearGroup::run(const Memory& memory, const Step& step, int task, int member) {
  const int copy = step.copy_of(member);
  const int first_row = task % cut_.row_tasks * cut_.rows_per_task;
  const Rows rows{first_row, std::min(step.rows(space_), first_row + cut_.rows_per_task)};
  int chunk = task / cut_.row_tasks;
  if (cut_.does_then) {
    const int begin = chunk * cut_.tiles_per_task;
    const int end = std::min(tiles_of(memory, segments_.front()), begin + cut_.tiles_per_task);
    // By turns, as they lie in memory: what is read goes on in one direction.
    for (int tile = begin; tile < end; tile += kPairedTiles)
      for (size_t i = 0; i < segments_.size(); ++i) {
        const bool is_last = i + 1 == segments_.size();
        const uint8_t* next = tile_at(memory, segments_[is_last ? 0 : i + 1], is_last ? tile + kPairedTiles : tile);
        run_tiles(memory, segments_[i], tile, tile + kPairedTiles, next, rows, copy);
      }
    run_then(memory, begin * kTileColumns, end * kTileColumns, rows);
    return;
  }
  for (const LinearSegment& segment : segments_) {
    const int tiles = tiles_of(memory, segment);
    const int chunks = divide_up(tiles, cut_.tiles_per_task);
    if (chunk < chunks) {
      const int begin = chunk * cut_.tiles_per_task, end = std::min(tiles, begin + cut_.tiles_per_task);
      run_tiles(memory, segment, begin, end, tile_at(memory, segment, end), rows, copy);
      return;
    }
    chunk -= chunks;
  }
}

void LinearGroup::run_tiles(const Memory& memory, const LinearSegment& segment, int tile_begin, int tile_end,
                            const uint8_t* next, const Rows& rows, int copy) const {
  const WeightView& weight = memory.weights[size_t(segment.weight)];
  const Buffer& out = memory.buffers[size_t(segment.out)];
  const float* bias = segment.bias >= 0 ? memory.vectors[size_t(segment.bias)].data() : nullptr;
  if (quantized_) {
    memory.kernels->linear_quantized(weight, tile_begin, tile_end, next, memory.quantized[size_t(input_)][size_t(copy)],
                                     rows.begin, rows.end, out.row(0, 0), out.stride, bias);
  } else {
    const Buffer& input = memory.buffers[size_t(input_)];
    memory.kernels->linear_float(weight, tile_begin, tile_end, input.row(0, copy), input.stride, rows.begin, rows.end,
                                 out.row(0, 0), out.stride, bias);
  }
}

void LinearGroup::run_then(const Memory& memory, int column_begin, int column_end, const Rows& rows) const {
  for (int row = rows.begin; row < rows.end; ++row)
    for (const RowStep& s : then_) run_column_step(memory, s, row, 0, column_begin, column_end - column_begin);
}

}  // namespace ferrum
