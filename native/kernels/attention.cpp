// Attention over one piece (128 positions) of paged K and V, for a tile of queries that share a KV head,
// and the merging of pieces. The arithmetic of a query never depends on which other queries are in its tile.
#include "kernel_table.h"
#include "vector.h"

namespace ferrum::FERRUM_ISA {
namespace {

#if defined(FERRUM_ISA_AVX512)
inline constexpr int kMostQueries = 8;
#else
inline constexpr int kMostQueries = 6;
#endif

// How a block of one head is stored (kernel_table.h): the type of a value, and the tokens' scales if it has any.
struct HalfBlock {
  using Value = uint16_t;
  static constexpr KvType kType = KvType::f16;
  FERRUM_INLINE Vector load(const Value* p) { return v_from_half(p); }
};
struct Int8Block {
  using Value = int8_t;
  static constexpr KvType kType = KvType::int8;
  FERRUM_INLINE Vector load(const Value* p) { return v_from_int(i_from_s8(p)); }
};

// Few queries leave registers free for more keys or values at once, and a sum waits for its own last step.
template <int Queries>
inline constexpr int kVectors = 2 * (Queries <= kMostQueries / 2 ? 2 : 1);

// score[query][t] = sum over d of q[d] * K[d][t], times the scale of key t where keys have scales, for the 32 keys of
// each of ``Blocks`` neighbouring blocks.
template <typename Block, int Queries, int Blocks>
void block_scores(const float* q, int head_width, const uint8_t* const* blocks, bool asks_ahead, float* scores) {
  const typename Block::Value* keys[Blocks];
  for (int b = 0; b < Blocks; ++b) keys[b] = reinterpret_cast<const typename Block::Value*>(blocks[b]);
  constexpr int vectors = kVectors<Queries> / Blocks < kGroup / kWidth ? kVectors<Queries> / Blocks : kGroup / kWidth;
  for (int t = 0; t < kGroup; t += vectors * kWidth) {
    Vector acc[Queries][Blocks][vectors];
#pragma GCC unroll 16
    for (int i = 0; i < Queries; ++i)
#pragma GCC unroll 2
      for (int b = 0; b < Blocks; ++b)
#pragma GCC unroll 4
        for (int v = 0; v < vectors; ++v) acc[i][b][v] = v_zero();
    for (int d = 0; d < head_width; ++d) {
      Vector key[Blocks][vectors];
#pragma GCC unroll 2
      for (int b = 0; b < Blocks; ++b) {
        // The block's values are read next; their lines are as many as its keys have rows.
        if (asks_ahead) __builtin_prefetch(keys[b] + size_t(head_width + d) * kGroup);
#pragma GCC unroll 4
        for (int v = 0; v < vectors; ++v) key[b][v] = Block::load(keys[b] + size_t(d) * kGroup + t + v * kWidth);
      }
#pragma GCC unroll 16
      for (int i = 0; i < Queries; ++i) {
        const Vector value = v_set(q[size_t(i) * head_width + d]);
#pragma GCC unroll 2
        for (int b = 0; b < Blocks; ++b)
#pragma GCC unroll 4
          for (int v = 0; v < vectors; ++v) acc[i][b][v] = v_fma(value, key[b][v], acc[i][b][v]);
      }
    }
#pragma GCC unroll 16
    for (int i = 0; i < Queries; ++i)
#pragma GCC unroll 2
      for (int b = 0; b < Blocks; ++b)
#pragma GCC unroll 4
        for (int v = 0; v < vectors; ++v) {
          const int at = t + v * kWidth;
          if constexpr (Block::kType == KvType::int8)
            acc[i][b][v] = v_mul(acc[i][b][v], v_load(kv_key_scales(blocks[b], head_width) + at));
          v_store(scores + i * kPieceKeys + b * kGroup + at, acc[i][b][v]);
        }
  }
}

// Asks for one of the lines of the following piece's keys: as many as a whole piece has steps of values.
template <typename Block>
FERRUM_INLINE void ask_for_line(const uint8_t* const* blocks, int num_blocks, int head_width, int line) {
  const int block = line / head_width;
  if (block < num_blocks)
    __builtin_prefetch(blocks[block] + size_t(line % head_width) * kGroup * sizeof(typename Block::Value));
}

// output[query][d] += sum over keys [begin, end) of the piece, in order, of p[t] * V[t][d], for ``Vectors`` vectors of
// values from ``d`` on. Returns the next line to ask for.
template <typename Block, int Queries, int Vectors>
FERRUM_INLINE int add_values(const float* p, int head_width, const uint8_t* const* blocks, int num_ahead, int line,
                             int begin, int end, int d, float* output) {
  Vector acc[Queries][Vectors];
#pragma GCC unroll 16
  for (int i = 0; i < Queries; ++i)
#pragma GCC unroll 4
    for (int v = 0; v < Vectors; ++v) acc[i][v] = v_load(output + size_t(i) * head_width + d + v * kWidth);
  for (int t = begin; t < end;) {
    const auto* values =
        reinterpret_cast<const typename Block::Value*>(blocks[t / kGroup]) + size_t(head_width) * kGroup + d;
    const int block_end = (t / kGroup + 1) * kGroup < end ? (t / kGroup + 1) * kGroup : end;
    for (; t < block_end; ++t) {
      const typename Block::Value* row = values + size_t(t % kGroup) * head_width;
      // A pass over wide vectors is one of few: each asks for as many lines as narrow passes would.
      if (num_ahead > 0)
        for (int v = 0; v < Vectors; v += 2) ask_for_line<Block>(blocks + kPieceBlocks, num_ahead, head_width, line++);
      Vector value[Vectors];
#pragma GCC unroll 4
      for (int v = 0; v < Vectors; ++v) value[v] = Block::load(row + v * kWidth);
#pragma GCC unroll 16
      for (int i = 0; i < Queries; ++i) {
        const Vector weight = v_set(p[i * kPieceKeys + t]);
#pragma GCC unroll 4
        for (int v = 0; v < Vectors; ++v) acc[i][v] = v_fma(weight, value[v], acc[i][v]);
      }
    }
  }
#pragma GCC unroll 16
  for (int i = 0; i < Queries; ++i)
#pragma GCC unroll 4
    for (int v = 0; v < Vectors; ++v) v_store(output + size_t(i) * head_width + d + v * kWidth, acc[i][v]);
  return line;
}

template <typename Block, int Queries>
void piece_values(const float* p, int head_width, const uint8_t* const* blocks, int num_ahead, int begin, int end,
                  float* output) {
  constexpr int vectors = kVectors<Queries>;
  int line = 0, d = 0;
  for (; d + vectors * kWidth <= head_width; d += vectors * kWidth)
    line = add_values<Block, Queries, vectors>(p, head_width, blocks, num_ahead, line, begin, end, d, output);
  for (; d < head_width; d += kWidth)
    line = add_values<Block, Queries, 1>(p, head_width, blocks, num_ahead, line, begin, end, d, output);
}

#if defined(FERRUM_ISA_AVX512)
#define FERRUM_BY_COUNT(call, count)                 \
  switch (count) {                                   \
    case 1: call<Block, 1> FERRUM_ARGUMENTS; break;  \
    case 2: call<Block, 2> FERRUM_ARGUMENTS; break;  \
    case 3: call<Block, 3> FERRUM_ARGUMENTS; break;  \
    case 4: call<Block, 4> FERRUM_ARGUMENTS; break;  \
    case 5: call<Block, 5> FERRUM_ARGUMENTS; break;  \
    case 6: call<Block, 6> FERRUM_ARGUMENTS; break;  \
    case 7: call<Block, 7> FERRUM_ARGUMENTS; break;  \
    default: call<Block, 8> FERRUM_ARGUMENTS; break; \
  }
#else
#define FERRUM_BY_COUNT(call, count)                 \
  switch (count) {                                   \
    case 1: call<Block, 1> FERRUM_ARGUMENTS; break;  \
    case 2: call<Block, 2> FERRUM_ARGUMENTS; break;  \
    case 3: call<Block, 3> FERRUM_ARGUMENTS; break;  \
    case 4: call<Block, 4> FERRUM_ARGUMENTS; break;  \
    case 5: call<Block, 5> FERRUM_ARGUMENTS; break;  \
    default: call<Block, 6> FERRUM_ARGUMENTS; break; \
  }
#endif

template <typename Block, int Queries>
void piece_scores(const float* q, int head_width, const uint8_t* const* blocks, int first_block, int end_block,
                  bool asks_ahead, float* scores) {
  int b = first_block;
  if constexpr (kVectors<Queries> * kWidth >= 2 * kGroup)
    for (; b + 1 < end_block; b += 2)
      block_scores<Block, Queries, 2>(q, head_width, blocks + b, asks_ahead, scores + b * kGroup);
  for (; b < end_block; ++b)
    block_scores<Block, Queries, 1>(q, head_width, blocks + b, asks_ahead, scores + b * kGroup);
}

template <typename Block>
void scores_of(int count, const float* q, int head_width, const uint8_t* const* blocks, int first_block, int end_block,
               bool asks_ahead, float* scores) {
#define FERRUM_ARGUMENTS (q, head_width, blocks, first_block, end_block, asks_ahead, scores)
  FERRUM_BY_COUNT(piece_scores, count);
#undef FERRUM_ARGUMENTS
}

template <typename Block>
void values_of(int count, const float* p, int head_width, const uint8_t* const* blocks, int num_ahead, int begin,
               int end, float* output) {
  if (begin >= end) return;
#define FERRUM_ARGUMENTS (p, head_width, blocks, num_ahead, begin, end, output)
  FERRUM_BY_COUNT(piece_values, count);
#undef FERRUM_ARGUMENTS
}

// Keys a query sees within a piece, counted from the piece's first.
struct KeyRange {
  int begin;
  int end;
};

void cap_scores(float* scores, int keys, float soft_cap) {
  for (int t = 0; t < keys; t += kWidth) {
    const Vector z = v_div(v_load(scores + t), v_set(soft_cap));
    const Vector quotient = v_div(v_set(2.0f), v_add(v_exp(v_add(z, z)), v_set(1.0f)));
    v_store(scores + t, v_mul(v_set(soft_cap), v_sub(v_set(1.0f), quotient)));
  }
}

// Turns the scores of ``keys`` keys into weights, +0 outside the range; sets their maximum and sum.
FERRUM_INLINE void softmax(float* scores, int keys, KeyRange range, float* maximum, float* sum) {
  for (int t = 0; t < range.begin; ++t) scores[t] = -__builtin_inff();
  for (int t = range.end; t < keys; ++t) scores[t] = -__builtin_inff();
  Lanes largest = l_load(scores);
  for (int t = kLanes; t < keys; t += kLanes) largest = l_max(largest, l_load(scores + t));
  *maximum = l_fold_max(largest);
  const Lanes shift = l_set(-*maximum);
  Lanes total = l_set(0.0f);
  for (int t = 0; t < keys; t += kLanes) {
    const Lanes p = l_exp_of_not_positive(l_add(l_load(scores + t), shift));
    l_store(scores + t, p);
    total = l_add(total, p);
  }
  *sum = l_fold_add(total);
}

template <typename Block>
bool piece_of(const AttentionQueries& queries, const uint8_t* const* blocks, int num_blocks, int num_ahead,
              int first_position, float* scores, const AttentionState& state) {
  const int width = queries.head_width;
  const int keys = num_blocks * kGroup;
  bool any = false;
  for (int start = 0; start < queries.count; start += kMostQueries) {
    const int count = queries.count - start < kMostQueries ? queries.count - start : kMostQueries;
    // The first queries wait for memory; those after them find each block in the cache.
    const bool asks_ahead = start == 0;
    KeyRange range[kMostQueries];
    KeyRange seen{keys, 0};      // by some query of the register tile
    KeyRange together{0, keys};  // by every query that sees any
    for (int i = 0; i < count; ++i) {
      const int first = queries.first_key[start + i] - first_position;
      const int end = queries.end_key[start + i] - first_position;
      range[i] = {first > 0 ? first : 0, end < keys ? end : keys};
      state.maximum[start + i] = -__builtin_inff();
      state.sum[start + i] = 0.0f;
      if (range[i].begin >= range[i].end) {
        together = {0, 0};
        continue;
      }
      seen = {range[i].begin < seen.begin ? range[i].begin : seen.begin,
              range[i].end > seen.end ? range[i].end : seen.end};
      together = {range[i].begin > together.begin ? range[i].begin : together.begin,
                  range[i].end < together.end ? range[i].end : together.end};
    }
    float* output = state.output + size_t(start) * width;
    memset(output, 0, sizeof(float) * size_t(count) * width);
    if (seen.begin >= seen.end) continue;
    any = true;
    if (together.end < together.begin) together.end = together.begin;

    const int first_block = seen.begin / kGroup, end_block = (seen.end + kGroup - 1) / kGroup;
    scores_of<Block>(count, queries.q + size_t(start) * width, width, blocks, first_block, end_block, asks_ahead,
                     scores);
    const int scored = end_block * kGroup;
    for (int i = 0; i < count; ++i) {
      if (range[i].begin >= range[i].end) continue;
      float* row = scores + i * kPieceKeys;
      if (queries.soft_cap > 0.0f) cap_scores(row, scored, queries.soft_cap);
      softmax(row, scored, range[i], state.maximum + start + i, state.sum + start + i);
      if constexpr (Block::kType == KvType::int8) {
        for (int b = first_block; b < end_block; ++b)
          for (int t = 0; t < kGroup; t += kWidth) {
            float* p = row + b * kGroup + t;
            v_store(p, v_mul(v_load(p), v_load(kv_value_scales(blocks[b], width) + t)));
          }
      }
      // Keys before those that all see; a key that a query does not see is not even multiplied by 0.
      if (together.begin < together.end)
        values_of<Block>(1, row, width, blocks, 0, range[i].begin, together.begin, output + size_t(i) * width);
      else values_of<Block>(1, row, width, blocks, 0, range[i].begin, range[i].end, output + size_t(i) * width);
    }
    if (together.begin >= together.end) continue;
    values_of<Block>(count, scores, width, blocks, asks_ahead ? num_ahead : 0, together.begin, together.end, output);
    for (int i = 0; i < count; ++i)
      values_of<Block>(1, scores + i * kPieceKeys, width, blocks, 0, together.end, range[i].end,
                       output + size_t(i) * width);
  }
  return any;
}

}  // namespace

bool attention_piece(const AttentionQueries& queries, KvType type, const uint8_t* const* blocks, int num_blocks,
                     int num_ahead, int first_position, float* scores, const AttentionState& state) {
  if (type == KvType::int8)
    return piece_of<Int8Block>(queries, blocks, num_blocks, num_ahead, first_position, scores, state);
  return piece_of<HalfBlock>(queries, blocks, num_blocks, num_ahead, first_position, scores, state);
}

void attention_merge(const AttentionState& piece, int count, int head_width, const AttentionState& running) {
  constexpr int kBatch = kLanes / 2;  // queries whose two exponents fill the lanes
  for (int start = 0; start < count; start += kBatch) {
    const int end = start + kBatch < count ? start + kBatch : count;
    float factors[kLanes] = {};
    for (int i = start; i < end; ++i) {
      const float next = running.maximum[i] > piece.maximum[i] ? running.maximum[i] : piece.maximum[i];
      factors[i - start] = running.maximum[i] - next;
      factors[kBatch + i - start] = piece.maximum[i] - next;
    }
    l_store(factors, l_exp_of_not_positive(l_load(factors)));
    for (int i = start; i < end; ++i) {
      if (piece.maximum[i] == -__builtin_inff()) continue;  // no visible key for this query
      const float kept = factors[i - start], added = factors[kBatch + i - start];
      running.sum[i] = __builtin_fmaf(running.sum[i], kept, piece.sum[i] * added);
      if (piece.maximum[i] > running.maximum[i]) running.maximum[i] = piece.maximum[i];
      const Vector a = v_set(kept), b = v_set(added);
      float* output = running.output + size_t(i) * head_width;
      const float* add = piece.output + size_t(i) * head_width;
      for (int d = 0; d < head_width; d += kWidth)
        v_store(output + d, v_fma(v_load(output + d), a, v_mul(v_load(add + d), b)));
    }
  }
}

}  // namespace ferrum::FERRUM_ISA
