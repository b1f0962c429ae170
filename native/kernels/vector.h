// Vectors of float32 and int32 for one instruction set. Every kernel source is compiled once per instruction set with
// FERRUM_ISA naming the namespace, so no symbol is shared between builds: a linker must never merge an AVX-512 body
// into the portable build. For the same reason kernels use no templates of the standard library.
//
// Vector: the machine's own width (kWidth lanes). Lanes: always 16 float32 lanes, the unit docs/numerics.md is written in.
#pragma once

#include <cstdint>
#include <cstring>

#if defined(__AVX2__)
#include <immintrin.h>
#endif

#define FERRUM_INLINE static inline __attribute__((always_inline))

namespace ferrum::FERRUM_ISA {

inline constexpr int kLanes = 16;

// IEEE half <-> float, used by the portable build and for single values.
FERRUM_INLINE float half_to_float(uint16_t half) {
#if defined(__F16C__)
  return _cvtsh_ss(half);
#else
  const uint32_t sign = uint32_t(half & 0x8000u) << 16;
  const uint32_t exponent = (half >> 10) & 0x1fu;
  uint32_t mantissa = half & 0x3ffu;
  uint32_t bits;
  if (exponent == 0x1f) {
    bits = sign | 0x7f800000u | (mantissa << 13) | (mantissa ? 0x400000u : 0u);
  } else if (exponent != 0) {
    bits = sign | ((exponent + 112u) << 23) | (mantissa << 13);
  } else if (mantissa == 0) {
    bits = sign;
  } else {
    uint32_t shift = 0;
    while (!(mantissa & 0x400u)) {
      mantissa <<= 1;
      ++shift;
    }
    bits = sign | ((113u - shift) << 23) | ((mantissa & 0x3ffu) << 13);
  }
  float value;
  memcpy(&value, &bits, 4);
  return value;
#endif
}

FERRUM_INLINE uint16_t float_to_half(float value) {  // nearest even
#if defined(__F16C__)
  return uint16_t(_cvtss_sh(value, 0));
#else
  uint32_t bits;
  memcpy(&bits, &value, 4);
  const uint16_t sign = uint16_t((bits >> 16) & 0x8000u);
  const uint32_t magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return uint16_t(sign | 0x7e00u | ((magnitude >> 13) & 0x3ffu));
  if (magnitude >= 0x477ff000u) return uint16_t(sign | 0x7c00u);  // rounds to infinity
  if (magnitude >= 0x38800000u) {
    const uint32_t rounded = magnitude + 0xfffu + ((magnitude >> 13) & 1u);
    return uint16_t(sign | ((rounded - 0x38000000u) >> 13));
  }
  if (magnitude <= 0x33000000u) return sign;  // at most half of the smallest subnormal: ties to even zero
  const uint32_t shift = 126u - (magnitude >> 23);
  const uint32_t mantissa = (magnitude & 0x7fffffu) | 0x800000u;
  const uint32_t half = mantissa >> shift;
  const uint32_t rest = mantissa & ((1u << shift) - 1u);
  const uint32_t middle = 1u << (shift - 1u);
  return uint16_t(sign | (half + ((rest > middle || (rest == middle && (half & 1u))) ? 1u : 0u)));
#endif
}

FERRUM_INLINE float bfloat_to_float(uint16_t bfloat) {
  const uint32_t bits = uint32_t(bfloat) << 16;
  float value;
  memcpy(&value, &bits, 4);
  return value;
}

#if defined(FERRUM_ISA_AVX512)

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
FERRUM_INLINE Vector v_from_s8(const int8_t* p) {
  return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))));
}
FERRUM_INLINE Vector v_from_u8(const uint8_t* p) {
  return _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))));
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

#elif defined(FERRUM_ISA_AVX2)

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
FERRUM_INLINE Vector v_from_s8(const int8_t* p) {
  return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p))));
}
FERRUM_INLINE Vector v_from_u8(const uint8_t* p) {
  return _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p))));
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

#else  // portable: plain loops over 16 lanes, left to the compiler

inline constexpr int kWidth = 16;
struct Vector {
  float lane[16];
};
struct IntVector {
  int32_t lane[16];
};

