// Row operations and rotation.
#include "../runtime/row_chain.h"
#include "vector_groups.h"

namespace ferrum::vectors {
namespace {

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

void width_vectors(const KernelTable& kernels) {
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

}  // namespace

void row_vectors(const KernelTable& kernels) {
  width_vectors(kernels);
  rope_vectors(kernels);
}

}  // namespace ferrum::vectors
