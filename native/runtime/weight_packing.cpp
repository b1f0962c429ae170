// Block formats as in the GGUF specification (ggml-org/ggml, docs/gguf.md) and ggml's quantisation structures.
#include "weight_packing.h"

#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <string>

namespace ferrum {
namespace {

struct SourceBlock {
  int values;
  int bytes;
};

constexpr SourceBlock source_block(WeightType type) {
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
  uint8_t scale[16] = {};          // per group; Q2_K: scale and minimum nibbles; Q6_K: signed
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

// The sixteen 6-bit scales of Q3_K, more by 32 than they stand for.
void read_scales_k3(const uint8_t* p, BlockScales& out) {
  for (int i = 0; i < 16; ++i) {
    const int low = i < 8 ? p[i] & 15 : p[i - 8] >> 4;
    const int high = (p[8 + i % 4] >> (2 * (i / 4))) & 3;
    out.scale[i] = uint8_t(low | (high << 4));
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

// Codes move in words of four: one quad of a column, the code of input 4 * quad + i in byte i.
uint32_t load_word(const uint8_t* p) {
  uint32_t value;
  memcpy(&value, p, 4);
  return value;
}

constexpr uint32_t in_each_byte(uint32_t value) { return value * 0x01010101u; }

// Bits 0..3 of ``bits``, one to each byte.
uint32_t spread_bits(uint32_t bits) { return ((bits & 15) * 0x00204081u) & in_each_byte(1); }

// The stored (offset, unsigned) codes of one quad of group ``g`` of a block.
template <WeightType Type>
uint32_t read_quad(const uint8_t* block, int g, int quad) {
  if constexpr (Type == WeightType::Q4_0 || Type == WeightType::Q4_1) {
    const uint8_t* q = block + (Type == WeightType::Q4_0 ? 2 : 4);
    return (load_word(q + 4 * (quad % 4)) >> (quad < 4 ? 0 : 4)) & in_each_byte(15);
  } else if constexpr (Type == WeightType::Q5_0 || Type == WeightType::Q5_1) {
    const uint8_t* high = block + (Type == WeightType::Q5_0 ? 2 : 4);
    const uint32_t low = (load_word(high + 4 + 4 * (quad % 4)) >> (quad < 4 ? 0 : 4)) & in_each_byte(15);
    return low | (spread_bits(load_word(high) >> (4 * quad)) << 4);
  } else if constexpr (Type == WeightType::Q8_0) {
    return load_word(block + 2 + 4 * quad) ^ in_each_byte(0x80);
  } else if constexpr (Type == WeightType::Q2_K) {
    return (load_word(block + 16 + 32 * (g / 4) + 4 * quad) >> (2 * (g % 4))) & in_each_byte(3);
  } else if constexpr (Type == WeightType::Q3_K) {
    const uint32_t low = (load_word(block + 32 + 32 * (g / 4) + 4 * quad) >> (2 * (g % 4))) & in_each_byte(3);
    return low | (((load_word(block + 4 * quad) >> g) & in_each_byte(1)) << 2);
  } else if constexpr (Type == WeightType::Q4_K) {
    return (load_word(block + 16 + 32 * (g / 2) + 4 * quad) >> (4 * (g % 2))) & in_each_byte(15);
  } else if constexpr (Type == WeightType::Q5_K) {
    const uint32_t low = (load_word(block + 48 + 32 * (g / 2) + 4 * quad) >> (4 * (g % 2))) & in_each_byte(15);
    return low | (((load_word(block + 16 + 4 * quad) >> g) & in_each_byte(1)) << 4);
  } else {
    static_assert(Type == WeightType::Q6_K);
    const int half = g / 4, part = g % 4;
    const uint32_t low = load_word(block + 64 * half + 32 * (part % 2) + 4 * quad);
    const uint32_t high = load_word(block + 128 + 32 * half + 4 * quad);
    return ((low >> (part < 2 ? 0 : 4)) & in_each_byte(15)) | (((high >> (2 * part)) & in_each_byte(3)) << 4);
  }
}

// Places the eight quads of a column into its group's planes, see formats.h; ``group`` is the column's first word.
template <const WeightLayout& Layout>
void place_quads(const uint32_t (&quads)[8], uint8_t* group) {
  const auto store = [group](int vector, uint32_t word) { memcpy(group + 64 * vector, &word, 4); };
  constexpr uint32_t mask = in_each_byte((1u << Layout.low_bits) - 1);
  if constexpr (Layout.low_bits == 8) {
    for (int quad = 0; quad < 8; ++quad) store(quad, quads[quad]);
  } else if constexpr (Layout.low_bits == 4) {
    for (int v = 0; v < 4; ++v) store(v, (quads[v] & mask) | ((quads[v + 4] & mask) << 4));
  } else {
    for (int v = 0; v < 2; ++v) {
      uint32_t word = 0;
      for (int i = 0; i < 4; ++i) word |= (quads[4 * v + i] & mask) << (2 * i);
      store(v, word);
    }
  }
  if constexpr (Layout.high_bits > 0) {
    constexpr int low_bits = Layout.low_bits, high_bits = Layout.high_bits;
    constexpr int per_vector = high_bits == 1 ? 8 : 4;
    constexpr uint32_t high_mask = in_each_byte((1u << high_bits) - 1);
    for (int v = 0; v < 8 / per_vector; ++v) {
      uint32_t word = 0;
      for (int i = 0; i < per_vector; ++i) {
        const uint32_t high = (quads[per_vector * v + i] >> low_bits) & high_mask;
        word |= high << (high_bits * i);
      }
      store(low_bits + v, word);
    }
  }
}

// Four integers of six bits, see formats.h.
void place_six_bits(int first, int second, int third, int fourth, uint8_t* target) {
  target[0] = uint8_t(first | third >> 4 << 6);
  target[kTileColumns] = uint8_t(second | fourth >> 4 << 6);
  target[2 * kTileColumns] = uint8_t((third & 15) | (fourth & 15) << 4);
}

void place_scales(const WeightLayout& layout, const BlockScales& s, int column, uint8_t* run) {
  uint16_t* halves = reinterpret_cast<uint16_t*>(run);
  halves[column] = s.d;
  if (layout.has_minimum) halves[kTileColumns + column] = s.minimum;
  if (!layout.has_superblock()) return;
  uint8_t* small = run + layout.half_bytes() + column;
  const int groups = kSuperblock / layout.group;
  if (layout.small_bits != 6) {
    for (int g = 0; g < groups; ++g) small[g * kTileColumns] = s.scale[g];
  } else if (layout.has_minimum) {
    for (int g = 0; g < groups; g += 2, small += kFourSixBits)
      place_six_bits(s.scale[g], s.scale_minimum[g], s.scale[g + 1], s.scale_minimum[g + 1], small);
  } else {
    for (int g = 0; g < groups; g += 4, small += kFourSixBits)
      place_six_bits(s.scale[g], s.scale[g + 1], s.scale[g + 2], s.scale[g + 3], small);
  }
}

template <typename T>
void pack_float_tile(int rows, int columns, const uint8_t* source, uint8_t* target, int tile) {
  constexpr int run = 64 / sizeof(T);  // a cache line of each row at a time
  T* out = reinterpret_cast<T*>(target);
  const int count = std::min(kTileColumns, rows - tile * kTileColumns);  // the arena starts as zeros
  for (int start = 0; start < columns; start += run)
    for (int c = 0; c < count; ++c) {
      const uint8_t* input = source + size_t(tile * kTileColumns + c) * columns * sizeof(T);
      for (int k = start; k < std::min(start + run, columns); ++k)
        memcpy(out + size_t(k) * kTileColumns + c, input + k * sizeof(T), sizeof(T));
    }
}

// Group by group over all columns, so that a group's planes are written while they are in the nearest cache.
template <WeightType Type, const WeightLayout& Layout>
void pack_quantized_tile(int rows, int columns, const uint8_t* source, uint8_t* target, size_t scales_offset,
                         int tile) {
  constexpr SourceBlock block = source_block(Type);
  constexpr int groups_per_block = block.values / kGroup;
  const size_t row_bytes = source_row_bytes(Type, columns);
  const uint8_t* first = source + size_t(tile) * kTileColumns * row_bytes;
  const int count = std::min(kTileColumns, rows - tile * kTileColumns);
  for (int b = 0; b < columns / block.values; ++b) {
    const uint8_t* input = first + size_t(b) * block.bytes;
    for (int c = 0; c < count; ++c)
      place_scales(Layout, read_scales(Type, input + c * row_bytes), c,
                   target + scales_offset + size_t(b) * Layout.scale_bytes);
    for (int g = 0; g < groups_per_block; ++g) {
      uint8_t* group = target + size_t(b * groups_per_block + g) * Layout.code_bytes;
      for (int c = 0; c < count; ++c) {
        uint32_t quads[8];
        for (int quad = 0; quad < 8; ++quad) quads[quad] = read_quad<Type>(input + c * row_bytes, g, quad);
        place_quads<Layout>(quads, group + 4 * c);
      }
    }
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
  const size_t runs = layout->has_superblock() ? columns / kSuperblock : columns / kGroup;
  return {round_up(codes + runs * layout->scale_bytes, 64), codes, tiles};
}

void pack_tile(WeightType type, int rows, int columns, const uint8_t* source, int tile, uint8_t* target) {
  const PackedSize size = packed_size(type, rows, columns);
  const auto pack = [&]<WeightType Type, const WeightLayout & Layout>() {
    pack_quantized_tile<Type, Layout>(rows, columns, source, target, size.scales_offset, tile);
  };
  switch (type) {
    case WeightType::F32: return pack_float_tile<uint32_t>(rows, columns, source, target, tile);
    case WeightType::F16:
    case WeightType::BF16: return pack_float_tile<uint16_t>(rows, columns, source, target, tile);
    case WeightType::Q4_0: return pack.template operator()<WeightType::Q4_0, kQ4_0>();
    case WeightType::Q4_1: return pack.template operator()<WeightType::Q4_1, kQ4_1>();
    case WeightType::Q5_0: return pack.template operator()<WeightType::Q5_0, kQ5_0>();
    case WeightType::Q5_1: return pack.template operator()<WeightType::Q5_1, kQ5_1>();
    case WeightType::Q8_0: return pack.template operator()<WeightType::Q8_0, kQ8_0>();
    case WeightType::Q2_K: return pack.template operator()<WeightType::Q2_K, kQ2_K>();
    case WeightType::Q3_K: return pack.template operator()<WeightType::Q3_K, kQ3_K>();
    case WeightType::Q4_K: return pack.template operator()<WeightType::Q4_K, kQ4_K>();
    case WeightType::Q5_K: return pack.template operator()<WeightType::Q5_K, kQ5_K>();
    case WeightType::Q6_K: return pack.template operator()<WeightType::Q6_K, kQ6_K>();
  }
}

WeightView pack_matrix(WeightType type, int rows, int columns, const uint8_t* source, uint8_t* target) {
  const PackedSize size = packed_size(type, rows, columns);
  for (int tile = 0; tile < size.tiles; ++tile)
    pack_tile(type, rows, columns, source, tile, target + size_t(tile) * size.tile_bytes);
  return {type, rows, columns, target, size.tile_bytes, 2 * size.tile_bytes, size.scales_offset};
}

}  // namespace ferrum