#define FERRUM_EACH_LANE for (int i = 0; i < 16; ++i)
FERRUM_INLINE Vector v_load(const float* p) {
  Vector r;
  memcpy(r.lane, p, sizeof r.lane);
  return r;
}
FERRUM_INLINE void v_store(float* p, Vector a) { memcpy(p, a.lane, sizeof a.lane); }
FERRUM_INLINE Vector v_set(float x) {
  Vector r;
  FERRUM_EACH_LANE r.lane[i] = x;
  return r;
}
FERRUM_INLINE Vector v_zero() { return v_set(0.0f); }
FERRUM_INLINE Vector v_add(Vector a, Vector b) {
  FERRUM_EACH_LANE a.lane[i] += b.lane[i];
  return a;
}
FERRUM_INLINE Vector v_sub(Vector a, Vector b) {
  FERRUM_EACH_LANE a.lane[i] -= b.lane[i];
  return a;
}
FERRUM_INLINE Vector v_mul(Vector a, Vector b) {
  FERRUM_EACH_LANE a.lane[i] *= b.lane[i];
  return a;
}
FERRUM_INLINE Vector v_div(Vector a, Vector b) {
  FERRUM_EACH_LANE a.lane[i] /= b.lane[i];
  return a;
}
FERRUM_INLINE Vector v_fma(Vector a, Vector b, Vector c) {
  FERRUM_EACH_LANE a.lane[i] = __builtin_fmaf(a.lane[i], b.lane[i], c.lane[i]);
  return a;
}
FERRUM_INLINE Vector v_max(Vector a, Vector b) {
  FERRUM_EACH_LANE a.lane[i] = a.lane[i] > b.lane[i] ? a.lane[i] : b.lane[i];
  return a;
}
FERRUM_INLINE Vector v_min(Vector a, Vector b) {
  FERRUM_EACH_LANE a.lane[i] = a.lane[i] < b.lane[i] ? a.lane[i] : b.lane[i];
  return a;
}
FERRUM_INLINE Vector v_abs(Vector a) {
  FERRUM_EACH_LANE a.lane[i] = __builtin_fabsf(a.lane[i]);
  return a;
}
FERRUM_INLINE Vector v_round(Vector a) {
  FERRUM_EACH_LANE a.lane[i] = __builtin_rintf(a.lane[i]);
  return a;
}
FERRUM_INLINE Vector v_keep_not_less(Vector value, Vector x, Vector bound) {  // x < bound ? +0 : value
  FERRUM_EACH_LANE value.lane[i] = x.lane[i] < bound.lane[i] ? 0.0f : value.lane[i];
  return value;
}
FERRUM_INLINE Vector v_choose_less(Vector x, Vector bound, Vector less, Vector other) {  // x < bound ? less : other
  FERRUM_EACH_LANE other.lane[i] = x.lane[i] < bound.lane[i] ? less.lane[i] : other.lane[i];
  return other;
}
FERRUM_INLINE Vector v_choose_bits(uint32_t bits, Vector set, Vector other) {  // a bit for each lane, the rest ignored
  FERRUM_EACH_LANE set.lane[i] = (bits >> i) & 1u ? set.lane[i] : other.lane[i];
  return set;
}
FERRUM_INLINE uint32_t v_mask_not_less(Vector x, Vector bound) {  // a bit for each lane
  uint32_t mask = 0;
  FERRUM_EACH_LANE mask |= uint32_t(!(x.lane[i] < bound.lane[i])) << i;
  return mask;
}
FERRUM_INLINE Vector v_from_half(const uint16_t* p) {
  Vector r;
  FERRUM_EACH_LANE r.lane[i] = half_to_float(p[i]);
  return r;
}
FERRUM_INLINE Vector v_from_bfloat(const uint16_t* p) {
  Vector r;
  FERRUM_EACH_LANE r.lane[i] = bfloat_to_float(p[i]);
  return r;
}
FERRUM_INLINE void v_to_half(uint16_t* p, Vector a) { FERRUM_EACH_LANE p[i] = float_to_half(a.lane[i]); }
FERRUM_INLINE Vector v_from_s8(const int8_t* p) {
  Vector r;
  FERRUM_EACH_LANE r.lane[i] = float(p[i]);
  return r;
}
FERRUM_INLINE Vector v_from_u8(const uint8_t* p) {
  Vector r;
  FERRUM_EACH_LANE r.lane[i] = float(p[i]);
  return r;
}
FERRUM_INLINE int32_t to_int(float x) {
  // Out of range or NaN gives the most negative integer, as the vector instructions do.
  return x >= -2147483648.0f && x < 2147483648.0f ? int32_t(__builtin_rintf(x)) : INT32_MIN;
}
FERRUM_INLINE void v_to_s8(int8_t* p, Vector a) { FERRUM_EACH_LANE p[i] = int8_t(to_int(a.lane[i])); }
FERRUM_INLINE Vector v_power_of_two(IntVector n) {
  Vector r;
  FERRUM_EACH_LANE {
    const uint32_t bits = uint32_t(n.lane[i] + 127) << 23;
    memcpy(&r.lane[i], &bits, 4);
  }
  return r;
}
FERRUM_INLINE IntVector v_to_int(Vector a) {
  IntVector r;
  FERRUM_EACH_LANE r.lane[i] = to_int(a.lane[i]);
  return r;
}
FERRUM_INLINE IntVector i_half(IntVector a) {
  FERRUM_EACH_LANE a.lane[i] >>= 1;
  return a;
}
FERRUM_INLINE IntVector i_sub(IntVector a, IntVector b) {
  FERRUM_EACH_LANE a.lane[i] -= b.lane[i];
  return a;
}
FERRUM_INLINE IntVector i_set(int32_t x) {
  IntVector r;
  FERRUM_EACH_LANE r.lane[i] = x;
  return r;
}
FERRUM_INLINE Vector v_from_int(IntVector a) {
  Vector r;
  FERRUM_EACH_LANE r.lane[i] = float(a.lane[i]);
  return r;
}

