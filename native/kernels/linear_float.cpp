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

template <WeightType T>
void linear_tiles(const WeightView& weight, int tile_begin, int tile_end, const float* x, size_t x_stride,
                  int row_begin, int row_end, float* out, size_t out_stride, const float* bias) {
  constexpr int most = 8;
  for (int tile = tile_begin; tile < tile_end; ++tile) {
    const uint8_t* data = weight.data + size_t(tile) * weight.tile_bytes;
    const float* tile_bias = bias ? bias + tile * kTileColumns : nullptr;
    for (int row = row_begin; row < row_end;) {
      const int left = row_end - row;
      const int rows = left >= most ? most : (left >= 4 ? 4 : (left >= 2 ? 2 : 1));
      const float* input = x + size_t(row) * x_stride;
      float* target = out + size_t(row) * out_stride + tile * kTileColumns;
      for (int column = 0; column < kTileColumns; column += kWidth) {
        switch (rows) {
          case 1:
            register_tile<T, 1>(data, weight.columns, column, input, x_stride, target, out_stride, tile_bias);
            break;
          case 2:
            register_tile<T, 2>(data, weight.columns, column, input, x_stride, target, out_stride, tile_bias);
            break;
          case 4:
            register_tile<T, 4>(data, weight.columns, column, input, x_stride, target, out_stride, tile_bias);
            break;
          default: register_tile<T, most>(data, weight.columns, column, input, x_stride, target, out_stride, tile_bias);
        }
      }
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
