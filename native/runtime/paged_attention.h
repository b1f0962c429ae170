// Attention of a step's rows over their paged caches, in pieces of fixed positions; see docs/numerics.md.
//
// Work is cut into tiles: a few rows of one sequence and one KV head with all its query heads. Where there are fewer
// tiles than the team could use, the pieces of a tile become tasks too, as far as the room for their states goes;
// whoever finishes a tile's last piece merges its pieces, always in order, so who computed what never shows in the
// result.
#pragma once

#include <atomic>
#include <memory>

#include "step.h"

namespace ferrum {

struct AttentionShape {
  int q;    // buffer
  int out;  // buffer
  int kv_layer;
  int num_heads;
  float scale;
  int window;      // visible keys, 0 = all
  float soft_cap;  // 0 = none
};

class PagedAttention final : public Operation {
 public:
  explicit PagedAttention(const AttentionShape& shape) : shape_(shape) {}
  void reserve(const Memory& memory, int max_tokens, int context_length, int num_threads) override;
  int prepare(const Memory& memory, const Step& step) override;
  void run(const Memory& memory, const Step& step, int task, int member) override;

 private:
  struct Tile {
    int first_row;
    int end_row;
    int head;         // KV head
    int first_piece;  // of the earliest visible key
    int end_piece;
    int first_task;
    int pieces_per_task;
  };
  using Scratch = AttentionWorkspace::PerMember;

  // Pieces [begin, end) of a tile that one task works on.
  struct TaskPieces {
    const Tile* tile;
    int begin;
    int end;
  };

  int deal_tasks(int num_threads);
  TaskPieces pieces_of(int task) const;
  int blocks_of(const Memory& memory, const Step& step, const Tile& tile, int piece, const uint8_t** blocks) const;
  AttentionState state_in(float* memory, int count) const;
  void load_queries(const Memory& memory, const Step& step, const Tile& tile, int copy, Scratch& scratch) const;
  bool run_piece(const Memory& memory, const Step& step, const TaskPieces& pieces, int piece, const TaskPieces& next,
                 Scratch& scratch, const AttentionState& state) const;
  void finish(const Memory& memory, const Tile& tile, const AttentionState& running) const;

  AttentionShape shape_;
  int queries_per_row_ = 1;  // query heads of one KV head
  int rows_per_tile_ = 1, short_rows_per_tile_ = 1;
  size_t partial_floats_ = 0;  // of a one-row tile's state
  size_t state_floats_ = 0;    // of one tile's largest state
  std::vector<Tile> tiles_;
  std::vector<int> tile_of_task_;
  std::unique_ptr<std::atomic<int>[]> tasks_left_;  // per tile
  std::vector<size_t> partial_of_tile_;             // index of the tile's first state
};

}  // namespace ferrum
