// Integer dot products of weight codes and activation codes, exact on every instruction set.
//
// A quad is 4 inputs for kWidth columns: its weight codes are one vector (formats.h), and each row's 4 activations serve
// all columns. Sums are kept per row and column, for several rows and vectors of columns at once.
#pragma once

#include "formats.h"
#include "vector.h"

namespace ferrum::FERRUM_ISA {

// ---- unsigned codes of one quad (4 inputs) for kWidth columns ---------------------------------------------------

#if defined(FERRUM_ISA_AVX512)

using Codes = __m512i;
FERRUM_INLINE Codes load_codes(const uint8_t* p) { return _mm512_loadu_si512(p); }
template <int Shift>  // positive: towards the high bits
FERRUM_INLINE Codes shift_and_mask(Codes x, int mask) {
  if constexpr (Shift > 0) x = _mm512_slli_epi16(x, Shift);
  if constexpr (Shift < 0) x = _mm512_srli_epi16(x, -Shift);
  return _mm512_and_si512(x, _mm512_set1_epi8(char(mask)));
}
FERRUM_INLINE Codes combine(Codes a, Codes b) { return _mm512_or_si512(a, b); }

#elif defined(FERRUM_ISA_AVX2)

using Codes = __m256i;
FERRUM_INLINE Codes load_codes(const uint8_t* p) { return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)); }
template <int Shift>  // positive: towards the high bits
FERRUM_INLINE Codes shift_and_mask(Codes x, int mask) {
  if constexpr (Shift > 0) x = _mm256_slli_epi16(x, Shift);
  if constexpr (Shift < 0) x = _mm256_srli_epi16(x, -Shift);
  return _mm256_and_si256(x, _mm256_set1_epi8(char(mask)));
}
FERRUM_INLINE Codes combine(Codes a, Codes b) { return _mm256_or_si256(a, b); }

#else

struct Codes {
  uint8_t byte[64];
};
FERRUM_INLINE Codes load_codes(const uint8_t* p) {
  Codes r;
  memcpy(r.byte, p, 64);
  return r;
}
template <int Shift>  // positive: towards the high bits
FERRUM_INLINE Codes shift_and_mask(Codes x, int mask) {
  for (int i = 0; i < 64; ++i) {
    const int shifted = Shift > 0 ? x.byte[i] << (Shift > 0 ? Shift : 0) : x.byte[i] >> (Shift < 0 ? -Shift : 0);
    x.byte[i] = uint8_t(shifted & mask);
  }
  return x;
}
FERRUM_INLINE Codes combine(Codes a, Codes b) {
  for (int i = 0; i < 64; ++i) a.byte[i] |= b.byte[i];
  return a;
}

#endif

template <WeightLayout L, int Quad>
FERRUM_INLINE Codes quad_codes(const uint8_t* codes) {
  Codes low;
  if constexpr (L.low_bits == 8) {
    low = load_codes(codes + 64 * Quad);
  } else if constexpr (L.low_bits == 4) {
    low = shift_and_mask<(Quad < 4 ? 0 : -4)>(load_codes(codes + 64 * (Quad % 4)), 0x0f);
  } else {
    low = shift_and_mask<-2 * (Quad % 4)>(load_codes(codes + 64 * (Quad / 4)), 0x03);
  }
  const uint8_t* high = codes + 64 * L.low_bits;
  if constexpr (L.high_bits == 1) {
    return combine(low, shift_and_mask<L.low_bits - Quad>(load_codes(high), 1 << L.low_bits));
  } else if constexpr (L.high_bits == 2) {
    constexpr int shift = L.low_bits - 2 * (Quad % 4);
    return combine(low, shift_and_mask<shift>(load_codes(high + 64 * (Quad / 4)), 3 << L.low_bits));
  } else {
    return low;
  }
}

// ---- integer dots -------------------------------------------------------------------------------------------------

