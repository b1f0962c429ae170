// The natural logarithm in float64, as docs/numerics.md defines it: additions, multiplications and one division, each
// rounded once, so that every processor gives the same bits.
#pragma once

#include "vector.h"

namespace ferrum::FERRUM_ISA {

// Of a positive normal number: ln(m 2^e) = e ln 2 + 2 artanh(f) with f = (m - 1) / (m + 1) and m in [sqrt(1/2), sqrt(2)), the
// series up to the 23rd power.
// Without branches, loops and conversions from integers, so that a loop over it becomes vectors.
FERRUM_INLINE double natural_log(double x) {
  uint64_t bits;
  memcpy(&bits, &x, 8);
  const uint64_t exponent_bits = (bits >> 52) | 0x4330000000000000u;  // 2^52 and the biased exponent
  bits = (bits & 0xfffffffffffffu) | (uint64_t(1022) << 52);
  double biased, half;  // half: the same digits in [1/2, 1)
  memcpy(&biased, &exponent_bits, 8);
  memcpy(&half, &bits, 8);
  const bool is_low = half < 0.70710678118654752440;
  const double mantissa = is_low ? 2.0 * half : half;
  const double exponent = (biased - 0x1p52) - (is_low ? 1023.0 : 1022.0);
  const double f = (mantissa - 1.0) / (mantissa + 1.0);
  const double z = f * f;
  double series = 1.0 / 23.0;
  series = series * z + 1.0 / 21.0;
  series = series * z + 1.0 / 19.0;
  series = series * z + 1.0 / 17.0;
  series = series * z + 1.0 / 15.0;
  series = series * z + 1.0 / 13.0;
  series = series * z + 1.0 / 11.0;
  series = series * z + 1.0 / 9.0;
  series = series * z + 1.0 / 7.0;
  series = series * z + 1.0 / 5.0;
  series = series * z + 1.0 / 3.0;
  series = series * z + 1.0;
  return exponent * 0.69314718055994531 + (f + f) * series;
}

}  // namespace ferrum::FERRUM_ISA
