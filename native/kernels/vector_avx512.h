// Vectors of 16 lanes for AVX-512; see vector.h.
#pragma once

#include "isa.h"

namespace ferrum::FERRUM_ISA {

inline constexpr int kWidth = 16;
using Vector = __m512;
using IntVector = __m512i;

FERRUM_INLINE Vector v_load(const float* p) { return _mm512_loadu_ps(p); }
FERRUM_INLINE void v_store(float* p, Vector a) { _mm512_storeu_ps(p, a); }
FERRUM_INLINE Vector v_set(float x) { return _mm512_set1_ps(x); }
FERRUM_INLINE Vector v_zero() { return _mm512_setzero_ps(); }
FERRUM_INLINE Vector v_add(Vector a, Vector b) { return _mm512_add_ps(a, b); }
FERRUM_INLINE Vector v_sub(Vector a, Vector b) { return _mm512_sub_ps(a, b); }
FERRUM_INLINE Vector v_mul(Vector a, Vector b) { return _mm512_mul_ps(a, b); }
FERRUM_INLINE Vector v_div(Vector a, Vector b) { return _mm512_div_ps(a, b); }
FERRUM_INLINE Vector v_fma(Vector a, Vector b, Vector c) { return _mm512_fmadd_ps(a, b, c); }
FERRUM_INLINE Vector v_max(Vector a, Vector b) { return _mm512_max_ps(a, b); }
FERRUM_INLINE Vector v_min(Vector a, Vector b) { return _mm512_min_ps(a, b); }
FERRUM_INLINE Vector v_abs(Vector a) { return _mm512_abs_ps(a); }
FERRUM_INLINE Vector v_round(Vector a) {
  return _mm512_roundscale_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}
FERRUM_INLINE Vector v_keep_not_less(Vector value, Vector x, Vector bound) {  // x < bound ? +0 : value
  return _mm512_maskz_mov_ps(_mm512_cmp_ps_mask(x, bound, _CMP_NLT_UQ), value);
}
FERRUM_INLINE Vector v_choose_less(Vector x, Vector bound, Vector less, Vector other) {  // x < bound ? less : other
  return _mm512_mask_mov_ps(other, _mm512_cmp_ps_mask(x, bound, _CMP_LT_OQ), less);
}
FERRUM_INLINE Vector v_choose_bits(uint32_t bits, Vector set, Vector other) {  // a bit for each lane, the rest ignored
  return _mm512_mask_blend_ps(__mmask16(bits), other, set);
}
FERRUM_INLINE uint32_t v_mask_not_less(Vector x, Vector bound) {  // a bit for each lane
  return _mm512_cmp_ps_mask(x, bound, _CMP_NLT_UQ);
}
FERRUM_INLINE Vector v_from_half(const uint16_t* p) {
  return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
}
FERRUM_INLINE Vector v_from_bfloat(const uint16_t* p) {
  const __m512i wide = _mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
  return _mm512_castsi512_ps(_mm512_slli_epi32(wide, 16));
}
FERRUM_INLINE void v_to_half(uint16_t* p, Vector a) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm512_cvtps_ph(a, 0));
}
FERRUM_INLINE void v_to_s8(int8_t* p, Vector a) {  // |a| <= 127, nearest even
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm512_cvtepi32_epi8(_mm512_cvtps_epi32(a)));
}
FERRUM_INLINE Vector v_power_of_two(IntVector n) {
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_add_epi32(n, _mm512_set1_epi32(127)), 23));
}
FERRUM_INLINE IntVector v_to_int(Vector a) { return _mm512_cvtps_epi32(a); }
FERRUM_INLINE IntVector i_half(IntVector a) { return _mm512_srai_epi32(a, 1); }
FERRUM_INLINE IntVector i_sub(IntVector a, IntVector b) { return _mm512_sub_epi32(a, b); }
FERRUM_INLINE IntVector i_set(int32_t x) { return _mm512_set1_epi32(x); }
FERRUM_INLINE IntVector i_from_s8(const int8_t* p) {
  return _mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
}
FERRUM_INLINE IntVector i_from_u8(const uint8_t* p) {
  return _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
}
template <int Bits>
FERRUM_INLINE IntVector i_shift_down(IntVector a) {  // zeros follow
  return _mm512_srli_epi32(a, Bits);
}
FERRUM_INLINE IntVector i_choose_bits(int32_t bits, IntVector set, IntVector other) {  // the same bits in every lane
  return _mm512_ternarylogic_epi32(i_set(bits), set, other, 0xca);
}
FERRUM_INLINE Vector v_from_int(IntVector a) { return _mm512_cvtepi32_ps(a); }

// Sums in float64 of the lanes of vectors; which lanes are added up together is nobody's business: for exact sums only.
struct DoubleSums {
  __m512d low, high;
};
FERRUM_INLINE DoubleSums d_zero() { return {_mm512_setzero_pd(), _mm512_setzero_pd()}; }
FERRUM_INLINE DoubleSums d_add(DoubleSums sums, Vector a) {
  return {_mm512_add_pd(sums.low, _mm512_cvtps_pd(_mm512_castps512_ps256(a))),
          _mm512_add_pd(sums.high, _mm512_cvtps_pd(_mm512_extractf32x8_ps(a, 1)))};
}
FERRUM_INLINE double d_total(DoubleSums sums) { return _mm512_reduce_add_pd(_mm512_add_pd(sums.low, sums.high)); }

}  // namespace ferrum::FERRUM_ISA
