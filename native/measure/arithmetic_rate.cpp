#include "arithmetic_rate.h"

#include <algorithm>
#include <chrono>
#include <memory>
#include <mutex>
#include <vector>

#include "../runtime/plan_interpreter.h"
#include "../runtime/weight_packing.h"

namespace ferrum {
namespace {

using Clock = std::chrono::steady_clock;

// Bytes whose halves are 0.13 to 1.0 and whose floats are tiny but not denormal: any bit pattern takes the kernels
// equally long, except values that arithmetic stumbles over.
void fill_tame(uint8_t* data, size_t bytes) {
  for (size_t i = 0; i < bytes; ++i) data[i] = uint8_t(0x30 + i % 11);
}

std::vector<float> tame_floats(size_t count) {
  std::vector<float> values(count);
  for (size_t i = 0; i < count; ++i) values[i] = float(int(i % 17) - 8) / 8.0f;
  return values;
}

// Calls ``work(chunk)`` for chunks 0, 1, ... again and again for ``seconds``; returns the calls a second.
template <typename Work>
double calls_per_second(int chunks, double seconds, Work&& work) {
  const Clock::time_point start = Clock::now();
  long calls = 0;
  for (;;) {
    for (int chunk = 0; chunk < chunks; ++chunk) work(chunk);
    calls += chunks;
    const std::chrono::duration<double> elapsed = Clock::now() - start;
    if (elapsed.count() >= seconds) return double(calls) / elapsed.count();
  }
}

// A claim of the plan interpreter takes at most this many tiles.
constexpr int kTilesPerCall = 32;

// One member's weight, activations and results.
class LinearWork {
 public:
  LinearWork(const KernelTable& kernels, const LinearShape& shape)
      : kernels_(kernels),
        shape_(shape),
        size_(packed_size(shape.type, shape.outputs, shape.columns)),
        weight_(bytes()),
        x_(tame_floats(size_t(shape.rows) * shape.columns)),
        out_(size_t(shape.rows) * kTilesPerCall * kTileColumns),
        scratch_(&kernels, 1, {shape.rows, 1, 1, 1}) {
    fill_tame(weight_.as<uint8_t>(), bytes());
    is_quantized_ = layout_of(shape.type) != nullptr;
    if (!is_quantized_) return;
    const int id = scratch_.add_quantized(shape.columns, RowSpace::tokens, false);
    quantized_ = scratch_.memory().quantized[size_t(id)][0];
    for (int row = 0; row < shape.rows; ++row)
      kernels.quantize_row(x_.data() + size_t(row) * shape.columns, shape.columns, quantized_, row);
  }

  size_t bytes() const { return size_.tile_bytes * size_t(size_.tiles); }
  int chunks() const { return divide_up(size_.tiles, kTilesPerCall); }

  void run(int chunk) {
    const int begin = chunk * kTilesPerCall, tiles = std::min(kTilesPerCall, size_.tiles - begin);
    const WeightView view{shape_.type,        tiles * kTileColumns,
                          shape_.columns,     weight_.as<uint8_t>() + size_t(begin) * size_.tile_bytes,
                          size_.tile_bytes,   2 * size_.tile_bytes,
                          size_.scales_offset};
    constexpr size_t stride = size_t(kTilesPerCall) * kTileColumns;
    if (is_quantized_)
      kernels_.linear_quantized(view, 0, tiles, view.data + size_t(tiles) * view.tile_bytes, quantized_, 0, shape_.rows,
                                out_.data(), stride, nullptr);
    else
      kernels_.linear_float(view, 0, tiles, x_.data(), size_t(shape_.columns), 0, shape_.rows, out_.data(), stride,
                            nullptr);
  }

 private:
  const KernelTable& kernels_;
  LinearShape shape_;
  PackedSize size_;
  Arena weight_;
  std::vector<float> x_, out_;
  PlanInterpreter scratch_;
  QuantizedRows quantized_{};
  bool is_quantized_ = false;
};

// The sum over the members of what ``measure(member)`` returns, all measuring at the same time.
template <typename Prepare, typename Measure>
double sum_over_members(int num_threads, Prepare&& prepare, Measure&& measure) {
  ThreadTeam team(num_threads);
  std::mutex lock;
  double sum = 0;
  team.run([&](int member) {
    prepare(member);
    team.barrier(member, false);
    const double own = measure(member);
    const std::lock_guard guard(lock);
    sum += own;
  });
  return sum;
}

}  // namespace

LinearRate measure_linear(const KernelTable& kernels, const LinearShape& shape, int num_threads, double seconds) {
  std::vector<std::unique_ptr<LinearWork>> works{size_t(num_threads)};
  const double passes = sum_over_members(
      num_threads, [&](int member) { works[size_t(member)] = std::make_unique<LinearWork>(kernels, shape); },
      [&](int member) {
        LinearWork& work = *works[size_t(member)];
        return calls_per_second(work.chunks(), seconds, [&](int chunk) { work.run(chunk); }) / work.chunks();
      });
  return {passes * 2.0 * shape.outputs * shape.columns * shape.rows, passes * double(works[0]->bytes())};
}

double measure_attention(const KernelTable& kernels, const AttentionTile& tile, int num_threads, double seconds) {
  struct Work {
    std::vector<uint8_t> block;
    std::vector<const uint8_t*> blocks;
    std::vector<float> q, scores, state;
    std::vector<int> first_key, end_key;
  };
  std::vector<Work> works{size_t(num_threads)};
  const int keys = tile.blocks * kBlockTokens;
  const auto prepare = [&](int member) {
    Work& work = works[size_t(member)];
    const size_t block_bytes = kv_head_bytes(tile.kv_type, tile.head_width);
    work.block.resize(block_bytes * size_t(tile.blocks));
    fill_tame(work.block.data(), work.block.size());
    for (int b = 0; b < tile.blocks; ++b) work.blocks.push_back(work.block.data() + size_t(b) * block_bytes);
    work.q = tame_floats(size_t(tile.queries) * tile.head_width);
    work.scores.resize(size_t(kMostTileQueries) * kPieceKeys);
    work.state.resize(size_t(tile.queries) * (2 + tile.head_width));
    work.first_key.assign(size_t(tile.queries), 0);
    work.end_key.assign(size_t(tile.queries), keys);
  };
  const double calls = sum_over_members(num_threads, prepare, [&](int member) {
    Work& work = works[size_t(member)];
    const AttentionQueries queries{work.q.data(), work.first_key.data(), work.end_key.data(),
                                   tile.queries,  tile.head_width,       0.0f};
    const AttentionState state{work.state.data(), work.state.data() + tile.queries,
                               work.state.data() + 2 * tile.queries};
    // The clock is read once in 16 calls.
    return calls_per_second(16, seconds, [&](int) {
      kernels.attention_piece(queries, tile.kv_type, work.blocks.data(), tile.blocks, 0, 0, work.scores.data(), state);
    });
  });
  return calls * 4.0 * tile.queries * keys * tile.head_width;
}

}  // namespace ferrum
