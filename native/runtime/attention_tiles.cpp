#include "attention_tiles.h"

#include <algorithm>
#include <numeric>

#include "../kernels/kernel_table.h"

namespace ferrum {
namespace {

constexpr int kQueriesPerTile = 32;
// Tasks per member that even out who gets how many: with fewer tiles, they are split by pieces.
constexpr int kTasksPerMember = 16;
// A chunk that fills fewer tiles than these is cut into the smallest that leave no pass of the kernel half empty:
// measured, its rows then cost what those of long chunks do, also beside decodes, instead of up to 2.5 times as much.
constexpr int kShortTiles = 6;

// The fewest rows whose queries fill whole passes of the kernel, if a tile has room for so many.
int rows_of_whole_passes(int queries_per_row) {
  const int rows = kMostTileQueries / std::gcd(kMostTileQueries, queries_per_row);
  return std::clamp(kQueriesPerTile / queries_per_row, 1, rows);
}

}  // namespace

AttentionTiles::AttentionTiles(const AttentionTilesShape& shape, int max_tokens, int context_length, int num_threads)
    : shape_(shape),
      short_rows_per_tile_(rows_of_whole_passes(shape.queries_per_row)),
      rows_per_tile_(std::max(1, kQueriesPerTile / shape.queries_per_row) / short_rows_per_tile_ *
                     short_rows_per_tile_) {
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
  deal_tasks(kTasksPerMember * step.num_threads);
  return num_tasks();
}

void AttentionTiles::deal_tasks(int wanted) {
  tile_of_task_.clear();
  const int num_tiles = int(tiles_.size());
  int rows_left = num_tiles < wanted ? wanted : 0;
  size_t states = 0;
  const auto deal = [&](size_t index) {
    Tile& tile = tiles_[index];
    const int pieces = tile.end_piece - tile.first_piece, rows = tile.num_rows();
    tile.pieces_per_task = pieces;
    if (pieces > 1 && rows <= rows_left) {
      tile.pieces_per_task = divide_up(pieces, std::min(pieces, divide_up(wanted * rows, num_tiles)));
      tile.num_tasks = divide_up(pieces, tile.pieces_per_task);
    }
    tile.first_task = int(tile_of_task_.size());
    tile.first_state = states;
    if (tile.num_tasks > 1) {
      states += size_t(pieces) * rows;
      rows_left -= rows;
    }
    tasks_left_[index].store(tile.num_tasks, std::memory_order_relaxed);
    tile_of_task_.insert(tile_of_task_.end(), size_t(tile.num_tasks), int(index));
  };
  // Tiles of one row last: they are short, so that members end together.
  for (size_t index = 0; index < tiles_.size(); ++index)
    if (tiles_[index].num_rows() > 1) deal(index);
  for (size_t index = 0; index < tiles_.size(); ++index)
    if (tiles_[index].num_rows() == 1) deal(index);
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
