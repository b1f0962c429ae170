// Vectors of float32 and int32 for one instruction set (isa.h).
//
// Vector: the machine's own width (kWidth lanes). Lanes: always 16 float32 lanes, the unit docs/numerics.md is written in.
#pragma once

#include "sixteen_bits.h"

#if defined(FERRUM_ISA_AVX512)
#include "vector_avx512.h"
#elif defined(FERRUM_ISA_AVX2)
#include "vector_avx2.h"
#else
#include "vector_portable.h"
#endif

namespace ferrum::FERRUM_ISA {

inline constexpr int kLanes = 16;

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
