// Attention of a step's rows over their paged caches, in pieces of fixed positions; see docs/numerics.md.
//
// attention_tiles.h says how the work is cut. Whoever finishes a tile's last piece merges its pieces, always in order, so
// who computed what never shows in the result.
#pragma once

#include "attention_tiles.h"
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
  using Tile = AttentionTiles::Tile;
  using TaskPieces = AttentionTiles::TaskPieces;
  using Scratch = AttentionWorkspace::PerMember;

  int blocks_of(const Memory& memory, const Step& step, const Tile& tile, int piece, const uint8_t** blocks) const;
  AttentionState state_in(float* memory, int count) const;
  void load_queries(const Memory& memory, const Step& step, const Tile& tile, int copy, Scratch& scratch) const;
  bool run_piece(const Memory& memory, const Step& step, const TaskPieces& pieces, int piece, const TaskPieces& next,
                 Scratch& scratch, const AttentionState& state) const;
  void finish(const Memory& memory, const Tile& tile, const AttentionState& running) const;

  AttentionShape shape_;
  int queries_per_row_ = 1;          // query heads of one KV head
  size_t partial_floats_ = 0;        // of a one-row tile's state
  AttentionTiles* tiles_ = nullptr;  // of all layers of this shape, in the workspace
  bool cuts_tiles_ = false;          // the first of them does it for all
};

}  // namespace ferrum
