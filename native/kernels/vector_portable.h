// Vectors as plain loops over 16 lanes, left to the compiler; see vector.h.
#pragma once

#include "sixteen_bits.h"

namespace ferrum::FERRUM_ISA {

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
FERRUM_INLINE IntVector i_from_s8(const int8_t* p) {
  IntVector r;
  FERRUM_EACH_LANE r.lane[i] = p[i];
  return r;
}
FERRUM_INLINE IntVector i_from_u8(const uint8_t* p) {
  IntVector r;
  FERRUM_EACH_LANE r.lane[i] = p[i];
  return r;
}
template <int Bits>
FERRUM_INLINE IntVector i_shift_down(IntVector a) {  // zeros follow
  FERRUM_EACH_LANE a.lane[i] = int32_t(uint32_t(a.lane[i]) >> Bits);
  return a;
}
FERRUM_INLINE IntVector i_choose_bits(int32_t bits, IntVector set, IntVector other) {  // the same bits in every lane
  FERRUM_EACH_LANE set.lane[i] = (bits & set.lane[i]) | (~bits & other.lane[i]);
  return set;
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

}  // namespace ferrum::FERRUM_ISA