FERRUM_INLINE int32_t four_bytes(const int8_t* p) {
  int32_t value;
  memcpy(&value, p, 4);
  return value;
}

#if defined(FERRUM_ISA_AVX512) || defined(FERRUM_ISA_AVXVNNI)

// sum += products of the 4 codes of each column and the 4 activations.
#if defined(FERRUM_ISA_AVX512)
FERRUM_INLINE Codes activations_of(const int8_t* p) { return _mm512_set1_epi32(four_bytes(p)); }
FERRUM_INLINE IntVector add_products(IntVector sum, Codes w, Codes a) { return _mm512_dpbusd_epi32(sum, w, a); }
#else
FERRUM_INLINE Codes activations_of(const int8_t* p) { return _mm256_set1_epi32(four_bytes(p)); }
FERRUM_INLINE IntVector add_products(IntVector sum, Codes w, Codes a) { return _mm256_dpbusd_avx_epi32(sum, w, a); }
#endif

// Whether add_dots works on stored (offset) codes, so that offset * sum is to be taken off.
template <WeightLayout L>
inline constexpr bool kDotsNeedOffset = L.offset != 0;

template <WeightLayout L, int Quad, int End, int Rows, int Vectors>
FERRUM_INLINE void add_dots(const uint8_t* codes, size_t vector_bytes, const int8_t* x, size_t x_stride,
                            IntVector (*dot)[Rows]) {
  Codes w[Vectors];
#pragma GCC unroll 2
  for (int v = 0; v < Vectors; ++v) w[v] = quad_codes<L, Quad>(codes + v * vector_bytes);
#pragma GCC unroll 16
  for (int r = 0; r < Rows; ++r) {
    const Codes a = activations_of(x + r * x_stride + 4 * Quad);
#pragma GCC unroll 2
    for (int v = 0; v < Vectors; ++v) dot[v][r] = add_products(dot[v][r], w[v], a);
  }
  if constexpr (Quad + 1 < End) add_dots<L, Quad + 1, End, Rows, Vectors>(codes, vector_bytes, x, x_stride, dot);
}

#elif defined(FERRUM_ISA_AVX2)

template <WeightLayout L>
inline constexpr bool kDotsNeedOffset = L.offset != 0 && L.low_bits != 8;

// Ends a sum here: compilers rebuild long integer sums as trees, whose many leaves do not fit the registers.
FERRUM_INLINE void keep_running(__m256i& sum) { asm("" : "+x"(sum)); }

// Sums of products of two inputs are kept in 16 bits over as many quads as surely fit:
// 15 * 127 * 2 * 8 = 30,480; 31 * 127 * 2 * 4 = 31,496; 63 * 127 * 2 * 2 = 32,004.
template <WeightLayout L>
inline constexpr int kQuadsIn16Bits = L.low_bits + L.high_bits <= 4 ? 8 : (L.low_bits + L.high_bits == 5 ? 4 : 2);

template <WeightLayout L, int Quad, int End, int Rows, int Vectors>
FERRUM_INLINE void add_pairs(const uint8_t* codes, size_t vector_bytes, const int8_t* x, size_t x_stride,
                             __m256i (*pairs)[Rows]) {
  Codes w[Vectors];
#pragma GCC unroll 2
  for (int v = 0; v < Vectors; ++v) w[v] = quad_codes<L, Quad>(codes + v * vector_bytes);
#pragma GCC unroll 16
  for (int r = 0; r < Rows; ++r) {
    const __m256i a = _mm256_set1_epi32(four_bytes(x + r * x_stride + 4 * Quad));
#pragma GCC unroll 2
    for (int v = 0; v < Vectors; ++v) {
      pairs[v][r] = _mm256_add_epi16(pairs[v][r], _mm256_maddubs_epi16(w[v], a));
      keep_running(pairs[v][r]);
    }
  }
  if constexpr (Quad + 1 < End) add_pairs<L, Quad + 1, End, Rows, Vectors>(codes, vector_bytes, x, x_stride, pairs);
}

