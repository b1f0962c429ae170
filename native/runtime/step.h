// What one step is, as the operations see it: the rows to compute, the memory they live in, the kernels to use.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "../kernels/kernel_table.h"
#include "arena.h"

namespace ferrum {

inline constexpr int kBlockTokens = 32;  // of a KV block; fixed by the kernels' K layout

enum class RowSpace { tokens, outputs };

// Steps of at most this many rows run their cheap chains on every member of the team, each into a copy of its own: doing
// a row twice costs less than waiting for each other.
inline constexpr int kReplicatedRows = 2;

// A float32 matrix with one padded row per token or per output; replicated buffers have a small copy per member.
struct Buffer {
  int width;
  size_t stride;  // width rounded up to 16
  RowSpace space;
  float* data;
  size_t copy_stride;  // floats from one member's copy to the next, 0 where all share one

  float* row(int r, int copy) const { return data + size_t(copy) * copy_stride + size_t(r) * stride; }
};

struct KvLayer {
  KvType type;
  int num_heads;
  int head_width;
  size_t head_bytes;  // K and V of one head in one block
  size_t offset;      // of this layer within a block
};

// Cosines and sines of this step's rows, [rows, pairs].
struct RopeTable {
  std::vector<double> inverse_frequencies;
  float* cosine;
  float* sine;
};

class AttentionTiles;

// Working memory of attention. All layers share it: one of them runs at a time, with a barrier after it.
struct AttentionWorkspace {
  struct PerMember {
    std::vector<float> q, scores, piece, running;
    std::vector<int> first_key, end_key;
  };
  std::vector<PerMember> members;
  Arena partials;                                      // [split tile][piece] states
  std::vector<std::shared_ptr<AttentionTiles>> tiles;  // one for each shape of layers
};

// Everything the operations of one plan share. Sizes are fixed when the plan is finished; a step allocates nothing.
struct Memory {
  const KernelTable* kernels = nullptr;
  std::vector<WeightView> weights;
  std::vector<std::vector<float>> vectors;  // norm weights and biases, padded with zeros to a multiple of 16
  std::vector<Buffer> buffers;
  std::vector<std::vector<QuantizedRows>> quantized;  // per member; the entries of a shared one are alike
  std::vector<KvLayer> kv_layers;
  // All layers of a block lie together: memory grows block by block, not by a page of every layer at once.
  size_t kv_block_bytes = 0;
  Arena kv;  // [blocks][kv_block_bytes]
  std::vector<RopeTable> rope_tables;
  std::unique_ptr<AttentionWorkspace> attention = std::make_unique<AttentionWorkspace>();

  uint8_t* kv_block(int block) const { return kv.as<uint8_t>() + size_t(block) * kv_block_bytes; }
  uint8_t* kv_head(const KvLayer& layer, int block, int head) const {
    return kv_block(block) + layer.offset + size_t(head) * layer.head_bytes;
  }
};

struct SamplingColumns {
  const float* temperature;
  const int32_t* top_k;
  const float* top_p;
  const float* min_p;
  const uint64_t* seed;
  const int32_t* position;
  std::vector<const uint32_t*> masks;    // empty: no row has one; null: that row has none
  std::vector<const TokenRules*> rules;  // likewise
  double* mirostat_mu = nullptr;         // of each row, written where there are rules

  SamplingRule row(int row) const {
    const size_t r = size_t(row);
    return {temperature[r],
            top_k[r],
            top_p[r],
            min_p[r],
            seed[r],
            position[r],
            masks.empty() ? nullptr : masks[r],
            rules.empty() ? nullptr : rules[r]};
  }
};

// Which output rows want log-probabilities, and where they go.
struct LogProbabilityColumns {
  const int32_t* num_entries;  // [num_outputs], 0 = none, else the row's token and num_entries - 1 most likely ones
  // [num_outputs], the token of the row where it is known and nothing is chosen, else -1
  const int32_t* known_tokens;
  float* values;      // [num_outputs]
  int32_t* ranks;     // [num_outputs]
  int32_t* top_ids;   // [num_outputs, top_stride]
  float* top_values;  // [num_outputs, top_stride]
  int top_stride;
};

// The caller's arrays; see runtimes/protocol.py for what they hold.
struct Step {
  int num_tokens = 0;
  int num_sequences = 0;
  int num_outputs = 0;
  int num_lent_threads = 0;  // of the team's, whose processors have other work
  int num_threads = 1;       // the others, derived by the interpreter
  const int32_t* token_ids = nullptr;
  const int32_t* positions = nullptr;
  const int32_t* sequence_starts = nullptr;
  const int32_t* block_tables = nullptr;
  int block_table_stride = 0;
  const int32_t* output_rows = nullptr;
  const int32_t* row_sequences = nullptr;  // [num_tokens], derived by the interpreter
  const SamplingColumns* sampling = nullptr;
  int32_t* sampled_tokens = nullptr;
  const LogProbabilityColumns* log_probabilities = nullptr;
  uint64_t* digests = nullptr;

  // Both: an output row may be asked for more than once.
  bool is_replicated() const { return num_tokens <= kReplicatedRows && num_outputs <= kReplicatedRows; }
  // Which copy of replicated memory a member works on.
  int copy_of(int member) const { return is_replicated() ? member : 0; }
  int rows(RowSpace space) const { return space == RowSpace::tokens ? num_tokens : num_outputs; }
  int block_of(int row) const {
    return block_tables[size_t(row_sequences[row]) * block_table_stride + positions[row] / kBlockTokens];
  }
};

// One operation of an executable plan: independent tasks that any member of the team may claim.
class Operation {
 public:
  virtual ~Operation() = default;
  // Called once when the plan is finished: the place to reserve scratch memory.
  virtual void reserve(const Memory&, int /*max_tokens*/, int /*context_length*/, int /*num_threads*/) {}
  // Called by one thread before the step; returns the number of tasks.
  virtual int prepare(const Memory& memory, const Step& step) = 0;
  virtual void run(const Memory& memory, const Step& step, int task, int member) = 0;
  // Whether another operation's barrier comes before anything reads what this one writes; it then has none of its own.
  virtual bool is_read_later() const { return false; }
  // Whether every member does all tasks for itself; nobody then waits for anybody after it.
  virtual bool is_replicated(const Step&) const { return false; }
};

inline int divide_up(int a, int b) { return (a + b - 1) / b; }
inline size_t padded_width(int width) { return size_t(divide_up(width, 16)) * 16; }

}  // namespace ferrum
