// Scales and minimums of the groups of a quantised tile, as vectors of columns (formats.h says how they lie).
#pragma once

#include "formats.h"
#include "vector.h"

namespace ferrum::FERRUM_ISA {

struct GroupScales {
  Vector scale;
  Vector minimum;
};

struct SmallIntegers {
  IntVector first;
  IntVector second;
};

// The first and second of four, or the third and fourth; see formats.h.
FERRUM_INLINE SmallIntegers six_bit_integers(const uint8_t* four, bool is_later_half) {
  const IntVector a = i_from_u8(four), b = i_from_u8(four + kTileColumns);
  if (!is_later_half) return {i_choose_bits(63, a, i_set(0)), i_choose_bits(63, b, i_set(0))};
  const IntVector low = i_from_u8(four + 2 * kTileColumns);
  return {i_choose_bits(15, low, i_shift_down<2>(a)), i_choose_bits(15, i_shift_down<4>(low), i_shift_down<2>(b))};
}

// Which scales of a run, which holds those of a superblock, or of 32 inputs where there are none.
struct ScaleIndex {
  int group32;  // within the run
  bool is_odd;  // group32 % 2, where the compiler can know it
  int half;     // of the 32 inputs, of types with a scale for 16
};

// Scale and minimum as integers, for the kWidth columns that begin at ``small``.
template <WeightLayout L>
FERRUM_INLINE SmallIntegers small_integers(const uint8_t* small, ScaleIndex index) {
  const uint8_t* one = small + (index.group32 * kGroup / L.group + index.half) * kTileColumns;
  if constexpr (L.small_bits == 8) {
    return {i_from_s8(reinterpret_cast<const int8_t*>(one)), i_set(0)};
  } else if constexpr (L.small_bits == 4) {
    const IntVector both = i_from_u8(one);
    return {i_choose_bits(15, both, i_set(0)), i_shift_down<4>(both)};
  } else {
    const SmallIntegers two = six_bit_integers(small + index.group32 / 2 * kFourSixBits, index.is_odd);
    if constexpr (L.has_minimum) return two;
    return {i_sub(index.half == 0 ? two.first : two.second, i_set(32)), i_set(0)};
  }
}

// For the kWidth columns from ``column`` on.
template <WeightLayout L>
FERRUM_INLINE GroupScales load_scales(const uint8_t* run, ScaleIndex index, int column) {
  const uint16_t* halves = reinterpret_cast<const uint16_t*>(run) + column;
  GroupScales result{};
  result.scale = v_from_half(halves);
  if constexpr (L.has_minimum) result.minimum = v_from_half(halves + kTileColumns);
  if constexpr (L.has_superblock()) {
    const SmallIntegers integers = small_integers<L>(run + L.half_bytes() + column, index);
    result.scale = v_mul(result.scale, v_from_int(integers.first));
    if constexpr (L.has_minimum) result.minimum = v_sub(v_zero(), v_mul(result.minimum, v_from_int(integers.second)));
  }
  return result;
}

// Where the scales of one or two neighbouring tiles come from: as they lie in memory, ...
struct PackedScales {
  const uint8_t* at;
  size_t tile_bytes;

  template <WeightLayout L>
  inline __attribute__((always_inline)) GroupScales of(int tile, int group32, int half, bool is_odd, int column) const {
    constexpr int groups = L.has_superblock() ? kSuperblock / kGroup : 1;
    const uint8_t* run = at + tile * tile_bytes + size_t(group32 / groups) * L.scale_bytes;
    return load_scales<L>(run, {group32 % groups, is_odd, half}, column);
  }
};

// ... or multiplied out, for many rows: a vector of 16 for each group, then one of minimums.
template <WeightLayout L>
inline constexpr int kFloatsOfGroup = kTileColumns * (L.has_minimum ? 2 : 1);

struct PlainScales {
  const float* at;
  size_t tile_floats;

  template <WeightLayout L>
  inline __attribute__((always_inline)) GroupScales of(int tile, int group32, int half, bool, int column) const {
    const float* group =
        at + tile * tile_floats + size_t(group32 * kGroup / L.group + half) * kFloatsOfGroup<L> + column;
    GroupScales result{};
    result.scale = v_load(group);
    if constexpr (L.has_minimum) result.minimum = v_load(group + kTileColumns);
    return result;
  }
};

template <WeightLayout L>
void multiply_out(const PackedScales& packed, int groups32, float* out) {
  for (int g32 = 0; g32 < groups32; ++g32)
    for (int half = 0; half < kGroup / L.group; ++half, out += kFloatsOfGroup<L>)
      for (int column = 0; column < kTileColumns; column += kWidth) {
        const GroupScales scales = packed.of<L>(0, g32, half, g32 % 2 != 0, column);
        v_store(out + column, scales.scale);
        if constexpr (L.has_minimum) v_store(out + kTileColumns + column, scales.minimum);
      }
}

}  // namespace ferrum::FERRUM_ISA
