// Single values of 16 bits: IEEE half and bfloat16, to float and back.
#pragma once

#include "isa.h"

namespace ferrum::FERRUM_ISA {

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

}  // namespace ferrum::FERRUM_ISA
