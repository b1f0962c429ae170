// Attention over one piece (a fixed range of positions) of paged K and V, for a tile of queries that share a KV head,
// and the merging of pieces. The arithmetic of a query never depends on which other queries are in its tile.
#include "kernel_table.h"
#include "vector.h"

namespace ferrum::FERRUM_ISA {
namespace {

#if defined(FERRUM_ISA_AVX512)
inline constexpr int kMostQueries = 8;
#else
inline constexpr int kMostQueries = 4;
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
  FERRUM_INLINE Vector load(const Value* p) { return v_from_s8(p); }
};

// score[query][t] = sum over d of q[d] * K[d][t], times the scale of key t where keys have scales, for 32 keys.
template <typename Block, int Queries>
void block_scores(const float* q, int head_width, const uint8_t* block, float* scores) {
  const auto* keys = reinterpret_cast<const typename Block::Value*>(block);
  [[maybe_unused]] const float* scales = kv_key_scales(block, head_width);
  constexpr int vectors = kWidth == 16 ? 2 : (32 / kWidth < 2 ? 1 : 2);
  for (int t = 0; t < kGroup; t += vectors * kWidth) {
    Vector acc[Queries][vectors];
#pragma GCC unroll 16
    for (int i = 0; i < Queries; ++i)
#pragma GCC unroll 2
      for (int v = 0; v < vectors; ++v) acc[i][v] = v_zero();
    for (int d = 0; d < head_width; ++d) {
      Vector key[vectors];
#pragma GCC unroll 2
      for (int v = 0; v < vectors; ++v) key[v] = Block::load(keys + size_t(d) * kGroup + t + v * kWidth);
#pragma GCC unroll 16
      for (int i = 0; i < Queries; ++i) {
        const Vector value = v_set(q[size_t(i) * head_width + d]);
#pragma GCC unroll 2
        for (int v = 0; v < vectors; ++v) acc[i][v] = v_fma(value, key[v], acc[i][v]);
      }
    }
#pragma GCC unroll 16
    for (int i = 0; i < Queries; ++i)
#pragma GCC unroll 2
      for (int v = 0; v < vectors; ++v) {
        if constexpr (Block::kType == KvType::int8) acc[i][v] = v_mul(acc[i][v], v_load(scales + t + v * kWidth));
        v_store(scores + i * kGroup + t + v * kWidth, acc[i][v]);
      }
  }
}

// output[query][d] = output * alpha + sum over t in [begin, end) of p[t] * V[t][d]; p holds the values' scales already.
template <typename Block, int Queries>
void block_values(const float* p, const float* alpha, int head_width, const uint8_t* block, int begin, int end,
                  float* output) {
  const auto* values = reinterpret_cast<const typename Block::Value*>(block) + size_t(head_width) * kGroup;
  constexpr int vectors = 2;
  for (int d = 0; d < head_width; d += vectors * kWidth) {
    const int used = d + vectors * kWidth <= head_width ? vectors : 1;
    Vector acc[Queries][vectors];
#pragma GCC unroll 16
    for (int i = 0; i < Queries; ++i)
#pragma GCC unroll 2
      for (int v = 0; v < vectors; ++v)
        acc[i][v] =
            v < used ? v_mul(v_load(output + size_t(i) * head_width + d + v * kWidth), v_set(alpha[i])) : v_zero();
    for (int t = begin; t < end; ++t) {
      const typename Block::Value* row = values + size_t(t) * head_width + d;
      Vector value[vectors];
      value[0] = Block::load(row);
      value[1] = used == 2 ? Block::load(row + kWidth) : v_zero();
#pragma GCC unroll 16
      for (int i = 0; i < Queries; ++i) {
        const Vector weight = v_set(p[i * kGroup + t]);
#pragma GCC unroll 2
        for (int v = 0; v < vectors; ++v) acc[i][v] = v_fma(weight, value[v], acc[i][v]);
      }
    }
#pragma GCC unroll 16
    for (int i = 0; i < Queries; ++i)
#pragma GCC unroll 2
      for (int v = 0; v < vectors; ++v)
        if (v < used) v_store(output + size_t(i) * head_width + d + v * kWidth, acc[i][v]);
  }
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
    default: call<Block, 4> FERRUM_ARGUMENTS; break; \
  }
#endif

template <typename Block>
void scores_of(int count, const float* q, int head_width, const uint8_t* block, float* scores) {
#define FERRUM_ARGUMENTS (q, head_width, block, scores)
  FERRUM_BY_COUNT(block_scores, count);
#undef FERRUM_ARGUMENTS
}

// Takes the weights ``p`` as softmax_step leaves them; where values have scales, folds those into p.
template <typename Block>
void values_of(int count, float* p, const float* alpha, int head_width, const uint8_t* block, int begin, int end,
               float* output) {
  if constexpr (Block::kType == KvType::int8) {
    const float* scales = kv_value_scales(block, head_width);
    for (int i = 0; i < count; ++i)
      for (int t = 0; t < kGroup; t += kWidth)
        v_store(p + i * kGroup + t, v_mul(v_load(p + i * kGroup + t), v_load(scales + t)));
  }
#define FERRUM_ARGUMENTS (p, alpha, head_width, block, begin, end, output)
  FERRUM_BY_COUNT(block_values, count);
#undef FERRUM_ARGUMENTS
}

// Turns 32 scores into weights p (+0 outside [begin, end)) and advances the running maximum and sum; returns alpha.
FERRUM_INLINE float softmax_step(float* scores, int begin, int end, float soft_cap, float* maximum, float* sum) {
  if (soft_cap > 0.0f) {
    for (int t = 0; t < kGroup; t += kWidth) {
      const Vector z = v_div(v_load(scores + t), v_set(soft_cap));
      const Vector quotient = v_div(v_set(2.0f), v_add(v_exp(v_add(z, z)), v_set(1.0f)));
      v_store(scores + t, v_mul(v_set(soft_cap), v_sub(v_set(1.0f), quotient)));
    }
  }
  if (begin != 0 || end != kGroup)
    for (int t = 0; t < kGroup; ++t)
      if (t < begin || t >= end) scores[t] = -__builtin_inff();
  const Lanes low = l_load(scores);
  const Lanes high = l_load(scores + kLanes);
  const float block_maximum = l_fold_max(l_max(low, high));
  const float next = *maximum > block_maximum ? *maximum : block_maximum;
  float step[kLanes];
  l_store(step, l_exp(l_set(*maximum - next)));
  const float alpha = step[0];
  Lanes shift = l_set(-next);
  const Lanes p_low = l_exp(l_add(low, shift));
  const Lanes p_high = l_exp(l_add(high, shift));
  l_store(scores, p_low);
  l_store(scores + kLanes, p_high);
  *sum = __builtin_fmaf(*sum, alpha, l_fold_add(l_add(p_low, p_high)));
  *maximum = next;
  return alpha;
}

template <typename Block>
bool piece_of(const AttentionQueries& queries, const uint8_t* const* blocks, int num_blocks, int first_position,
              float* scores, const AttentionState& state) {
  const int width = queries.head_width;
  const int end_position = first_position + num_blocks * kGroup;
  bool any = false;
  for (int i = 0; i < queries.count; ++i) {
    state.maximum[i] = -__builtin_inff();
    state.sum[i] = 0.0f;
    any = any || (queries.first_key[i] < end_position && queries.end_key[i] > first_position);
  }
  if (!any) return false;
  memset(state.output, 0, sizeof(float) * size_t(queries.count) * width);
  float alpha[kMostQueries];
  for (int b = 0; b < num_blocks; ++b) {
    const int position = first_position + b * kGroup;
    for (int start = 0; start < queries.count; start += kMostQueries) {
      const int count = queries.count - start < kMostQueries ? queries.count - start : kMostQueries;
      bool all = true, some = false;
      for (int i = start; i < start + count; ++i) {
        all = all && queries.first_key[i] <= position && queries.end_key[i] >= position + kGroup;
        some = some || (queries.first_key[i] < position + kGroup && queries.end_key[i] > position);
      }
      if (!some) continue;
      scores_of<Block>(count, queries.q + size_t(start) * width, width, blocks[b], scores);
      if (all) {
        for (int i = 0; i < count; ++i)
          alpha[i] = softmax_step(scores + i * kGroup, 0, kGroup, queries.soft_cap, state.maximum + start + i,
                                  state.sum + start + i);
        values_of<Block>(count, scores, alpha, width, blocks[b], 0, kGroup, state.output + size_t(start) * width);
        continue;
      }
      for (int i = 0; i < count; ++i) {
        const int query = start + i;
        const int begin = queries.first_key[query] > position ? queries.first_key[query] - position : 0;
        const int end = queries.end_key[query] - position < kGroup ? queries.end_key[query] - position : kGroup;
        if (begin >= end) continue;
        alpha[0] =
            softmax_step(scores + i * kGroup, begin, end, queries.soft_cap, state.maximum + query, state.sum + query);
        values_of<Block>(1, scores + i * kGroup, alpha, width, blocks[b], begin, end,
                         state.output + size_t(query) * width);
      }
    }
  }
  return true;
}

}  // namespace

