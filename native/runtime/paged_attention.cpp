#include "paged_attention.h"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace ferrum {

AttentionState PagedAttention::state_in(float* memory, int count) const {
  return {memory, memory + count, memory + 2 * count};
}

void PagedAttention::reserve(const Memory& memory, int max_tokens, int context_length, int num_threads) {
  const KvLayer& layer = memory.kv_layers[size_t(shape_.kv_layer)];
  queries_per_row_ = shape_.num_heads / layer.num_heads;
  AttentionWorkspace& shared = *memory.attention;
  const AttentionTilesShape tiles_shape{layer.num_heads, queries_per_row_, shape_.window};
  for (const auto& tiles : shared.tiles)
    if (tiles->shape() == tiles_shape) tiles_ = tiles.get();
  cuts_tiles_ = tiles_ == nullptr;
  if (cuts_tiles_) {
    shared.tiles.push_back(std::make_shared<AttentionTiles>(tiles_shape, max_tokens, context_length, num_threads));
    tiles_ = shared.tiles.back().get();
  }
  const int queries = tiles_->rows_per_tile() * queries_per_row_;
  const size_t state_floats = size_t(queries) * (2 + layer.head_width);
  partial_floats_ = size_t(queries_per_row_) * (2 + layer.head_width);
  const size_t partial_bytes = tiles_->most_states() * partial_floats_ * sizeof(float);
  if (shared.partials.bytes() < partial_bytes) shared.partials = Arena(partial_bytes);
  shared.members.resize(size_t(num_threads));
  const auto grow = [](auto& values, size_t size) { values.resize(std::max(values.size(), size)); };
  for (Scratch& scratch : shared.members) {
    grow(scratch.q, size_t(queries) * layer.head_width);
    grow(scratch.scores, size_t(kMostTileQueries) * kPieceKeys);
    grow(scratch.piece, state_floats);
    grow(scratch.running, state_floats);
    grow(scratch.first_key, size_t(queries));
    grow(scratch.end_key, size_t(queries));
  }
}

int PagedAttention::prepare(const Memory&, const Step& step) {
  return cuts_tiles_ ? tiles_->cut(step) : tiles_->num_tasks();
}

void PagedAttention::load_queries(const Memory& memory, const Step& step, const Tile& tile, int copy,
                                  Scratch& scratch) const {
  const KvLayer& layer = memory.kv_layers[size_t(shape_.kv_layer)];
  const Buffer& q = memory.buffers[size_t(shape_.q)];
  const size_t span = size_t(queries_per_row_) * layer.head_width;
  int query = 0;
  for (int row = tile.first_row; row < tile.end_row; ++row) {
    memory.kernels->scale_row(q.row(row, copy) + size_t(tile.head) * span, shape_.scale, int(span),
                              scratch.q.data() + size_t(query) * layer.head_width);
    const int position = step.positions[row];
    for (int i = 0; i < queries_per_row_; ++i, ++query) {
      scratch.first_key[size_t(query)] = shape_.window > 0 ? std::max(0, position - shape_.window + 1) : 0;
      scratch.end_key[size_t(query)] = position + 1;
    }
  }
}

int PagedAttention::blocks_of(const Memory& memory, const Step& step, const Tile& tile, int piece,
                              const uint8_t** blocks) const {
  const KvLayer& layer = memory.kv_layers[size_t(shape_.kv_layer)];
  const int32_t* table = step.block_tables + size_t(step.row_sequences[tile.first_row]) * step.block_table_stride;
  const int first_block = piece * kPieceBlocks;
  const int count = std::min(kPieceBlocks, step.positions[tile.end_row - 1] / kBlockTokens + 1 - first_block);
  for (int b = 0; b < count; ++b) blocks[b] = memory.kv_head(layer, table[first_block + b], tile.head);
  return count;
}