template <WeightLayout L, int Quad, int End, int Rows, int Vectors>
FERRUM_INLINE void add_dots(const uint8_t* codes, size_t vector_bytes, const int8_t* x, size_t x_stride,
                            IntVector (*dot)[Rows]) {
  const __m256i ones = _mm256_set1_epi16(1);
  if constexpr (L.low_bits == 8) {
    // 8-bit codes do not fit the unsigned operand: |w| * (a with w's sign), 128 * 127 * 2 = 32,512 at most.
    __m256i w[Vectors], magnitude[Vectors];
#pragma GCC unroll 2
    for (int v = 0; v < Vectors; ++v) {
      w[v] = _mm256_xor_si256(quad_codes<L, Quad>(codes + v * vector_bytes), _mm256_set1_epi8(char(0x80)));
      magnitude[v] = _mm256_abs_epi8(w[v]);
    }
#pragma GCC unroll 16
    for (int r = 0; r < Rows; ++r) {
      const __m256i a = _mm256_set1_epi32(four_bytes(x + r * x_stride + 4 * Quad));
#pragma GCC unroll 2
      for (int v = 0; v < Vectors; ++v) {
        const __m256i pairs = _mm256_maddubs_epi16(magnitude[v], _mm256_sign_epi8(a, w[v]));
        dot[v][r] = _mm256_add_epi32(dot[v][r], _mm256_madd_epi16(pairs, ones));
        keep_running(dot[v][r]);
      }
    }
    if constexpr (Quad + 1 < End) add_dots<L, Quad + 1, End, Rows, Vectors>(codes, vector_bytes, x, x_stride, dot);
  } else {
    constexpr int stop = Quad + kQuadsIn16Bits<L> < End ? Quad + kQuadsIn16Bits<L> : End;
    __m256i pairs[Vectors][Rows];
#pragma GCC unroll 2
    for (int v = 0; v < Vectors; ++v)
#pragma GCC unroll 16
      for (int r = 0; r < Rows; ++r) pairs[v][r] = _mm256_setzero_si256();
    add_pairs<L, Quad, stop, Rows, Vectors>(codes, vector_bytes, x, x_stride, pairs);
#pragma GCC unroll 2
    for (int v = 0; v < Vectors; ++v)
#pragma GCC unroll 16
      for (int r = 0; r < Rows; ++r) dot[v][r] = _mm256_add_epi32(dot[v][r], _mm256_madd_epi16(pairs[v][r], ones));
    if constexpr (stop < End) add_dots<L, stop, End, Rows, Vectors>(codes, vector_bytes, x, x_stride, dot);
  }
}

#else

template <WeightLayout L>
inline constexpr bool kDotsNeedOffset = L.offset != 0;

template <WeightLayout L, int Quad, int End, int Rows, int Vectors>
FERRUM_INLINE void add_dots(const uint8_t* codes, size_t vector_bytes, const int8_t* x, size_t x_stride,
                            IntVector (*dot)[Rows]) {
  for (int v = 0; v < Vectors; ++v) {
    const Codes w = quad_codes<L, Quad>(codes + v * vector_bytes);
    for (int r = 0; r < Rows; ++r) {
      const int8_t* a = x + r * x_stride + 4 * Quad;
      for (int c = 0; c < 16; ++c)
        dot[v][r].lane[c] +=
            w.byte[4 * c] * a[0] + w.byte[4 * c + 1] * a[1] + w.byte[4 * c + 2] * a[2] + w.byte[4 * c + 3] * a[3];
    }
  }
  if constexpr (Quad + 1 < End) add_dots<L, Quad + 1, End, Rows, Vectors>(codes, vector_bytes, x, x_stride, dot);
}

#endif

}  // namespace ferrum::FERRUM_ISA
