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

// Small integer ``index`` of four of six bits, of which a column's three bytes begin at ``four``.
int six_bits(const uint8_t* four, int index) {
  const int low = four[2 * kTileColumns];
  switch (index) {
    case 0: return four[0] & 63;
    case 1: return four[kTileColumns] & 63;
    case 2: return (low & 15) | (four[0] >> 6 << 4);
    default: return (low >> 4) | (four[kTileColumns] >> 6 << 4);
  }
}

struct GroupScales {
  float scale;
  float minimum;
};

GroupScales read_scales(const WeightLayout& layout, const uint8_t* scales, int start, int column) {
  const uint8_t* run = scales + size_t(start / (layout.has_superblock() ? kSuperblock : kGroup)) * layout.scale_bytes;
  const float d = half_to_float(load_half(run + 2 * column));
  const float d_minimum = layout.has_minimum ? half_to_float(load_half(run + 2 * (kTileColumns + column))) : 0.0f;
  if (!layout.has_superblock()) return {d, d_minimum};
  const uint8_t* small = run + layout.half_bytes() + column;
  const int g = start % kSuperblock / layout.group;
  if (layout.small_bits == 8) return {d * float(int8_t(small[g * kTileColumns])), 0.0f};
  if (layout.small_bits == 4) {
    const uint8_t both = small[g * kTileColumns];
    return {d * float(both & 15), -(d_minimum * float(both >> 4))};
  }
  if (!layout.has_minimum) return {d * float(six_bits(small + g / 4 * kFourSixBits, g % 4) - 32), 0.0f};
  const uint8_t* four = small + g / 2 * kFourSixBits;
  return {d * float(six_bits(four, g % 2 * 2)), -(d_minimum * float(six_bits(four, g % 2 * 2 + 1)))};
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
    const auto [scale, minimum] = read_scales(*layout, scales, start, column);
    for (int k = start; k < start + layout->group; ++k) {
      const uint8_t* group = tile + size_t(k / kGroup) * layout->code_bytes;
      const float product = scale * float(int(stored_code(*layout, group, column, k % kGroup)) - layout->offset);
      out[k] = layout->has_minimum ? product + minimum : product;
    }
  }
}

}  // namespace ferrum
