// Attention over paged keys and values.
#include <cmath>
#include <vector>

#include "vector_groups.h"

namespace ferrum::vectors {
namespace {

// Three pieces of paged K and V; queries see the prefix or a window of it, some pieces partly, some not at all.
void paged_vectors(const KernelTable& kernels, KvType type, int head_width, int window, float soft_cap) {
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

}  // namespace

void attention_vectors(const KernelTable& kernels) {
  for (int head_width : {16, 64, 128}) {
    for (KvType type : {KvType::f16, KvType::int8}) {
      paged_vectors(kernels, type, head_width, 0, 0.0f);
      paged_vectors(kernels, type, head_width, 40, 5.0f);
    }
  }
}

}  // namespace ferrum::vectors