bool PagedAttention::run_piece(const Memory& memory, const Step& step, const TaskPieces& pieces, int piece,
                               const TaskPieces& next, Scratch& scratch, const AttentionState& state) const {
  const KvLayer& layer = memory.kv_layers[size_t(shape_.kv_layer)];
  const Tile& tile = *pieces.tile;
  const uint8_t* blocks[2 * kPieceBlocks];
  const int count = blocks_of(memory, step, tile, piece, blocks);
  // What comes next is asked for meanwhile: the piece after this one, or the first of the task after this one.
  int num_ahead = 0;
  if (piece + 1 < pieces.end) num_ahead = blocks_of(memory, step, tile, piece + 1, blocks + kPieceBlocks);
  else if (next.tile != nullptr) num_ahead = blocks_of(memory, step, *next.tile, next.begin, blocks + kPieceBlocks);
  const int queries = tile.num_rows() * queries_per_row_;
  const AttentionQueries all{scratch.q.data(), scratch.first_key.data(), scratch.end_key.data(),
                             queries,          layer.head_width,         shape_.soft_cap};
  return memory.kernels->attention_piece(all, layer.type, blocks, count, num_ahead, piece * kPieceKeys,
                                         scratch.scores.data(), state);
}

void PagedAttention::finish(const Memory& memory, const Tile& tile, const AttentionState& running) const {
  const KvLayer& layer = memory.kv_layers[size_t(shape_.kv_layer)];
  const Buffer& out = memory.buffers[size_t(shape_.out)];
  int query = 0;
  for (int row = tile.first_row; row < tile.end_row; ++row) {
    float* target = out.row(row, 0) + size_t(tile.head) * queries_per_row_ * layer.head_width;
    for (int i = 0; i < queries_per_row_; ++i, ++query)
      for (int d = 0; d < layer.head_width; ++d)
        target[i * layer.head_width + d] = running.output[size_t(query) * layer.head_width + d] / running.sum[query];
  }
}

void PagedAttention::run(const Memory& memory, const Step& step, int task, int member) {
  const TaskPieces own = tiles_->pieces_of(task), next = tiles_->pieces_of(task + 1);
  const Tile& tile = *own.tile;
  const KvLayer& layer = memory.kv_layers[size_t(shape_.kv_layer)];
  Scratch& scratch = memory.attention->members[size_t(member)];
  const int queries = tile.num_rows() * queries_per_row_;
  const int pieces = tile.end_piece - tile.first_piece;
  load_queries(memory, step, tile, step.copy_of(member), scratch);

  const AttentionState running = state_in(scratch.running.data(), queries);
  const auto start_running = [&] {
    std::fill_n(running.maximum, queries, -INFINITY);
    std::fill_n(running.sum, queries, 0.0f);
    std::fill_n(running.output, size_t(queries) * layer.head_width, 0.0f);
  };

  if (tile.pieces_per_task == pieces) {
    start_running();
    const AttentionState state = state_in(scratch.piece.data(), queries);
    for (int piece = own.begin; piece < own.end; ++piece)
      if (run_piece(memory, step, own, piece, next, scratch, state))
        memory.kernels->attention_merge(state, queries, layer.head_width, running);
    finish(memory, tile, running);
    return;
  }

  float* partials = memory.attention->partials.as<float>() + tile.first_state * partial_floats_;
  const size_t piece_floats = partial_floats_ * size_t(tile.num_rows());
  for (int piece = own.begin; piece < own.end; ++piece) {
    float* place = partials + size_t(piece - tile.first_piece) * piece_floats;
    run_piece(memory, step, own, piece, next, scratch, state_in(place, queries));
  }
  if (!tiles_->finishes(tile)) return;
  start_running();
  for (int piece = 0; piece < pieces; ++piece) {
    const AttentionState state = state_in(partials + size_t(piece) * piece_floats, queries);
    memory.kernels->attention_merge(state, queries, layer.head_width, running);
  }
  finish(memory, tile, running);
}

}  // namespace ferrum
