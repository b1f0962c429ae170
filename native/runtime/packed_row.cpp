// Single rows out of the kernels' tiles (kernels/formats.h): what an embedding reads.
#include <cstring>

#include "half.h"
#include "weight_packing.h"

namespace ferrum {
namespace {

uint16_t load_half(const uint8_t* p) {
  uint16_t value;
  memcpy(&value, p, 2);
  return value;
}

uint8_t stored_code(const WeightLayout& layout, const uint8_t* group, int column, int k) {
  const int quad = k / 4, i = k % 4;
  const uint8_t* low = group + 4 * column + i;
  int code;
  if (layout.low_bits == 8) return low[64 * quad];
  if (layout.low_bits == 4) {
    code = quad < 4 ? low[64 * quad] & 15 : low[64 * (quad - 4)] >> 4;
  } else {
    code = (low[64 * (quad / 4)] >> (2 * (quad % 4))) & 3;
  }
  const uint8_t* high = low + 64 * layout.low_bits;
  if (layout.high_bits == 1) code |= ((high[0] >> quad) & 1) << layout.low_bits;
  if (layout.high_bits == 2) code |= ((high[64 * (quad / 4)] >> (2 * (quad % 4))) & 3) << layout.low_bits;
  return uint8_t(code);
}

}  // namespace

void read_row(const WeightView& weight, int row, float* out) {
  const uint8_t* tile = weight.tile(row / kTileColumns);
  const int column = row % kTileColumns;
  const WeightLayout* layout = layout_of(weight.type);
  if (layout == nullptr) {
    for (int k = 0; k < weight.columns; ++k) {
      const size_t index = size_t(k) * kTileColumns + column;
      if (weight.type == WeightType::F32) memcpy(out + k, tile + index * 4, 4);
      else if (weight.type == WeightType::F16) out[k] = half_to_float(load_half(tile + index * 2));
      else out[k] = bfloat_to_float(load_half(tile + index * 2));
    }
    return;
  }
  const uint8_t* scales = tile + weight.scales_offset;
  for (int start = 0; start < weight.columns; start += layout->group) {
    float scale, minimum = 0.0f;
    if (!layout->has_superblock) {
      const uint8_t* run = scales + size_t(start / kGroup) * layout->scale_bytes;
      scale = half_to_float(load_half(run + 2 * column));
      if (layout->has_minimum) minimum = half_to_float(load_half(run + 2 * (kTileColumns + column)));
    } else {
      const uint8_t* run = scales + size_t(start / kSuperblock) * layout->scale_bytes;
      const int g = start % kSuperblock / layout->group;
      const uint8_t* small = run + 2 * kTileColumns * (layout->has_minimum ? 2 : 1) + column;
      const float d = half_to_float(load_half(run + 2 * column));
      if (layout->has_minimum) {
        const float d_minimum = half_to_float(load_half(run + 2 * (kTileColumns + column)));
        const bool two = layout->group == 32;
        const uint8_t* entry = small + g * kTileColumns * (two ? 2 : 1);
        scale = d * float(two ? entry[0] : entry[0] & 15);
        minimum = -(d_minimum * float(two ? entry[kTileColumns] : entry[0] >> 4));
      } else {
        scale = d * float(int8_t(small[g * kTileColumns]));
      }
    }
    for (int k = start; k < start + layout->group; ++k) {
      const uint8_t* group = tile + size_t(k / kGroup) * layout->code_bytes;
      const float product = scale * float(int(stored_code(*layout, group, column, k % kGroup)) - layout->offset);
      out[k] = layout->has_minimum ? product + minimum : product;
    }
  }
}

}  // namespace ferrum
