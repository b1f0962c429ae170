// How a step's attention is cut into tasks: the same for all layers of one shape, so it is worked out once a step.
//
// A tile is a few rows of one sequence and one KV head with all its query heads. Where there are fewer tiles than the
// team could use, the pieces of a tile become tasks too, as far as the room for their states goes.
#pragma once

#include <atomic>
#include <memory>
#include <vector>

#include "step.h"

namespace ferrum {

struct AttentionTilesShape {
  int num_kv_heads;
  int queries_per_row;  // query heads of one KV head
  int window;           // visible keys, 0 = all

  bool operator==(const AttentionTilesShape&) const = default;
};

class AttentionTiles {
 public:
  struct Tile {
    int first_row;
    int end_row;
    int head;         // KV head
    int first_piece;  // of the earliest visible key
    int end_piece;
    int first_task;
    int num_tasks;
    int pieces_per_task;
    size_t first_state;  // of its pieces' states of one row, where it has several tasks

    int num_rows() const { return end_row - first_row; }
  };

  // Pieces [begin, end) of a tile that one task works on; no tile: there is no such task.
  struct TaskPieces {
    const Tile* tile;
    int begin;
    int end;
  };

  AttentionTiles(const AttentionTilesShape& shape, int max_tokens, int context_length, int num_threads);

  const AttentionTilesShape& shape() const { return shape_; }
  int rows_per_tile() const { return rows_per_tile_; }  // at most
  // Room for states of one row that ``cut`` ever asks for.
  size_t most_states() const { return most_states_; }

  // By one thread before the step; returns the number of tasks.
  int cut(const Step& step);
  int num_tasks() const { return int(tile_of_task_.size()); }
  TaskPieces pieces_of(int task) const;
  // Whether all tasks of the tile are done with this one. Ready for the next layer's when it has said so.
  bool finishes(const Tile& tile);

 private:
  void deal_tasks(int wanted);

  AttentionTilesShape shape_;
  int short_rows_per_tile_, rows_per_tile_;
  size_t most_states_;
  std::vector<Tile> tiles_;
  std::vector<int> tile_of_task_;
  std::unique_ptr<std::atomic<int>[]> tasks_left_;  // per tile
};

}  // namespace ferrum
