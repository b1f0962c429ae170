#include "paged_attention.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>

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
  return std::max(1, std::min(rows, kQueriesPerTile / queries_per_row));
}

}  // namespace

AttentionState PagedAttention::state_in(float* memory, int count) const {
  return {memory, memory + count, memory + 2 * count};
}

void PagedAttention::reserve(const Memory& memory, int max_tokens, int context_length, int num_threads) {
  const KvLayer& layer = memory.kv_layers[size_t(shape_.kv_layer)];
  queries_per_row_ = shape_.num_heads / layer.num_heads;
  short_rows_per_tile_ = rows_of_whole_passes(queries_per_row_);
  rows_per_tile_ = std::max(1, kQueriesPerTile / queries_per_row_) / short_rows_per_tile_ * short_rows_per_tile_;
  const int queries = rows_per_tile_ * queries_per_row_;
  state_floats_ = size_t(queries) * (2 + layer.head_width);
  partial_floats_ = size_t(queries_per_row_) * (2 + layer.head_width);
  // Every sequence may end in a tile of its own.
  const size_t most_tiles = size_t(max_tokens) * layer.num_heads;
  tiles_.reserve(most_tiles);
  partial_of_tile_.reserve(most_tiles);
  const int pieces = divide_up(context_length, kPieceKeys) + 1;
  tile_of_task_.reserve(most_tiles + size_t(kTasksPerMember) * num_threads * pieces);
  tasks_left_ = std::make_unique<std::atomic<int>[]>(most_tiles);
  AttentionWorkspace& shared = *memory.attention;
  const size_t partial_bytes = size_t(kTasksPerMember) * num_threads * pieces * partial_floats_ * sizeof(float);
  if (shared.partials.bytes() < partial_bytes) shared.partials = Arena(partial_bytes);
  shared.members.resize(size_t(num_threads));
  const auto grow = [](auto& values, size_t size) { values.resize(std::max(values.size(), size)); };
  for (Scratch& scratch : shared.members) {
    grow(scratch.q, size_t(queries) * layer.head_width);
    grow(scratch.scores, size_t(kMostTileQueries) * kPieceKeys);
    grow(scratch.piece, state_floats_);
    grow(scratch.running, state_floats_);
    grow(scratch.first_key, size_t(queries));
    grow(scratch.end_key, size_t(queries));
  }
}

int PagedAttention::prepare(const Memory& memory, const Step& step) {
  const KvLayer& layer = memory.kv_layers[size_t(shape_.kv_layer)];
  tiles_.clear();
  for (int sequence = 0; sequence < step.num_sequences; ++sequence) {
    const int end = step.sequence_starts[sequence + 1];
    // With few tiles some members wait for others, so the rows of a short chunk are cut smaller.
    const bool is_short = end - step.sequence_starts[sequence] < kShortTiles * rows_per_tile_;
    const int tile_rows = is_short ? short_rows_per_tile_ : rows_per_tile_;
    for (int row = step.sequence_starts[sequence]; row < end; row += tile_rows) {
      const int end_row = std::min(end, row + tile_rows);
      const int first_key = shape_.window > 0 ? std::max(0, step.positions[row] - shape_.window + 1) : 0;
      for (int head = 0; head < layer.num_heads; ++head)
        tiles_.push_back(
            {row, end_row, head, first_key / kPieceKeys, step.positions[end_row - 1] / kPieceKeys + 1, 0, 0});
    }
  }
  return deal_tasks(step.num_threads);
}

int PagedAttention::deal_tasks(int num_threads) {
  const int num_tiles = int(tiles_.size()), wanted = kTasksPerMember * num_threads;
  tile_of_task_.clear();
  partial_of_tile_.assign(size_t(num_tiles), 0);
  int rows_left = num_tiles < wanted ? wanted : 0;
  size_t partials = 0;
  const auto deal = [&](int index) {
    Tile& tile = tiles_[size_t(index)];
    const int pieces = tile.end_piece - tile.first_piece, rows = tile.end_row - tile.first_row;
    int tasks = 1;
    tile.pieces_per_task = pieces;
    if (pieces > 1 && rows <= rows_left) {
      tile.pieces_per_task = divide_up(pieces, std::min(pieces, divide_up(wanted * rows, num_tiles)));
      tasks = divide_up(pieces, tile.pieces_per_task);
    }
    tile.first_task = int(tile_of_task_.size());
    if (tasks > 1) {
      partial_of_tile_[size_t(index)] = partials;
      partials += size_t(pieces) * rows;
      rows_left -= rows;
    }
    tasks_left_[index].store(tasks, std::memory_order_relaxed);
    tile_of_task_.insert(tile_of_task_.end(), size_t(tasks), index);
  };
  // Tiles of one row last: they are short, so that members end together.
  const auto is_long = [&](int index) { return tiles_[size_t(index)].end_row - tiles_[size_t(index)].first_row > 1; };
  for (int index = 0; index < num_tiles; ++index)
    if (is_long(index)) deal(index);
  for (int index = 0; index < num_tiles; ++index)
    if (!is_long(index)) deal(index);
  return int(tile_of_task_.size());
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

PagedAttention::TaskPieces PagedAttention::pieces_of(int task) const {
  if (task >= int(tile_of_task_.size())) return {nullptr, 0, 0};
  const Tile& tile = tiles_[size_t(tile_of_task_[size_t(task)])];
  const int begin = tile.first_piece + (task - tile.first_task) * tile.pieces_per_task;
  return {&tile, begin, std::min(tile.end_piece, begin + tile.pieces_per_task)};
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
  const int queries = (tile.end_row - tile.first_row) * queries_per_row_;
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
  const TaskPieces own = pieces_of(task), next = pieces_of(task + 1);
  const Tile& tile = *own.tile;
  const KvLayer& layer = memory.kv_layers[size_t(shape_.kv_layer)];
  Scratch& scratch = memory.attention->members[size_t(member)];
  const int queries = (tile.end_row - tile.first_row) * queries_per_row_;
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

  const size_t index = size_t(own.tile - tiles_.data());
  float* partials = memory.attention->partials.as<float>() + partial_of_tile_[index] * partial_floats_;
  const size_t piece_floats = partial_floats_ * size_t(tile.end_row - tile.first_row);
  for (int piece = own.begin; piece < own.end; ++piece) {
    float* place = partials + size_t(piece - tile.first_piece) * piece_floats;
    run_piece(memory, step, own, piece, next, scratch, state_in(place, queries));
  }
  if (tasks_left_[index].fetch_sub(1, std::memory_order_acq_rel) != 1) return;
  start_running();
  for (int piece = 0; piece < pieces; ++piece) {
    const AttentionState state = state_in(partials + size_t(piece) * piece_floats, queries);
    memory.kernels->attention_merge(state, queries, layer.head_width, running);
  }
  finish(memory, tile, running);
}

}  // namespace ferrum
