// Weight storage: how a weight matrix lies in memory for the kernels, and the views they work on. Plain data only.
//
// A matrix of N outputs by K inputs is cut into tiles of 16 outputs ("columns" of the product). Each tile is one
// contiguous run: codes of all its groups, then scales of all its groups.
//
// Codes of one group of 32 inputs are vectors of 64 bytes; byte (column * 4 + i) belongs to that column and to input
// 4 * quad + i, quads 0..7. All codes are stored unsigned (code + offset):
//   low 4 bits: 4 vectors; vector v holds quad v in the low and quad v + 4 in the high nibble
//   8 bits:     8 vectors, one per quad
//   low 2 bits: 2 vectors; vector v holds quads 4v..4v+3, two bits each from the low end
//   1 high bit: 1 vector, bit q of a byte is quad q's;  2 high bits: 2 vectors as the low 2 bits
// F32, F16 and BF16 tiles are [K][16] values.
//
// Scales of one superblock of 256 inputs, each entry a vector of 16 columns: d, then its like for minimums, as halves;
// then a small integer for each scale and minimum. Of 8 bits: a byte each. Of 4: scale and minimum share a byte. Of 6,
// three bytes for four integers (two scales and their minimums in turns, or four scales where there are no minimums):
// the first and second with two bits on top, the high ones of the third and fourth, whose low four share the third byte.
#pragma once

#include <cstddef>
#include <cstdint>

namespace ferrum {

inline constexpr int kTileColumns = 16;
inline constexpr int kGroup = 32;
inline constexpr int kSuperblock = 256;
inline constexpr int kFourSixBits = 3 * kTileColumns;  // bytes of four small integers of six bits for each column

// Values are GGUF's ids, so that the Python side needs no second table.
enum class WeightType : int32_t {
  F32 = 0,
  F16 = 1,
  Q4_0 = 2,
  Q4_1 = 3,
  Q5_0 = 6,
  Q5_1 = 7,
  Q8_0 = 8,
  Q2_K = 10,
  Q3_K = 11,
  Q4_K = 12,
  Q5_K = 13,
  Q6_K = 14,
  BF16 = 30,
};

struct WeightLayout {
  int low_bits;   // 2, 4 or 8 stored in the low plane
  int high_bits;  // 0, 1 or 2 stored in the high plane
  int offset;     // stored code = code + offset
  int group;      // inputs per scale: 16 or 32
  bool has_minimum;
  int small_bits;   // not 0: scale = d * small integer of so many bits, d once per 256 inputs
  int code_bytes;   // per tile and 32 inputs
  int scale_bytes;  // per tile and 32 inputs; per 256 inputs with small integers

  constexpr bool has_superblock() const { return small_bits != 0; }
  constexpr int half_bytes() const { return 2 * kTileColumns * (has_minimum ? 2 : 1); }
};

static constexpr WeightLayout make_layout(int low, int high, int offset, int group, bool minimum, int small_bits = 0) {
  WeightLayout layout{low, high, offset, group, minimum, small_bits, 64 * (low + high), 0};
  const int small_integers = kSuperblock / group * (minimum ? 2 : 1);
  layout.scale_bytes = layout.half_bytes() + small_integers * small_bits / 8 * kTileColumns;
  return layout;
}

inline constexpr WeightLayout kQ4_0 = make_layout(4, 0, 8, 32, false);
inline constexpr WeightLayout kQ4_1 = make_layout(4, 0, 0, 32, true);
inline constexpr WeightLayout kQ5_0 = make_layout(4, 1, 16, 32, false);
inline constexpr WeightLayout kQ5_1 = make_layout(4, 1, 0, 32, true);
inline constexpr WeightLayout kQ8_0 = make_layout(8, 0, 128, 32, false);
inline constexpr WeightLayout kQ2_K = make_layout(2, 0, 0, 16, true, 4);
inline constexpr WeightLayout kQ3_K = make_layout(2, 1, 4, 16, false, 6);
inline constexpr WeightLayout kQ4_K = make_layout(4, 0, 0, 32, true, 6);
inline constexpr WeightLayout kQ5_K = make_layout(4, 1, 0, 32, true, 6);
inline constexpr WeightLayout kQ6_K = make_layout(4, 2, 32, 16, false, 8);

static constexpr const WeightLayout* layout_of(WeightType type) {
  switch (type) {
    case WeightType::Q4_0: return &kQ4_0;
    case WeightType::Q4_1: return &kQ4_1;
    case WeightType::Q5_0: return &kQ5_0;
    case WeightType::Q5_1: return &kQ5_1;
    case WeightType::Q8_0: return &kQ8_0;
    case WeightType::Q2_K: return &kQ2_K;
    case WeightType::Q3_K: return &kQ3_K;
    case WeightType::Q4_K: return &kQ4_K;
    case WeightType::Q5_K: return &kQ5_K;
    case WeightType::Q6_K: return &kQ6_K;
    default: return nullptr;  // F32, F16, BF16
  }
}

struct WeightView {
  WeightType type;
  int rows;              // N, outputs
  int columns;           // K, inputs
  const uint8_t* data;   // tiles, two and two in one run
  size_t tile_bytes;     // of a tile
  size_t pair_distance;  // from two tiles to the next two: more than theirs where tiles of other weights lie between
  size_t scales_offset;  // of a tile's scales within the tile

  const uint8_t* tile(int index) const {
    return data + size_t(index / 2) * pair_distance + size_t(index % 2) * tile_bytes;
  }
};

// Rows of activations quantised per 32 values; see docs/numerics.md.
struct QuantizedRowsView {
  const int8_t* codes;         // [rows, padded]
  const float* scales;         // [rows, groups]
  const float* scaled_sums32;  // [rows, groups]      scale * sum of the 32 codes
  const float* scaled_sums16;  // [rows, 2 * groups]  scale * sum of 16 codes
  const int32_t* sums32;       // [rows, groups]
  const int32_t* sums16;       // [rows, 2 * groups]
  int padded;                  // columns rounded up to 32
  int groups;                  // padded / 32
};

struct QuantizedRows : QuantizedRowsView {
  int8_t* codes_out;
  float* scales_out;
  float* scaled_sums32_out;
  float* scaled_sums16_out;
  int32_t* sums32_out;
  int32_t* sums16_out;

  // The same rows to be written from this group on.
  QuantizedRows from_group(int group) const {
    QuantizedRows rest = *this;
    rest.codes_out += size_t(group) * kGroup;
    rest.scales_out += group;
    rest.scaled_sums32_out += group;
    rest.scaled_sums16_out += 2 * group;
    rest.sums32_out += group;
    rest.sums16_out += 2 * group;
    return rest;
  }
};

}  // namespace ferrum
