// The kernels of one instruction set as a table of function pointers: what the plan interpreter calls.
#pragma once

#include "formats.h"

namespace ferrum {

// How K and V are kept. A block of one head is 32 tokens: K transposed, [head_width, 32], so that scores need no
// horizontal sums; then V, [32, head_width]; int8 codes are followed by the scales of the 32 keys and of the 32 values.
enum class KvType { f16, int8 };

static constexpr size_t kv_head_bytes(KvType type, int head_width) {
  const size_t values = size_t(2) * kGroup * head_width;
  return type == KvType::f16 ? values * sizeof(uint16_t) : values + 2 * kGroup * sizeof(float);
}

// Of an int8 block.
static inline const float* kv_key_scales(const uint8_t* block, int head_width) {
  return reinterpret_cast<const float*>(block + size_t(2) * kGroup * head_width);
}
static inline const float* kv_value_scales(const uint8_t* block, int head_width) {
  return kv_key_scales(block, head_width) + kGroup;
}

// Positions of an attention piece, counted from 0: part of the numerics.
inline constexpr int kPieceKeys = 128;
inline constexpr int kPieceBlocks = kPieceKeys / kGroup;
// Most queries whose scores any kernel set computes at once.
inline constexpr int kMostTileQueries = 8;

// One quantity per query of an attention tile, see attention.cpp.
struct AttentionQueries {
  const float* q;        // [count, head_width], scaled already
  const int* first_key;  // [count], first visible position
  const int* end_key;    // [count], one past the last visible position
  int count;
  int head_width;
  float soft_cap;  // 0 = none
};

// Softmax state of a piece or of the pieces merged so far, one entry per query.
struct AttentionState {
  float* maximum;  // [count]
  float* sum;      // [count]
  float* output;   // [count, head_width]
};

// What changes a row beyond the fields of SamplingRule, each doing nothing by default; see core/token_rules.py.
struct TokenRules {
  float repetition_penalty = 1.0f;
  float presence_penalty = 0.0f;
  float frequency_penalty = 0.0f;
  float dry_multiplier = 0.0f;
  float dry_base = 1.0f;
  int32_t dry_allowed_length = 1;
  float top_n_sigma = 0.0f;
  float dynatemp_range = 0.0f;
  float dynatemp_exponent = 1.0f;
  float typical_p = 1.0f;
  float xtc_probability = 0.0f;
  float xtc_threshold = 0.0f;
  double mirostat_tau = 0.0;
  double mirostat_eta = 0.0;
  double mirostat_mu = 0.0;

  // All ids but those of dry_tokens are ids of the vocabulary.
  const int32_t* biased_ids = nullptr;
  const float* biases = nullptr;
  int num_biased = 0;
  const int32_t* counted_ids = nullptr;
  const int32_t* window_counts = nullptr;
  const int32_t* output_counts = nullptr;
  int num_counted = 0;
  const int32_t* dry_tokens = nullptr;
  int num_dry_tokens = 0;
  int dry_limit = 0;
};

struct SamplingRule {
  float temperature;
  int32_t top_k;
  float top_p;
  float min_p;
  uint64_t seed;
  int32_t position;
  const uint32_t* mask;     // bit t % 32 of word t / 32: token t is allowed; null = all are
  const TokenRules* rules;  // null = none
};

// What sampling returns in place of a token.
inline constexpr int32_t kNoNumbers = -1;    // logits that are not all finite numbers
inline constexpr int32_t kNothingLeft = -2;  // no token is allowed

struct Choice {
  int32_t token;
  double mirostat_mu;  // for the next token
};

// Weights whose sum is kept together.
inline constexpr int kSumBlock = 4096;

struct SamplingScratch {
  float* weights;        // [vocabulary]
  double* block_sums;    // [vocabulary / kSumBlock, rounded up]
  uint64_t* candidates;  // [vocabulary]
  int32_t* lengths;      // [num_dry_tokens]
};

// What is written down of a row's log-probabilities, over the whole vocabulary.
struct LogProbabilityRow {
  float* log_probability;        // of the token asked for
  int32_t* rank;                 // of that token, from 1
  int32_t* top_ids;              // [num_top], most likely first, ties by id
  float* top_log_probabilities;  // [num_top]
};

struct KernelTable {
  const char* name;

  // out[row, tile columns] = rows x tiles (+ bias). ``next``: the tile that is worked on after these.
  void (*linear_quantized)(const WeightView& weight, int tile_begin, int tile_end, const uint8_t* next,
                           const QuantizedRowsView& x, int row_begin, int row_end, float* out, size_t out_stride,
                           const float* bias);
  void (*linear_float)(const WeightView& weight, int tile_begin, int tile_end, const float* x, size_t x_stride,
                       int row_begin, int row_end, float* out, size_t out_stride, const float* bias);

  void (*quantize_row)(const float* x, int width, const QuantizedRows& out, int row);
  void (*rms_norm_row)(const float* x, const float* weight, int width, int group_width, float epsilon, float* out);
  void (*add_row)(const float* a, const float* b, int width, float* out);
  void (*multiply_row)(const float* a, const float* b, int width, float* out);
  void (*scale_row)(const float* x, float factor, int width, float* out);
  void (*silu_row)(const float* x, int width, float* out);
  void (*gelu_tanh_row)(const float* x, int width, float* out);
  void (*soft_cap_row)(const float* x, float cap, int width, float* out);
  void (*rope_row)(const float* x, const float* cosine, const float* sine, int pairs, int head_width, int num_heads,
                   bool interleaved, float* out);

  // One token's k and v of one head into slot ``slot`` of a block.
  void (*store_kv)(const float* k, const float* v, int head_width, int slot, KvType type, uint8_t* block);
  // One piece: blocks[i] is the head's block at position first_position + 32 * i. False if no key is visible.
  // ``num_ahead`` blocks of the following piece stand at blocks[kPieceBlocks]: they are only asked for.
  // ``scores`` is room for kMostTileQueries * kPieceKeys values.
  bool (*attention_piece)(const AttentionQueries& queries, KvType type, const uint8_t* const* blocks, int num_blocks,
                          int num_ahead, int first_position, float* scores, const AttentionState& state);
  void (*attention_merge)(const AttentionState& piece, int count, int head_width, const AttentionState& running);

  // The chosen token, kNoNumbers or kNothingLeft.
  Choice (*sample)(const float* logits, int vocabulary, const SamplingRule& rule, const SamplingScratch& scratch);
  // False, writing nothing, for logits that are not all finite numbers. A smaller vocabulary than num_top fills less.
  bool (*log_probabilities)(const float* logits, int vocabulary, int32_t token, int num_top,
                            const LogProbabilityRow& out);
};

// Null when the processor lacks the instructions or the build left that kernel set out.
const KernelTable* portable_kernels();
const KernelTable* avx2_kernels();
const KernelTable* avxvnni_kernels();
const KernelTable* avx512_kernels();

// The best table this processor runs, or the one named ("portable", "avx2", "avxvnni", "avx512"); null if it cannot run here.
const KernelTable* select_kernels(const char* name);

}  // namespace ferrum