bool attention_piece(const AttentionQueries& queries, KvType type, const uint8_t* const* blocks, int num_blocks,
                     int first_position, float* scores, const AttentionState& state) {
  if (type == KvType::int8) return piece_of<Int8Block>(queries, blocks, num_blocks, first_position, scores, state);
  return piece_of<HalfBlock>(queries, blocks, num_blocks, first_position, scores, state);
}

void attention_merge(const AttentionState& piece, int count, int head_width, const AttentionState& running) {
  for (int i = 0; i < count; ++i) {
    if (piece.maximum[i] == -__builtin_inff()) continue;  // no visible key for this query
    const float next = running.maximum[i] > piece.maximum[i] ? running.maximum[i] : piece.maximum[i];
    float exponent[kLanes] = {running.maximum[i] - next, piece.maximum[i] - next};
    l_store(exponent, l_exp(l_load(exponent)));
    const Vector a = v_set(exponent[0]);
    const Vector b = v_set(exponent[1]);
    running.sum[i] = __builtin_fmaf(running.sum[i], exponent[0], piece.sum[i] * exponent[1]);
    running.maximum[i] = next;
    float* output = running.output + size_t(i) * head_width;
    const float* add = piece.output + size_t(i) * head_width;
    for (int d = 0; d < head_width; d += kWidth)
      v_store(output + d, v_fma(v_load(output + d), a, v_mul(v_load(add + d), b)));
  }
}

}  // namespace ferrum::FERRUM_ISA
