// Vectors of 8 lanes for AVX2, F16C and FMA; see vector.h.
#pragma once

#include "isa.h"

namespace ferrum::FERRUM_ISA {

inline constexpr int kWidth = 8;
using Vector = __m256;
using IntVector = __m256i;

FERRUM_INLINE Vector v_load(const float* p) { return _mm256_loadu_ps(p); }
FERRUM_INLINE void v_store(float* p, Vector a) { _mm256_storeu_ps(p, a); }
FERRUM_INLINE Vector v_set(float x) { return _mm256_set1_ps(x); }
FERRUM_INLINE Vector v_zero() { return _mm256_setzero_ps(); }
FERRUM_INLINE Vector v_add(Vector a, Vector b) { return _mm256_add_ps(a, b); }
FERRUM_INLINE Vector v_sub(Vector a, Vector b) { return _mm256_sub_ps(a, b); }
FERRUM_INLINE Vector v_mul(Vector a, Vector b) { return _mm256_mul_ps(a, b); }
FERRUM_INLINE Vector v_div(Vector a, Vector b) { return _mm256_div_ps(a, b); }
FERRUM_INLINE Vector v_fma(Vector a, Vector b, Vector c) { return _mm256_fmadd_ps(a, b, c); }
FERRUM_INLINE Vector v_max(Vector a, Vector b) { return _mm256_max_ps(a, b); }
FERRUM_INLINE Vector v_min(Vector a, Vector b) { return _mm256_min_ps(a, b); }
FERRUM_INLINE Vector v_abs(Vector a) { return _mm256_andnot_ps(_mm256_set1_ps(-0.0f), a); }
FERRUM_INLINE Vector v_round(Vector a) { return _mm256_round_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
FERRUM_INLINE Vector v_keep_not_less(Vector value, Vector x, Vector bound) {  // x < bound ? +0 : value
  return _mm256_and_ps(_mm256_cmp_ps(x, bound, _CMP_NLT_UQ), value);
}
FERRUM_INLINE Vector v_choose_less(Vector x, Vector bound, Vector less, Vector other) {  // x < bound ? less : other
  return _mm256_blendv_ps(other, less, _mm256_cmp_ps(x, bound, _CMP_LT_OQ));
}
FERRUM_INLINE Vector v_choose_bits(uint32_t bits, Vector set, Vector other) {  // a bit for each lane, the rest ignored
  const __m256i lane_bits = _mm256_setr_epi32(1, 2, 4, 8, 16, 32, 64, 128);
  const __m256i chosen = _mm256_cmpeq_epi32(_mm256_and_si256(_mm256_set1_epi32(int(bits)), lane_bits), lane_bits);
  return _mm256_blendv_ps(other, set, _mm256_castsi256_ps(chosen));
}
FERRUM_INLINE uint32_t v_mask_not_less(Vector x, Vector bound) {  // a bit for each lane
  return uint32_t(_mm256_movemask_ps(_mm256_cmp_ps(x, bound, _CMP_NLT_UQ)));
}
FERRUM_INLINE Vector v_from_half(const uint16_t* p) {
  return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
}
FERRUM_INLINE Vector v_from_bfloat(const uint16_t* p) {
  const __m256i wide = _mm256_cvtepu16_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
  return _mm256_castsi256_ps(_mm256_slli_epi32(wide, 16));
}
FERRUM_INLINE void v_to_half(uint16_t* p, Vector a) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm256_cvtps_ph(a, 0));
}
FERRUM_INLINE void v_to_s8(int8_t* p, Vector a) {  // |a| <= 127, nearest even
  const __m256i wide = _mm256_cvtps_epi32(a);
  const __m128i words = _mm_packs_epi32(_mm256_castsi256_si128(wide), _mm256_extracti128_si256(wide, 1));
  _mm_storel_epi64(reinterpret_cast<__m128i*>(p), _mm_packs_epi16(words, words));
}
FERRUM_INLINE Vector v_power_of_two(IntVector n) {
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(n, _mm256_set1_epi32(127)), 23));
}
FERRUM_INLINE IntVector v_to_int(Vector a) { return _mm256_cvtps_epi32(a); }
FERRUM_INLINE IntVector i_half(IntVector a) { return _mm256_srai_epi32(a, 1); }
FERRUM_INLINE IntVector i_sub(IntVector a, IntVector b) { return _mm256_sub_epi32(a, b); }
FERRUM_INLINE IntVector i_set(int32_t x) { return _mm256_set1_epi32(x); }
FERRUM_INLINE IntVector i_from_s8(const int8_t* p) {
  return _mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p)));
}
FERRUM_INLINE IntVector i_from_u8(const uint8_t* p) {
  return _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p)));
}
template <int Bits>
FERRUM_INLINE IntVector i_shift_down(IntVector a) {  // zeros follow
  return _mm256_srli_epi32(a, Bits);
}
FERRUM_INLINE IntVector i_choose_bits(int32_t bits, IntVector set, IntVector other) {  // the same bits in every lane
  return _mm256_or_si256(_mm256_and_si256(i_set(bits), set), _mm256_andnot_si256(i_set(bits), other));
}
FERRUM_INLINE Vector v_from_int(IntVector a) { return _mm256_cvtepi32_ps(a); }

// Sums in float64 of the lanes of vectors; which lanes are added up together is nobody's business: for exact sums only.
struct DoubleSums {
  __m256d low, high;
};
FERRUM_INLINE DoubleSums d_zero() { return {_mm256_setzero_pd(), _mm256_setzero_pd()}; }
FERRUM_INLINE DoubleSums d_add(DoubleSums sums, Vector a) {
  return {_mm256_add_pd(sums.low, _mm256_cvtps_pd(_mm256_castps256_ps128(a))),
          _mm256_add_pd(sums.high, _mm256_cvtps_pd(_mm256_extractf128_ps(a, 1)))};
}
FERRUM_INLINE double d_total(DoubleSums sums) {
  double lane[4];
  _mm256_storeu_pd(lane, _mm256_add_pd(sums.low, sums.high));
  return (lane[0] + lane[1]) + (lane[2] + lane[3]);
}

}  // namespace ferrum::FERRUM_ISA
