// usage: kernel_vectors            names the kernel sets this processor runs
//        kernel_vectors KERNEL_SET  runs every kernel of the set, one line "what digest" for each kind of output
//
// Two processors, compilers or kernel sets agree when the lines are equal: scripts/cross-check compares them.
#include <cmath>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "../kernels/kernel_table.h"
#include "../runtime/arena.h"
#include "../runtime/row_chain.h"
#include "../runtime/weight_packing.h"
#include "digest.h"

namespace ferrum::vectors {
namespace {

void print(const std::string& what, const Digest& digest) {
  printf("%-32s %016llx\n", what.c_str(), static_cast<unsigned long long>(digest.value()));
}

// ---- weights --------------------------------------------------------------------------------------------------------

struct NamedType {
  WeightType type;
  const char* name;
  int block_values;
  std::vector<int> factors;  // where a block keeps its halves
};

const std::vector<NamedType>& weight_types() {
  static const std::vector<NamedType> types{
      {WeightType::F32, "F32", 1, {}},           {WeightType::F16, "F16", 1, {}},
      {WeightType::BF16, "BF16", 1, {}},         {WeightType::Q4_0, "Q4_0", 32, {0}},
      {WeightType::Q4_1, "Q4_1", 32, {0, 2}},    {WeightType::Q5_0, "Q5_0", 32, {0}},
      {WeightType::Q5_1, "Q5_1", 32, {0, 2}},    {WeightType::Q8_0, "Q8_0", 32, {0}},
      {WeightType::Q2_K, "Q2_K", 256, {80, 82}}, {WeightType::Q3_K, "Q3_K", 256, {108}},
      {WeightType::Q4_K, "Q4_K", 256, {0, 2}},   {WeightType::Q5_K, "Q5_K", 256, {0, 2}},
      {WeightType::Q6_K, "Q6_K", 256, {208}},
  };
  return types;
}

// Random stored bits; halves and floats lie between 2^-7 and 2^-3, of either sign.
std::vector<uint8_t> stored_weight(const NamedType& kind, int rows, int columns, Generator& generator) {
  std::vector<uint8_t> bytes(source_row_bytes(kind.type, columns) * size_t(rows));
  for (uint8_t& byte : bytes) byte = uint8_t(generator.next());
  const auto put_half = [&](size_t at, uint16_t exponent_bits) {
    const uint16_t half = uint16_t((generator.next() & 0x83ffu) | exponent_bits);
    memcpy(bytes.data() + at, &half, 2);
  };
  if (kind.type == WeightType::F32) {
    for (size_t at = 0; at < bytes.size(); at += 4) {
      const float value = generator.normal() * 0.0625f;
      memcpy(bytes.data() + at, &value, 4);
    }
  } else if (kind.block_values == 1) {
    const bool is_half = kind.type == WeightType::F16;
    for (size_t at = 0; at < bytes.size(); at += 2)
      put_half(at, uint16_t(is_half ? (8 + generator.below(4)) << 10 : 0x3c00));
  } else {
    const size_t block_bytes = source_row_bytes(kind.type, kind.block_values);
    for (size_t start = 0; start < bytes.size(); start += block_bytes)
      for (int factor : kind.factors) put_half(start + size_t(factor), uint16_t((8 + generator.below(4)) << 10));
  }
  return bytes;
}

struct Weight {
  Weight(WeightType type, int rows, int columns, const uint8_t* source) {
    const PackedSize size = packed_size(type, rows, columns);
    arena = Arena(size.tile_bytes * size_t(size.tiles));
    view = pack_matrix(type, rows, columns, source, arena.as<uint8_t>());
    tiles = size.tiles;
  }
  Arena arena;
  WeightView view;
  int tiles;
};

// ---- quantised activations ------------------------------------------------------------------------------------------

class QuantizedActivations {
 public:
  QuantizedActivations(int rows, int columns)
      : rows_(size_t(rows)), padded_(size_t(divide_up(columns, kGroup)) * kGroup), groups_(padded_ / kGroup) {
    codes_.resize(rows_ * padded_);
    floats_.resize(rows_ * groups_ * 4);
    sums_.resize(rows_ * groups_ * 3);
    view.codes = view.codes_out = codes_.data();
    view.scales = view.scales_out = floats_.data();
    view.scaled_sums32 = view.scaled_sums32_out = floats_.data() + rows_ * groups_;
    view.scaled_sums16 = view.scaled_sums16_out = floats_.data() + 2 * rows_ * groups_;
    view.sums32 = view.sums32_out = sums_.data();
    view.sums16 = view.sums16_out = sums_.data() + rows_ * groups_;
    view.padded = int(padded_);
    view.groups = int(groups_);
  }
  void add_to(Digest& digest) const {
    digest.add(codes_.data(), codes_.size());
    digest.add(floats_.data(), floats_.size());
    digest.add(sums_.data(), sums_.size());
  }
  QuantizedRows view{};