// Sums in float64 of the lanes of vectors; which lanes are added up together is nobody's business: for exact sums only.
struct DoubleSums {
  double lane[16];
};
FERRUM_INLINE DoubleSums d_zero() { return {}; }
FERRUM_INLINE DoubleSums d_add(DoubleSums sums, Vector a) {
  FERRUM_EACH_LANE sums.lane[i] += double(a.lane[i]);
  return sums;
}
FERRUM_INLINE double d_total(DoubleSums sums) {
  double total = 0.0;
  FERRUM_EACH_LANE total += sums.lane[i];
  return total;
}
#undef FERRUM_EACH_LANE

#endif

// exp as docs/numerics.md defines it (polynomial: Cephes expf) is fraction * 2^n.
struct ExpParts {
  Vector fraction;  // within [0.7, 1.5]
  Vector n;
};
FERRUM_INLINE ExpParts exp_parts(Vector x) {
  const Vector n = v_round(v_mul(x, v_set(1.44269504f)));
  Vector r = v_fma(n, v_set(-0.693359375f), x);
  r = v_fma(n, v_set(2.12194440e-4f), r);
  Vector p = v_set(1.9875691500e-4f);
  p = v_fma(p, r, v_set(1.3981999507e-3f));
  p = v_fma(p, r, v_set(8.3334519073e-3f));
  p = v_fma(p, r, v_set(4.1665795894e-2f));
  p = v_fma(p, r, v_set(1.6666665459e-1f));
  p = v_fma(p, r, v_set(5.0000001201e-1f));
  return {v_add(v_fma(p, v_mul(r, r), r), v_set(1.0f)), n};
}
inline constexpr float kLeastExponent = -87.33654f;  // below: +0

FERRUM_INLINE Vector v_exp(Vector input) {
  const ExpParts parts = exp_parts(v_min(input, v_set(88.72283f)));
  const IntVector whole = v_to_int(parts.n);
  const IntVector first = i_half(whole);
  const Vector scaled = v_mul(v_mul(parts.fraction, v_power_of_two(first)), v_power_of_two(i_sub(whole, first)));
  return v_keep_not_less(scaled, input, v_set(kLeastExponent));
}

// The same bits for x <= 0, in fewer steps: 2^n is a normal number there, and the only product that rounds is the last.
FERRUM_INLINE Vector v_exp_of_not_positive(Vector x) {
  const ExpParts parts = exp_parts(x);
  return v_keep_not_less(v_mul(parts.fraction, v_power_of_two(v_to_int(parts.n))), x, v_set(kLeastExponent));
}

// 16 lanes, whatever the machine's width.
inline constexpr int kParts = kLanes / kWidth;
struct Lanes {
  Vector part[kParts];
};

