// Linear on quantised weights: integer dot products per group, float32 scales, one accumulator per output.
//
// Register tile: some rows times kWidth columns of one or two tiles. For each group the integer dots of all rows are
// formed from the same unpacked codes; then acc = fma(float(dot), weight scale * activation scale, acc) and, for types
// with a minimum, acc = fma(minimum, scaled sum, acc). The shape is only a matter of speed: each row's arithmetic is its
// own.
#include "group_scales.h"
#include "integer_dots.h"
#include "kernel_table.h"

namespace ferrum::FERRUM_ISA {
namespace {

// ---- one register tile --------------------------------------------------------------------------------------------

struct RowPointers {
  const int8_t* codes;
  const float* scales;
  const float* scaled_sums;  // per L.group
  const int32_t* sums;       // per L.group
  size_t codes_stride;
  size_t scales_stride;
  size_t sums_stride;
};

// One or two neighbouring tiles.
template <class Scales>
struct TilePointers {
  const uint8_t* codes;
  size_t tile_bytes;
  Scales scales;
};

// Vectors: of columns, side by side in a tile (AVX2), then in its neighbour. Each activation that is loaded serves all.
// ``half``: of the group's 32 inputs, of types with a scale for 16. ``is_odd``: ``g32``, where the compiler can know it.
template <WeightLayout L, int FirstQuad, int EndQuad, int Rows, int Vectors, class Scales>
FERRUM_INLINE void accumulate_group(const TilePointers<Scales>& w, int g32, int half, bool is_odd, const RowPointers& x,
                                    Vector (*acc)[Rows]) {
  const int g = g32 * kGroup / L.group + half;
  static_assert(kParts == 1 || Vectors == kParts);
  const size_t vector_bytes = kParts == 1 ? w.tile_bytes : 4 * kWidth;
  IntVector dot[Vectors][Rows];
#pragma GCC unroll 2
  for (int v = 0; v < Vectors; ++v) {
#pragma GCC unroll 16
    for (int r = 0; r < Rows; ++r) {
      if constexpr (kDotsNeedOffset<L>) {
        dot[v][r] = i_set(-L.offset * x.sums[r * x.sums_stride + g]);
      } else {
        dot[v][r] = i_set(0);
      }
    }
  }
  add_dots<L, FirstQuad, EndQuad, Rows, Vectors>(w.codes, vector_bytes, x.codes + size_t(g32) * kGroup, x.codes_stride,
                                                 dot);
#pragma GCC unroll 2
  for (int v = 0; v < Vectors; ++v) {
    const int tile = v / kParts, column = v % kParts * kWidth;
    const GroupScales scales = w.scales.template of<L>(tile, g32, half, is_odd, column);
#pragma GCC unroll 16
    for (int r = 0; r < Rows; ++r) {
      const Vector scale = v_mul(scales.scale, v_set(x.scales[r * x.scales_stride + g32]));
      acc[v][r] = v_fma(v_from_int(dot[v][r]), scale, acc[v][r]);
      if constexpr (L.has_minimum)
        acc[v][r] = v_fma(scales.minimum, v_set(x.scaled_sums[r * x.sums_stride + g]), acc[v][r]);
    }
  }
}

// What is worked on later is asked for now, evenly: each group asks for its share of these bytes.
struct Prefetch {
  const uint8_t* at;
  size_t bytes;
};

struct SpreadPrefetch {
  SpreadPrefetch(const Prefetch& all, int groups) : asked(all.at), until(all.at), step(all.bytes / size_t(groups)) {}
  inline __attribute__((always_inline)) void ask() {
    for (until += step; asked < until; asked += 64) __builtin_prefetch(asked);
  }
  const uint8_t* asked;
  const uint8_t* until;
  size_t step;
};

// Groups ``g32 + Index`` to ``g32 + Together - 1`` of a tile, unrolled, so that the compiler knows which are odd.
template <WeightLayout L, int Index, int Together, int Rows, int Vectors, class Scales>
FERRUM_INLINE void accumulate_groups(const TilePointers<Scales>& w, int g32, SpreadPrefetch& next, const RowPointers& x,
                                     Vector (*acc)[Rows]) {
  next.ask();
  const int g = g32 + Index;
  const bool is_odd = Together == 2 ? Index == 1 : g % 2 != 0;
  const TilePointers<Scales> here{w.codes + size_t(Index) * L.code_bytes, w.tile_bytes, w.scales};
  if constexpr (L.group == 32) {
    accumulate_group<L, 0, 8, Rows, Vectors>(here, g, 0, is_odd, x, acc);
  } else {
    accumulate_group<L, 0, 4, Rows, Vectors>(here, g, 0, is_odd, x, acc);
    accumulate_group<L, 4, 8, Rows, Vectors>(here, g, 1, is_odd, x, acc);
  }
  if constexpr (Index + 1 < Together) accumulate_groups<L, Index + 1, Together, Rows, Vectors>(w, g32, next, x, acc);
}

template <WeightLayout L, int Rows, int Tiles, class Scales>
void register_tile(TilePointers<Scales> w, int groups32, const Prefetch& ahead, const RowPointers& x, float* out,
                   size_t out_stride, const float* bias) {
  constexpr int Vectors = Tiles * kParts;
  // Six-bit scales of even and odd groups lie differently.
  constexpr int together = L.small_bits == 6 && Rows == 1 ? 2 : 1;
  Vector acc[Vectors][Rows];
#pragma GCC unroll 2
  for (int v = 0; v < Vectors; ++v)
#pragma GCC unroll 16
    for (int r = 0; r < Rows; ++r) acc[v][r] = v_zero();
  SpreadPrefetch next(ahead, groups32);
  for (int g32 = 0; g32 < groups32; g32 += together, w.codes += size_t(together) * L.code_bytes)
    accumulate_groups<L, 0, together, Rows, Vectors>(w, g32, next, x, acc);
#pragma GCC unroll 2
  for (int v = 0; v < Vectors; ++v) {
#pragma GCC unroll 16
    for (int r = 0; r < Rows; ++r)
      v_store(out + r * out_stride + v * kWidth, bias ? v_add(acc[v][r], v_load(bias + v * kWidth)) : acc[v][r]);
  }
}

// Shapes of register tiles: what 32 (AVX-512) or 16 vector registers hold of accumulators and dots.
#if defined(FERRUM_ISA_AVX512)
inline constexpr int kMostRows = 6;
inline constexpr int kMostTiles = 2;
#else
inline constexpr int kMostRows = 4;
inline constexpr int kMostTiles = 1;
#endif

template <WeightLayout L, int Tiles, int MostRows, class Scales>
void linear_rows(const WeightView& weight, const TilePointers<Scales>& w, const uint8_t* next,
                 const QuantizedRowsView& x, int row_begin, int row_end, float* out, size_t out_stride,
                 const float* bias) {
  constexpr bool by32 = L.group == 32;
  const int groups32 = (weight.columns + kGroup - 1) / kGroup;
  const int row_blocks = (row_end - row_begin + MostRows - 1) / MostRows;
  Prefetch ahead{next, Tiles * w.tile_bytes / size_t(row_blocks)};
  for (int row = row_begin; row < row_end;) {
    const int left = row_end - row;
    const int rows = left >= MostRows ? MostRows : (MostRows > 4 && left >= 4 ? 4 : (left >= 2 ? 2 : 1));
    const RowPointers pointers{
        x.codes + size_t(row) * x.padded,
        x.scales + size_t(row) * x.groups,
        by32 ? x.scaled_sums32 + size_t(row) * x.groups : x.scaled_sums16 + size_t(row) * 2 * x.groups,
        by32 ? x.sums32 + size_t(row) * x.groups : x.sums16 + size_t(row) * 2 * x.groups,
        size_t(x.padded),
        size_t(x.groups),
        size_t(x.groups) * (by32 ? 1 : 2),
    };
    float* target = out + size_t(row) * out_stride;
    if (rows == 1) {
      register_tile<L, 1, Tiles>(w, groups32, ahead, pointers, target, out_stride, bias);
    } else if constexpr (MostRows > 1) {
      switch (rows) {
        case 2: register_tile<L, 2, Tiles>(w, groups32, ahead, pointers, target, out_stride, bias); break;
        case 4: register_tile<L, 4, Tiles>(w, groups32, ahead, pointers, target, out_stride, bias); break;
        default: register_tile<L, MostRows, Tiles>(w, groups32, ahead, pointers, target, out_stride, bias);
      }
    }
    ahead.at += ahead.bytes;
    row += rows;
  }
}

inline constexpr int kTilesAheadOfStores = 2;
// A lone row reads at the speed of memory, whose latency so many bytes on their way to each core cover. Always whole
// tiles, codes and scales alike: one sequential stream is read faster than the two that lie at the same distance of each.
inline constexpr size_t kLeastBytesAhead = 12288;

// Floats of a tile's scales multiplied out. Many rows are worked on a few at a time, and each time all scales are needed:
// with superblocks they take four to ten instructions each.
template <WeightLayout L>
FERRUM_INLINE size_t num_plain_scales(const WeightView& weight) {
  return size_t(weight.columns / L.group) * kFloatsOfGroup<L>;
}

template <WeightLayout L, int Tiles>
void linear_tile(const WeightView& weight, const uint8_t* codes, const uint8_t* next, float* plain_scales,
                 const QuantizedRowsView& x, int row_begin, int row_end, float* out, size_t out_stride,
                 const float* bias) {
  const PackedScales packed{codes + weight.scales_offset, weight.tile_bytes};
  const TilePointers<PackedScales> w{codes, weight.tile_bytes, packed};
  if constexpr (!L.has_superblock()) {
    linear_rows<L, Tiles, kMostRows>(weight, w, next, x, row_begin, row_end, out, out_stride, bias);
  } else if (row_end - row_begin == 1) {
    linear_rows<L, 1, 1>(weight, w, next, x, row_begin, row_end, out, out_stride, bias);
  } else {
    const size_t floats = num_plain_scales<L>(weight);
    for (int tile = 0; tile < Tiles; ++tile)
      multiply_out<L>({packed.at + tile * weight.tile_bytes, weight.tile_bytes}, weight.columns / kGroup,
                      plain_scales + tile * floats);
    const TilePointers<PlainScales> plain{codes, weight.tile_bytes, {plain_scales, floats}};
    linear_rows<L, Tiles, kMostRows>(weight, plain, next, x, row_begin, row_end, out, out_stride, bias);
  }
}

template <WeightLayout L>
void linear_tiles(const WeightView& weight, int tile_begin, int tile_end, const uint8_t* next,
                  const QuantizedRowsView& x, int row_begin, int row_end, float* out, size_t out_stride,
                  const float* bias) {
  const bool is_lone = row_end - row_begin == 1;
  // Lone rows read one tile after the other: two streams at once gain nothing there.
  const int most_tiles = is_lone ? 1 : kMostTiles;
  const int tiles_ahead = is_lone ? int((kLeastBytesAhead - 1) / weight.tile_bytes) + 1 : 0;
  const size_t num_floats = L.has_superblock() && !is_lone ? kMostTiles * num_plain_scales<L>(weight) : 0;
  float* plain_scales = static_cast<float*>(__builtin_alloca_with_align(num_floats * sizeof(float), 512));
  for (int tile = tile_begin; tile < tile_end;) {
    // Another member read this line in the last layer: where cores share no cache, a third of a microsecond to get it
    // back, more often than the stores of a short row can wait for.
    if (is_lone)
      __builtin_prefetch(out + size_t(row_begin) * out_stride + (tile + kTilesAheadOfStores) * kTileColumns, 1, 3);
    const uint8_t* codes = weight.tile(tile);
    float* target = out + tile * kTileColumns;
    const float* tile_bias = bias ? bias + tile * kTileColumns : nullptr;
    // Two lie in one run only from an even one on: see WeightView.
    const int tiles = tile % most_tiles == 0 && tile + most_tiles <= tile_end ? most_tiles : 1;
    const int following = tile + (tiles_ahead > tiles ? tiles_ahead : tiles);
    const uint8_t* ahead =
        following < tile_end ? weight.tile(following) : next + size_t(following - tile_end) * weight.tile_bytes;
    tile += tiles;
    const auto work = tiles == 1 ? linear_tile<L, 1> : linear_tile<L, kMostTiles>;
    work(weight, codes, ahead, plain_scales, x, row_begin, row_end, target, out_stride, tile_bias);
  }
}

}  // namespace

void linear_quantized(const WeightView& weight, int tile_begin, int tile_end, const uint8_t* next,
                      const QuantizedRowsView& x, int row_begin, int row_end, float* out, size_t out_stride,
                      const float* bias) {
  switch (weight.type) {
#define FERRUM_CASE(name) \
  case WeightType::name:  \
    return linear_tiles<k##name>(weight, tile_begin, tile_end, next, x, row_begin, row_end, out, out_stride, bias);
    FERRUM_CASE(Q4_0)
    FERRUM_CASE(Q4_1)
    FERRUM_CASE(Q5_0)
    FERRUM_CASE(Q5_1)
    FERRUM_CASE(Q8_0)
    FERRUM_CASE(Q2_K)
    FERRUM_CASE(Q3_K)
    FERRUM_CASE(Q4_K)
    FERRUM_CASE(Q5_K)
    FERRUM_CASE(Q6_K)
#undef FERRUM_CASE
    default: return;  // float types go to linear_float
  }
}

}  // namespace ferrum::FERRUM_ISA