 private:
  size_t rows_, padded_, groups_;
  std::vector<int8_t> codes_;
  std::vector<float> floats_;
  std::vector<int32_t> sums_;
};

void quantize_vectors(const KernelTable& kernels) {
  Digest digest;
  Generator generator(1);
  for (float factor : {1.0f, 0.0f, 0x1p-149f, 0x1p-133f, 0x1p-103f, 0x1p-99f, 0x1p-66f, 0x1p66f, 0x1p120f}) {
    constexpr int width = 80;  // the last group is half padding
    const std::vector<float> x = generator.normals(width, factor);
    QuantizedActivations out(1, width);
    kernels.quantize_row(x.data(), width, out.view, 0);
    out.add_to(digest);
  }
  print("quantize_row", digest);
}

// ---- linears --------------------------------------------------------------------------------------------------------

void linear_vectors(const KernelTable& kernels, const NamedType& kind) {
  constexpr int outputs = 40, inputs = 512, most_rows = 13;
  Generator generator(100 + uint64_t(kind.type));
  const std::vector<uint8_t> stored = stored_weight(kind, outputs, inputs, generator);
  const Weight weight(kind.type, outputs, inputs, stored.data());
  const std::vector<float> x = generator.normals(size_t(most_rows) * inputs);
  const size_t stride = size_t(weight.tiles) * kTileColumns;
  std::vector<float> bias = generator.normals(stride);
  QuantizedActivations quantized(most_rows, inputs);
  for (int row = 0; row < most_rows; ++row)
    kernels.quantize_row(x.data() + size_t(row) * inputs, inputs, quantized.view, row);
  for (int rows : {1, 2, 3, 8, 13}) {
    Digest digest;
    for (const float* added : {static_cast<const float*>(nullptr), static_cast<const float*>(bias.data())}) {
      std::vector<float> out(size_t(rows) * stride);
      if (layout_of(kind.type) == nullptr)
        kernels.linear_float(weight.view, 0, weight.tiles, x.data(), inputs, 0, rows, out.data(), stride, added);
      else
        kernels.linear_quantized(weight.view, 0, weight.tiles, weight.view.data, quantized.view, 0, rows, out.data(),
                                 stride, added);
      digest.add(out.data(), out.size());
    }
    print(std::string("linear ") + kind.name + " rows " + std::to_string(rows), digest);
  }
  Digest digest;
  std::vector<float> row(inputs);
  for (int i = 0; i < outputs; ++i) {
    read_row(weight.view, i, row.data());
    digest.add(row.data(), row.size());
  }
  print(std::string("read_row ") + kind.name, digest);
}

// ---- 16-bit floats --------------------------------------------------------------------------------------------------

// Every 16-bit pattern as a weight of one input: fma(1, w, +0) is w, and read_row the single-value conversion.
void sixteen_bit_weights(const KernelTable& kernels, WeightType type, const char* name) {
  constexpr int count = 1 << 16;
  std::vector<uint16_t> stored(count);
  for (int i = 0; i < count; ++i) stored[size_t(i)] = uint16_t(i);
  const Weight weight(type, count, 1, reinterpret_cast<const uint8_t*>(stored.data()));
  const float one = 1.0f;
  std::vector<float> out(count);
  kernels.linear_float(weight.view, 0, weight.tiles, &one, 1, 0, 1, out.data(), count, nullptr);
  Digest digest;
  digest.add(out.data(), out.size());
  for (int i = 0; i < count; ++i) {
    read_row(weight.view, i, out.data());
    digest.add(out[0]);
  }
  print(std::string("every ") + name, digest);
}

// Floats of every sign, exponent and leading mantissa bits, with ends just below, at and above the ties.
void float_to_half_vectors(const KernelTable& kernels) {
  constexpr int width = 64;
  std::vector<uint16_t> block(kv_head_bytes(KvType::f16, width) / sizeof(uint16_t));
  const uint16_t *keys = block.data(), *values = keys + size_t(width) * kGroup;
  Digest digest;
  for (uint32_t end : {0x0000u, 0x0001u, 0x0fffu, 0x1000u, 0x1001u, 0x2fffu, 0x3000u, 0x3001u, 0xffffu}) {
    float x[width];
    for (uint32_t high = 0; high < 0x10000; high += width) {
      for (uint32_t i = 0; i < width; ++i) x[i] = float_of_bits(((high + i) << 16) | end);
      const int slot = int(high / width) % kGroup;
      kernels.store_kv(x, x, width, slot, KvType::f16, reinterpret_cast<uint8_t*>(block.data()));
      for (int d = 0; d < width; ++d) digest.add(uint32_t(keys[size_t(d) * kGroup + slot]));
      digest.add(values + size_t(slot) * width, width);
    }
  }
  print("float_to_half", digest);
}

// ---- row operations -------------------------------------------------------------------------------------------------

// A row operation over every sign, exponent and the leading mantissa bits of a float.
template <typename Operation>
void sweep(const char* name, Operation&& operation) {
  constexpr int width = 1024;
  float x[width], out[width];
  Digest digest;
  for (uint32_t high = 0; high < 0x10000; high += width) {
    for (uint32_t i = 0; i < width; ++i) x[i] = float_of_bits(((high + i) << 16) | 0x5a5au);
    operation(x, width, out);
    digest.add(out, width);
  }
  Generator generator(7);
  for (float factor : {1.0f, 8.0f, 32.0f}) {
    const std::vector<float> values = generator.normals(width, factor);
    operation(values.data(), width, out);
    digest.add(out, width);
  }
  print(name, digest);
}

void row_vectors(const KernelTable& kernels) {
  sweep("silu_row", [&](const float* x, int width, float* out) { kernels.silu_row(x, width, out); });
  sweep("gelu_tanh_row", [&](const float* x, int width, float* out) { kernels.gelu_tanh_row(x, width, out); });
  sweep("soft_cap_row", [&](const float* x, int width, float* out) { kernels.soft_cap_row(x, 30.0f, width, out); });
  sweep("scale_row", [&](const float* x, int width, float* out) { kernels.scale_row(x, 0x1.1p-3f, width, out); });
  Generator generator(8);
  const std::vector<float> other = generator.normals(1024);
  sweep("add_row", [&](const float* x, int width, float* out) { kernels.add_row(x, other.data(), width, out); });
  sweep("multiply_row",
        [&](const float* x, int width, float* out) { kernels.multiply_row(x, other.data(), width, out); });

  Digest norms;
  for (float factor : {1.0f, 0.0f, 0x1p-40f, 0x1p-140f, 0x1p40f, 0x1p70f})
    for (int group : {576, 64, 32, 16}) {
      constexpr int width = 576;
      const std::vector<float> x = generator.normals(width, factor);
      const std::vector<float> weight = generator.normals(width);
      std::vector<float> out(width);
      kernels.rms_norm_row(x.data(), weight.data(), width, group, 1e-6f, out.data());
      norms.add(out.data(), out.size());
    }
  print("rms_norm_row", norms);
}

// Angles in float64 through the C library: the one place where its cos and sin reach a token.
void rope_vectors(const KernelTable& kernels) {
  constexpr int rows = 16, pairs = 32;
  Memory memory;
  std::vector<double> frequencies;
  double frequency = 1.0;
  for (int i = 0; i < pairs; ++i, frequency *= 0.75) frequencies.push_back(frequency);
  std::vector<float> cosine(rows * pairs), sine(rows * pairs);
  memory.rope_tables.push_back({frequencies, cosine.data(), sine.data()});
  Digest tables, rotated;
  Generator generator(9);
  for (int start = 0; start < 131072; start += 131072 / 64) {
    int32_t positions[rows];
    for (int i = 0; i < rows; ++i) positions[i] = start + i;
    Step step;
    step.num_tokens = rows;
    step.positions = positions;
    FillRopeTables fill;
    const int tasks = fill.prepare(memory, step);
    for (int task = 0; task < tasks; ++task) fill.run(memory, step, task, 0);
    tables.add(cosine.data(), cosine.size());
    tables.add(sine.data(), sine.size());
    constexpr int head_width = 80, heads = 2;  // the last 16 of a head are not rotated
    const std::vector<float> x = generator.normals(size_t(head_width) * heads);
    std::vector<float> out(x.size());
    for (bool interleaved : {false, true}) {
      kernels.rope_row(x.data(), cosine.data(), sine.data(), pairs, head_width, heads, interleaved, out.data());
      rotated.add(out.data(), out.size());
    }
  }
  print("rope tables", tables);
  print("rope_row", rotated);
}

// ---- attention ------------------------------------------------------------------------------------------------------

// Three pieces of paged K and V; queries see the prefix or a window of it, some pieces partly, some not at all.
void attention_vectors(const KernelTable& kernels, KvType type, int head_width, int window, float soft_cap) {
  constexpr int positions = 330, blocks_per_piece = 4, pieces = 3;
  Generator generator(uint64_t(200 + head_width + window));
  std::vector<std::vector<uint8_t>> blocks(blocks_per_piece * pieces);
  for (auto& block : blocks) block.assign(kv_head_bytes(type, head_width), 0);
  for (int position = 0; position < positions; ++position) {
    const std::vector<float> k = generator.normals(size_t(head_width));
    const std::vector<float> v = generator.normals(size_t(head_width));
    kernels.store_kv(k.data(), v.data(), head_width, position % kGroup, type, blocks[size_t(position / kGroup)].data());
  }
  Digest digest;
  for (int count : {1, 2, 3, 8, 13}) {
    const std::vector<float> q = generator.normals(size_t(count) * head_width, 0.25f);
    std::vector<int> first(size_t(count), 0), end(static_cast<size_t>(count));
    for (int i = 0; i < count; ++i) {
      end[size_t(i)] = 1 + generator.below(positions);
      if (window > 0 && end[size_t(i)] > window) first[size_t(i)] = end[size_t(i)] - window;
    }
    const AttentionQueries queries{q.data(), first.data(), end.data(), count, head_width, soft_cap};
    std::vector<float> scores(size_t(kMostTileQueries) * kPieceKeys);
    std::vector<float> maximum(size_t(count), -INFINITY), sum(size_t(count), 0.0f), output(q.size(), 0.0f);
    std::vector<float> piece_maximum(maximum), piece_sum(sum), piece_output(output);
    const AttentionState running{maximum.data(), sum.data(), output.data()};
    const AttentionState state{piece_maximum.data(), piece_sum.data(), piece_output.data()};
    for (int piece = 0; piece < pieces; ++piece) {
      const uint8_t* pages[blocks_per_piece];
      for (int b = 0; b < blocks_per_piece; ++b) pages[b] = blocks[size_t(piece * blocks_per_piece + b)].data();
      const bool is_visible = kernels.attention_piece(queries, type, pages, blocks_per_piece, 0,
                                                      piece * blocks_per_piece * kGroup, scores.data(), state);
      digest.add(uint32_t(is_visible));
      if (!is_visible) continue;
      digest.add(piece_maximum.data(), piece_maximum.size());
      digest.add(piece_sum.data(), piece_sum.size());
      digest.add(piece_output.data(), piece_output.size());
      kernels.attention_merge(state, count, head_width, running);
    }
    digest.add(maximum.data(), maximum.size());
    digest.add(sum.data(), sum.size());
    digest.add(output.data(), output.size());
  }
  print(std::string(type == KvType::int8 ? "int8 " : "f16 ") + "attention width " + std::to_string(head_width) +
            " window " + std::to_string(window) + (soft_cap > 0.0f ? " cap" : ""),
        digest);
}

// ---- sampling -------------------------------------------------------------------------------------------------------

void sampling_vectors(const KernelTable& kernels) {
  constexpr int vocabulary = 700;
  std::vector<float> weights(vocabulary);
  std::vector<double> block_sums(1);
  std::vector<uint64_t> candidates(vocabulary);
  std::vector<int32_t> lengths(64);
  const SamplingScratch scratch{weights.data(), block_sums.data(), candidates.data(), lengths.data()};
  Generator generator(10);
  Digest digest;
  for (int trial = 0; trial < 4; ++trial) {
    std::vector<float> logits = generator.normals(vocabulary, 3.0f);
    if (trial == 3)
      for (float& logit : logits) logit = float(generator.below(4));  // many ties
    for (float temperature : {0.0f, 0.3f, 1.0f, 1.7f})
      for (int top_k : {0, 1, 17, 300})
        for (float top_p : {1.0f, 0.9f, 0.5f})
          for (float min_p : {0.0f, 0.02f}) {
            const SamplingRule rule{temperature, top_k,  top_p, min_p, generator.next(), generator.below(1 << 20),
                                    nullptr,     nullptr};
            digest.add(uint32_t(kernels.sample(logits.data(), vocabulary, rule, scratch).token));
          }
  }
  print("sample", digest);
}

// Rows so large and flat that the likeliest are found by their weights, not one by one.
void large_row_vectors(const KernelTable& kernels) {
  constexpr int vocabulary = 40000;
  std::vector<float> weights(vocabulary);
  std::vector<double> block_sums(size_t(divide_up(vocabulary, kSumBlock)));
  std::vector<uint64_t> candidates(vocabulary);
  const SamplingScratch scratch{weights.data(), block_sums.data(), candidates.data(), nullptr};
  Generator generator(12);
  Digest digest;
  for (float spread : {0.0f, 0.2f, 1.0f, 4.0f}) {
    const std::vector<float> logits = generator.normals(vocabulary, spread);
    for (int top_k : {0, 20000})
      for (float top_p : {1.0f, 0.999f, 0.9f, 0.1f}) {
        const SamplingRule rule{1.0f, top_k, top_p, 0.0f, generator.next(), generator.below(1 << 20), nullptr, nullptr};
        digest.add(uint32_t(kernels.sample(logits.data(), vocabulary, rule, scratch).token));
      }
  }
  print("sample large rows", digest);
}

TokenRules some_rules(Generator& generator, int trial) {
  TokenRules rules;
  const auto is_on = [&](int which) { return trial % 16 == which || trial % 5 == 0; };
  if (is_on(0)) rules.repetition_penalty = 1.3f;
  if (is_on(1)) rules.presence_penalty = 0.7f;
  if (is_on(2)) rules.frequency_penalty = -0.2f;
  if (is_on(3)) rules.dry_multiplier = 0.8f;
  rules.dry_base = 1.75f;
  rules.dry_limit = generator.below(40);
  if (is_on(4)) rules.top_n_sigma = 1.0f;
  if (is_on(5)) rules.dynatemp_range = 0.5f;
  rules.dynatemp_exponent = 0.7f;
  if (is_on(6)) rules.typical_p = 0.6f;
  if (is_on(7)) rules.xtc_probability = 0.5f;
  rules.xtc_threshold = 0.02f;
  if (is_on(8)) rules.mirostat_tau = 3.0;
  rules.mirostat_eta = 0.1;
  rules.mirostat_mu = 5.5;
  return rules;
}

void rule_vectors(const KernelTable& kernels) {
  constexpr int vocabulary = 700;
  constexpr int num_tokens = 200;
  std::vector<float> weights(vocabulary);
  std::vector<double> block_sums(1);
  std::vector<uint64_t> candidates(vocabulary);
  std::vector<int32_t> lengths(num_tokens);
  const SamplingScratch scratch{weights.data(), block_sums.data(), candidates.data(), lengths.data()};
  Generator generator(13);
  Digest digest;
  for (int trial = 0; trial < 120; ++trial) {
    const std::vector<float> logits = generator.normals(vocabulary, 2.0f);
    std::vector<int32_t> tokens(num_tokens), ids{3, 17, 698}, counts{2, 0, 1};
    for (int32_t& token : tokens) token = generator.below(4);  // repeats itself
    const std::vector<float> biases = generator.normals(3, 5.0f);
    std::vector<uint32_t> mask(size_t(divide_up(vocabulary, 32)), ~0u);
    for (uint32_t& word : mask) word = trial % 3 == 0 ? uint32_t(generator.next()) : word;
    TokenRules rules = some_rules(generator, trial);
    rules.biased_ids = rules.counted_ids = ids.data();
    rules.biases = biases.data();
    rules.window_counts = rules.output_counts = counts.data();
    rules.num_biased = rules.num_counted = 3;
    rules.dry_tokens = tokens.data();
    rules.num_dry_tokens = num_tokens;
    const SamplingRule rule{trial % 7 == 0 ? 0.0f : 0.9f,
                            trial % 4 == 0 ? 40 : 0,
                            trial % 3 == 1 ? 0.9f : 1.0f,
                            0.0f,
                            generator.next(),
                            trial,
                            mask.data(),
                            &rules};
    const Choice choice = kernels.sample(logits.data(), vocabulary, rule, scratch);
    digest.add(uint32_t(choice.token));
    digest.add(float(choice.mirostat_mu));
  }
  print("sample by rules", digest);
}

void log_probability_vectors(const KernelTable& kernels) {
  Generator generator(11);
  Digest digest;
  for (int vocabulary : {1, 15, 700, 1025, 5000}) {
    const std::vector<float> logits = generator.normals(vocabulary, 4.0f);
    for (int num_top : {0, 1, 20}) {
      float value = 0.0f, top_values[20] = {};
      int32_t rank = 0, top_ids[20] = {};
      kernels.log_probabilities(logits.data(), vocabulary, generator.below(vocabulary), num_top,
                                {&value, &rank, top_ids, top_values});
      digest.add(value);
      digest.add(uint32_t(rank));
      for (int32_t id : top_ids) digest.add(uint32_t(id));
      for (float top : top_values) digest.add(top);
    }
  }
  print("log probabilities", digest);
}

void run_all(const KernelTable& kernels) {
  sixteen_bit_weights(kernels, WeightType::F16, "half");
  sixteen_bit_weights(kernels, WeightType::BF16, "bfloat");
  float_to_half_vectors(kernels);
  quantize_vectors(kernels);
  for (const NamedType& kind : weight_types()) linear_vectors(kernels, kind);
  row_vectors(kernels);
  rope_vectors(kernels);
  for (int head_width : {16, 64, 128}) {
    for (KvType type : {KvType::f16, KvType::int8}) {
      attention_vectors(kernels, type, head_width, 0, 0.0f);
      attention_vectors(kernels, type, head_width, 40, 5.0f);
    }
  }
  sampling_vectors(kernels);
  large_row_vectors(kernels);
  rule_vectors(kernels);
  log_probability_vectors(kernels);
}

}  // namespace
}  // namespace ferrum::vectors

int main(int argc, char** argv) {
  if (argc == 1) {
    for (const char* name : {"portable", "avx2", "avxvnni", "avx512"})
      if (ferrum::select_kernels(name) != nullptr) puts(name);
    return 0;
  }
  const ferrum::KernelTable* kernels = argc == 2 ? ferrum::select_kernels(argv[1]) : nullptr;
  if (kernels == nullptr) {
    fprintf(stderr, "kernel_vectors: one argument, a kernel set that this processor runs; without one it lists them\n");
    return 2;
  }
  ferrum::vectors::run_all(*kernels);
  return 0;
}