#define FERRUM_EACH_PART for (int i = 0; i < kParts; ++i)
FERRUM_INLINE Lanes l_load(const float* p) {
  Lanes r;
  FERRUM_EACH_PART r.part[i] = v_load(p + i * kWidth);
  return r;
}
FERRUM_INLINE void l_store(float* p, Lanes a) { FERRUM_EACH_PART v_store(p + i * kWidth, a.part[i]); }
FERRUM_INLINE Lanes l_set(float x) {
  Lanes r;
  FERRUM_EACH_PART r.part[i] = v_set(x);
  return r;
}
FERRUM_INLINE Lanes l_add(Lanes a, Lanes b) {
  FERRUM_EACH_PART a.part[i] = v_add(a.part[i], b.part[i]);
  return a;
}
FERRUM_INLINE Lanes l_mul(Lanes a, Lanes b) {
  FERRUM_EACH_PART a.part[i] = v_mul(a.part[i], b.part[i]);
  return a;
}
FERRUM_INLINE Lanes l_fma(Lanes a, Lanes b, Lanes c) {
  FERRUM_EACH_PART a.part[i] = v_fma(a.part[i], b.part[i], c.part[i]);
  return a;
}
FERRUM_INLINE Lanes l_max(Lanes a, Lanes b) {
  FERRUM_EACH_PART a.part[i] = v_max(a.part[i], b.part[i]);
  return a;
}
FERRUM_INLINE Lanes l_exp_of_not_positive(Lanes a) {
  FERRUM_EACH_PART a.part[i] = v_exp_of_not_positive(a.part[i]);
  return a;
}
FERRUM_INLINE Lanes l_from_half(const uint16_t* p) {
  Lanes r;
  FERRUM_EACH_PART r.part[i] = v_from_half(p + i * kWidth);
  return r;
}
#undef FERRUM_EACH_PART

// Folds 16 -> 8 -> 4 -> 2 -> 1; the order of additions is part of the numerics.
#if defined(FERRUM_ISA_AVX512) || defined(FERRUM_ISA_AVX2)
FERRUM_INLINE __m256 low_eight(Lanes a) {
#if defined(FERRUM_ISA_AVX512)
  return _mm512_castps512_ps256(a.part[0]);
#else
  return a.part[0];
#endif
}
FERRUM_INLINE __m256 high_eight(Lanes a) {
#if defined(FERRUM_ISA_AVX512)
  return _mm512_extractf32x8_ps(a.part[0], 1);
#else
  return a.part[1];
#endif
}
FERRUM_INLINE float l_fold_add(Lanes a) {
  const __m256 eight = _mm256_add_ps(low_eight(a), high_eight(a));
  const __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}
FERRUM_INLINE float l_fold_max(Lanes a) {
  const __m256 eight = _mm256_max_ps(low_eight(a), high_eight(a));
  const __m128 four = _mm_max_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  const __m128 two = _mm_max_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_max_ss(two, _mm_movehdup_ps(two)));
}
#else
FERRUM_INLINE float l_fold_add(Lanes a) {
  float lane[16];
  l_store(lane, a);
  for (int width = 8; width > 0; width /= 2)
    for (int j = 0; j < width; ++j) lane[j] = lane[j] + lane[j + width];
  return lane[0];
}
FERRUM_INLINE float l_fold_max(Lanes a) {
  float lane[16];
  l_store(lane, a);
  for (int width = 8; width > 0; width /= 2)
    for (int j = 0; j < width; ++j) lane[j] = lane[j] > lane[j + width] ? lane[j] : lane[j + width];
  return lane[0];
}
#endif

// Exact sum of 16 signed bytes.
FERRUM_INLINE int32_t sum_of_16(const int8_t* p) {
#if defined(FERRUM_ISA_AVX512) || defined(FERRUM_ISA_AVX2)
  // The instruction sums unsigned bytes: shift each by 128 and take 16 * 128 off again.
  const __m128i shifted = _mm_xor_si128(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)), _mm_set1_epi8(-128));
  const __m128i halves = _mm_sad_epu8(shifted, _mm_setzero_si128());
  return _mm_cvtsi128_si32(halves) + _mm_extract_epi16(halves, 4) - 16 * 128;
#else
  int32_t sum = 0;
  for (int i = 0; i < 16; ++i) sum += p[i];
  return sum;
#endif
}

}  // namespace ferrum::FERRUM_ISA
