#include "attention_tiles.h"

#include <algorithm>

#include "../kernels/kernel_table.h"

namespace ferrum {
namespace {

constexpr int kQueriesPerTile = 32;
// Tasks per member that even out who gets how many: with fewer tiles, those of one row are split by pieces.
constexpr int kTasksPerMember = 16;
// A chunk that fills fewer tiles than these is cut into such as one pass of the kernel takes: measured, its rows then
// cost what those of long chunks do, also beside decodes, instead of up to 2.5 times as much.
constexpr int kShortTiles = 6;

}  // namespace

AttentionTiles::AttentionTiles(const AttentionTilesShape& shape, int max_tokens, int context_length, int num_threads)
    : shape_(shape),
      rows_per_tile_(std::max(1, kQueriesPerTile / shape.queries_per_row)),
      short_rows_per_tile_(std::max(1, kMostTileQueries / shape.queries_per_row)) {
  // Every sequence may end in a tile of its own.
  const size_t most_tiles = size_t(max_tokens) * size_t(shape.num_kv_heads);
  const size_t most_pieces = size_t(divide_up(context_length, kPieceKeys)) + 1;
  most_states_ = size_t(kTasksPerMember) * size_t(num_threads) * most_pieces;
  tiles_.reserve(most_tiles);
  tile_of_task_.reserve(most_tiles + most_states_);
  tasks_left_ = std::make_unique<std::atomic<int>[]>(most_tiles);
}

int AttentionTiles::cut(const Step& step) {
  tiles_.clear();
  for (int sequence = 0; sequence < step.num_sequences; ++sequence) {
    const int end = step.sequence_starts[sequence + 1];
    // With few tiles some members wait for others, so the rows of a short chunk are cut smaller.
    const bool is_short = end - step.sequence_starts[sequence] < kShortTiles * rows_per_tile_;
    const int tile_rows = is_short ? short_rows_per_tile_ : rows_per_tile_;
    for (int row = step.sequence_starts[sequence]; row < end; row += tile_rows) {
      const int end_row = std::min(end, row + tile_rows);
      const int first_key = shape_.window > 0 ? std::max(0, step.positions[row] - shape_.window + 1) : 0;
      const int end_piece = step.positions[end_row - 1] / kPieceKeys + 1;
      for (int head = 0; head < shape_.num_kv_heads; ++head)
        tiles_.push_back({row, end_row, head, first_key / kPieceKeys, end_piece, 0, 1, 0, 0});
    }
  }
  const int wanted_tasks = kTasksPerMember * step.num_threads;
  const bool split = int(tiles_.size()) < wanted_tasks;
  tile_of_task_.clear();
  size_t states = 0;
  for (size_t i = 0; i < tiles_.size(); ++i) {
    Tile& tile = tiles_[i];
    const int pieces = tile.end_piece - tile.first_piece;
    tile.pieces_per_task = pieces;
    if (split && pieces > 1 && tile.end_row - tile.first_row == 1) {
      tile.pieces_per_task = divide_up(pieces, std::min(pieces, divide_up(wanted_tasks, int(tiles_.size()))));
      tile.num_tasks = divide_up(pieces, tile.pieces_per_task);
    }
    tile.first_task = int(tile_of_task_.size());
    tile.first_state = states;
    if (tile.num_tasks > 1) states += size_t(pieces);
    tasks_left_[i].store(tile.num_tasks, std::memory_order_relaxed);
    tile_of_task_.insert(tile_of_task_.end(), size_t(tile.num_tasks), int(i));
  }
  return num_tasks();
}

AttentionTiles::TaskPieces AttentionTiles::pieces_of(int task) const {
  if (task >= num_tasks()) return {nullptr, 0, 0};
  const Tile& tile = tiles_[size_t(tile_of_task_[size_t(task)])];
  const int begin = tile.first_piece + (task - tile.first_task) * tile.pieces_per_task;
  return {&tile, begin, std::min(tile.end_piece, begin + tile.pieces_per_task)};
}

bool AttentionTiles::finishes(const Tile& tile) {
  std::atomic<int>& left = tasks_left_[size_t(&tile - tiles_.data())];
  if (left.fetch_sub(1, std::memory_order_acq_rel) != 1) return false;
  left.store(tile.num_tasks, std::memory_order_relaxed);
  return true;
}

}  // namespace ferrum
