// Block formats as in the GGUF specification (ggml-org/ggml, docs/gguf.md) and ggml's quantisation structures.
#include "weight_packing.h"

#include <cstring>
#include <stdexcept>
#include <string>

#include "half.h"

namespace ferrum {
namespace {

struct SourceBlock {
  int values;
  int bytes;
};

SourceBlock source_block(WeightType type) {
  switch (type) {
    case WeightType::F32: return {1, 4};
    case WeightType::F16:
    case WeightType::BF16: return {1, 2};
    case WeightType::Q4_0: return {32, 18};
    case WeightType::Q4_1: return {32, 20};
    case WeightType::Q5_0: return {32, 22};
    case WeightType::Q5_1: return {32, 24};
    case WeightType::Q8_0: return {32, 34};
    case WeightType::Q2_K: return {256, 84};
    case WeightType::Q3_K: return {256, 110};
    case WeightType::Q4_K: return {256, 144};
    case WeightType::Q5_K: return {256, 176};
    case WeightType::Q6_K: return {256, 210};
  }
  throw std::invalid_argument("unknown weight type " + std::to_string(int(type)));
}

// Scales of one block as they are packed: halves d (and minimum), and for superblocks the small integers per group.
struct BlockScales {
  uint16_t d = 0;
  uint16_t minimum = 0;
  uint8_t scale[16] = {};          // per group; Q2_K: scale and minimum nibbles; Q3_K, Q6_K: signed
  uint8_t scale_minimum[16] = {};  // Q4_K, Q5_K
};

uint16_t load_half(const uint8_t* p) {
  uint16_t value;
  memcpy(&value, p, 2);
  return value;
}

// The eight 6-bit scales and minimums of Q4_K and Q5_K, packed into 12 bytes.
void read_scales_k4(const uint8_t* p, BlockScales& out) {
  for (int j = 0; j < 8; ++j) {
    if (j < 4) {
      out.scale[j] = p[j] & 63;
      out.scale_minimum[j] = p[j + 4] & 63;
    } else {
      out.scale[j] = uint8_t((p[j + 4] & 15) | ((p[j - 4] >> 6) << 4));
      out.scale_minimum[j] = uint8_t((p[j + 4] >> 4) | ((p[j] >> 6) << 4));
    }
  }
}

// The sixteen 6-bit scales of Q3_K, less 32.
void read_scales_k3(const uint8_t* p, BlockScales& out) {
  for (int i = 0; i < 16; ++i) {
    const int low = i < 8 ? p[i] & 15 : p[i - 8] >> 4;
    const int high = (p[8 + i % 4] >> (2 * (i / 4))) & 3;
    out.scale[i] = uint8_t(int8_t((low | (high << 4)) - 32));
  }
}

BlockScales read_scales(WeightType type, const uint8_t* block) {
  BlockScales s;
  switch (type) {
    case WeightType::Q4_0:
    case WeightType::Q5_0:
    case WeightType::Q8_0: s.d = load_half(block); break;
    case WeightType::Q4_1:
    case WeightType::Q5_1:
      s.d = load_half(block);
      s.minimum = load_half(block + 2);
      break;
    case WeightType::Q2_K:
      memcpy(s.scale, block, 16);
      s.d = load_half(block + 80);
      s.minimum = load_half(block + 82);
      break;
    case WeightType::Q3_K:
      read_scales_k3(block + 96, s);
      s.d = load_half(block + 108);
      break;
    case WeightType::Q4_K:
    case WeightType::Q5_K:
      s.d = load_half(block);
      s.minimum = load_half(block + 2);
      read_scales_k4(block + 4, s);
      break;
    case WeightType::Q6_K:
      memcpy(s.scale, block + 192, 16);
      s.d = load_half(block + 208);
      break;
    default: break;
  }
  return s;
}

// The 32 stored (offset, unsigned) codes of group ``g`` of a block.
void read_codes(WeightType type, const uint8_t* block, int g, uint8_t* codes) {
  switch (type) {
    case WeightType::Q4_0:
    case WeightType::Q4_1: {
      const uint8_t* q = block + (type == WeightType::Q4_0 ? 2 : 4);
      for (int j = 0; j < 16; ++j) {
        codes[j] = q[j] & 15;
        codes[j + 16] = q[j] >> 4;
      }
      break;
    }
    case WeightType::Q5_0:
    case WeightType::Q5_1: {
      const uint8_t* h = block + (type == WeightType::Q5_0 ? 2 : 4);
      const uint8_t* q = h + 4;
      uint32_t high;
      memcpy(&high, h, 4);
      for (int j = 0; j < 16; ++j) {
        codes[j] = uint8_t((q[j] & 15) | (((high >> j) & 1) << 4));
        codes[j + 16] = uint8_t((q[j] >> 4) | (((high >> (j + 16)) & 1) << 4));
      }
      break;
    }
    case WeightType::Q8_0:
      for (int j = 0; j < 32; ++j) codes[j] = uint8_t(block[2 + j] ^ 0x80);
      break;
    case WeightType::Q2_K: {
      const uint8_t* q = block + 16 + 32 * (g / 4);
      for (int j = 0; j < 32; ++j) codes[j] = (q[j] >> (2 * (g % 4))) & 3;
      break;
    }
    case WeightType::Q3_K: {
      const uint8_t* h = block;
      const uint8_t* q = block + 32 + 32 * (g / 4);
      for (int j = 0; j < 32; ++j) codes[j] = uint8_t(((q[j] >> (2 * (g % 4))) & 3) | (((h[j] >> g) & 1) << 2));
      break;
    }
    case WeightType::Q4_K: {
      const uint8_t* q = block + 16 + 32 * (g / 2);
      for (int j = 0; j < 32; ++j) codes[j] = g % 2 ? q[j] >> 4 : q[j] & 15;
      break;
    }
    case WeightType::Q5_K: {
      const uint8_t* h = block + 16;
      const uint8_t* q = block + 48 + 32 * (g / 2);
      for (int j = 0; j < 32; ++j) codes[j] = uint8_t((g % 2 ? q[j] >> 4 : q[j] & 15) | (((h[j] >> g) & 1) << 4));
      break;
    }
    case WeightType::Q6_K: {
      const int half = g / 4, part = g % 4;
      const uint8_t* low = block + 64 * half + 32 * (part % 2);
      const uint8_t* high = block + 128 + 32 * half;
      for (int j = 0; j < 32; ++j)
        codes[j] = uint8_t((part < 2 ? low[j] & 15 : low[j] >> 4) | (((high[j] >> (2 * part)) & 3) << 4));
      break;
    }
    default: break;
  }
}

// Places 32 codes of tile column ``column`` into the group's planes, see formats.h.
void place_codes(const WeightLayout& layout, const uint8_t* codes, int column, uint8_t* group) {
  uint8_t* low = group + 4 * column;
  if (layout.low_bits == 8) {
    for (int quad = 0; quad < 8; ++quad) memcpy(low + 64 * quad, codes + 4 * quad, 4);
    return;
  }
  const uint8_t mask = uint8_t((1 << layout.low_bits) - 1);
  if (layout.low_bits == 4) {
    for (int v = 0; v < 4; ++v)
      for (int i = 0; i < 4; ++i)
        low[64 * v + i] = uint8_t((codes[4 * v + i] & mask) | ((codes[16 + 4 * v + i] & mask) << 4));
  } else {
    for (int quad = 0; quad < 8; ++quad)
      for (int i = 0; i < 4; ++i) low[64 * (quad / 4) + i] |= uint8_t((codes[4 * quad + i] & mask) << (2 * (quad % 4)));
  }
  uint8_t* high = low + 64 * layout.low_bits;
  for (int quad = 0; quad < 8 && layout.high_bits > 0; ++quad) {
    const int per_vector = layout.high_bits == 1 ? 8 : 4;
    for (int i = 0; i < 4; ++i) {
      const int bits = codes[4 * quad + i] >> layout.low_bits;
      high[64 * (quad / per_vector) + i] |= uint8_t(bits << (layout.high_bits * (quad % per_vector)));
    }
  }
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

void place_scales(const WeightLayout& layout, const BlockScales& s, int column, uint8_t* run) {
  uint16_t* halves = reinterpret_cast<uint16_t*>(run);
  halves[column] = s.d;
  if (layout.has_minimum) halves[kTileColumns + column] = s.minimum;
  if (!layout.has_superblock) return;
  uint8_t* small = run + 2 * kTileColumns * (layout.has_minimum ? 2 : 1) + column;
  const bool two = layout.has_minimum && layout.group == 32;
  for (int g = 0; g < kSuperblock / layout.group; ++g, small += kTileColumns * (two ? 2 : 1)) {
    small[0] = s.scale[g];
    if (two) small[kTileColumns] = s.scale_minimum[g];
  }
}

template <typename T>
void pack_float_tile(int rows, int columns, const uint8_t* source, uint8_t* target, int tile) {
  T* out = reinterpret_cast<T*>(target);
  for (int c = 0; c < kTileColumns; ++c) {
    const int row = tile * kTileColumns + c;
    if (row >= rows) continue;  // the arena starts as zeros
    const uint8_t* input = source + size_t(row) * columns * sizeof(T);
    for (int k = 0; k < columns; ++k) memcpy(out + size_t(k) * kTileColumns + c, input + k * sizeof(T), sizeof(T));
  }
}

size_t round_up(size_t value, size_t unit) { return (value + unit - 1) / unit * unit; }

}  // namespace

size_t source_row_bytes(WeightType type, int columns) {
  const SourceBlock block = source_block(type);
  return size_t(columns) / block.values * block.bytes;
}

PackedSize packed_size(WeightType type, int rows, int columns) {
  const SourceBlock block = source_block(type);
  if (rows < 1 || columns < 1 || columns % block.values != 0)
    throw std::invalid_argument("weight of " + std::to_string(rows) + " x " + std::to_string(columns) +
                                " does not suit blocks of " + std::to_string(block.values));
  const int tiles = (rows + kTileColumns - 1) / kTileColumns;
  const WeightLayout* layout = layout_of(type);
  if (layout == nullptr) {
    const size_t bytes = round_up(size_t(columns) * kTileColumns * block.bytes, 64);
    return {bytes, bytes, tiles};
  }
  const size_t codes = size_t(columns / kGroup) * layout->code_bytes;
  const size_t runs = layout->has_superblock ? columns / kSuperblock : columns / kGroup;
  return {round_up(codes + runs * layout->scale_bytes, 64), codes, tiles};
}

void pack_tiles(WeightType type, int rows, int columns, const uint8_t* source, uint8_t* target, int tile_begin,
                int tile_end) {
  const PackedSize size = packed_size(type, rows, columns);
  const WeightLayout* layout = layout_of(type);
  const SourceBlock block = source_block(type);
  const size_t row_bytes = source_row_bytes(type, columns);
  for (int tile = tile_begin; tile < tile_end; ++tile) {
    uint8_t* out = target + size_t(tile) * size.tile_bytes;
    if (layout == nullptr) {
      if (type == WeightType::F32) pack_float_tile<uint32_t>(rows, columns, source, out, tile);
      else pack_float_tile<uint16_t>(rows, columns, source, out, tile);
      continue;
    }
    const int groups_per_block = block.values / kGroup;
    for (int c = 0; c < kTileColumns && tile * kTileColumns + c < rows; ++c) {
      const uint8_t* row = source + size_t(tile * kTileColumns + c) * row_bytes;
      for (int b = 0; b < columns / block.values; ++b) {
        const uint8_t* input = row + size_t(b) * block.bytes;
        for (int g = 0; g < groups_per_block; ++g) {
          uint8_t codes[kGroup];
          read_codes(type, input, g, codes);
          place_codes(*layout, codes, c, out + size_t(b * groups_per_block + g) * layout->code_bytes);
        }
        place_scales(*layout, read_scales(type, input), c, out + size.scales_offset + size_t(b) * layout->scale_bytes);
      }
    }
  }
}

void read_row(const WeightView& weight, int row, float* out) {
  const uint8_t* tile = weight.data + size_t(row / kTileColumns) * weight.tile_bytes;
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
