// Linear on F32, F16 and BF16 weights: acc = fma(x[k], w[k], acc) over k in order, vectors over output columns.
#include "kernel_table.h"
#include "vector.h"

namespace ferrum::FERRUM_ISA {
namespace {

template <WeightType T>
FERRUM_INLINE Vector load_weights(const uint8_t* tile, size_t index) {
  if constexpr (T == WeightType::F32) return v_load(reinterpret_cast<const float*>(tile) + index);
  if constexpr (T == WeightType::F16) return v_from_half(reinterpret_cast<const uint16_t*>(tile) + index);
  if constexpr (T == WeightType::BF16) return v_from_bfloat(reinterpret_cast<const uint16_t*>(tile) + index);
}

template <WeightType T, int R>
void register_tile(const uint8_t* tile, int inputs, int column, const float* x, size_t x_stride, float* out,
                   size_t out_stride, const float* bias) {
  Vector acc[R];
#pragma GCC unroll 16
  for (int r = 0; r < R; ++r) acc[r] = v_zero();
  for (int k = 0; k < inputs; ++k) {
    const Vector w = load_weights<T>(tile, size_t(k) * kTileColumns + column);
#pragma GCC unroll 16
    for (int r = 0; r < R; ++r) acc[r] = v_fma(v_set(x[r * x_stride + k]), w, acc[r]);
  }
#pragma GCC unroll 16
  for (int r = 0; r < R; ++r)
    v_store(out + r * out_stride + column, bias ? v_add(acc[r], v_load(bias + column)) : acc[r]);
}

template <WeightType T, int R>
void row_tile(const uint8_t* tile, int inputs, const float* x, size_t x_stride, float* out, size_t out_stride,
              const float* bias) {
  for (int column = 0; column < kTileColumns; column += kWidth)
    register_tile<T, R>(tile, inputs, column, x, x_stride, out, out_stride, bias);
}

template <WeightType T>
void linear_tiles(const WeightView& weight, int tile_begin, int tile_end, const float* x, size_t x_stride,
                  int row_begin, int row_end, float* out, size_t out_stride, const float* bias) {
  // A tile of fewer rows takes as long: each waits for the sum before it.
  using RowTile = void (*)(const uint8_t*, int, const float*, size_t, float*, size_t, const float*);
  static constexpr RowTile kRowTiles[] = {row_tile<T, 1>, row_tile<T, 2>, row_tile<T, 3>, row_tile<T, 4>,
                                          row_tile<T, 5>, row_tile<T, 6>, row_tile<T, 7>, row_tile<T, 8>};
  constexpr int most = sizeof kRowTiles / sizeof kRowTiles[0];
  for (int tile = tile_begin; tile < tile_end; ++tile) {
    const uint8_t* data = weight.tile(tile);
    const float* tile_bias = bias ? bias + tile * kTileColumns : nullptr;
    for (int row = row_begin; row < row_end;) {
      const int rows = row_end - row < most ? row_end - row : most;
      kRowTiles[rows - 1](data, weight.columns, x + size_t(row) * x_stride, x_stride,
                          out + size_t(row) * out_stride + tile * kTileColumns, out_stride, tile_bias);
      row += rows;
    }
  }
}

}  // namespace

void linear_float(const WeightView& weight, int tile_begin, int tile_end, const float* x, size_t x_stride,
                  int row_begin, int row_end, float* out, size_t out_stride, const float* bias) {
  switch (weight.type) {
    case WeightType::F32:
      return linear_tiles<WeightType::F32>(weight, tile_begin, tile_end, x, x_stride, row_begin, row_end, out,
                                           out_stride, bias);
    case WeightType::F16:
      return linear_tiles<WeightType::F16>(weight, tile_begin, tile_end, x, x_stride, row_begin, row_end, out,
                                           out_stride, bias);
    case WeightType::BF16:
      return linear_tiles<WeightType::BF16>(weight, tile_begin, tile_end, x, x_stride, row_begin, row_end, out,
                                            out_stride, bias);
    default: return;  // quantised types go to linear_quantized
  }
}

}  // namespace ferrum::FERRUM_ISA
