// The natural logarithm in float64, as docs/numerics.md defines it: additions, multiplications and one division, each
// rounded once, so that every processor gives the same bits.
#pragma once

#include "vector.h"

namespace ferrum::FERRUM_ISA {

// Of a positive normal number: ln(m 2^e) = e ln 2 + 2 artanh(f) with f = (m - 1) / (m + 1) and m in [sqrt(1/2), sqrt(2)), the
// series up to the 23rd power.
FERRUM_INLINE double natural_log(double x) {
  uint64_t bits;
  memcpy(&bits, &x, 8);
  int exponent = int(bits >> 52) - 1022;
  bits = (bits & 0xfffffffffffffu) | (uint64_t(1022) << 52);
  double mantissa;  // in [1/2, 1)
  memcpy(&mantissa, &bits, 8);
  if (mantissa < 0.70710678118654752440) {
    mantissa *= 2.0;
    --exponent;
  }
  const double f = (mantissa - 1.0) / (mantissa + 1.0);
  const double square = f * f;
  double series = 1.0 / 23.0;
  for (int odd = 21; odd > 0; odd -= 2) series = series * square + 1.0 / double(odd);
  return double(exponent) * 0.69314718055994531 + (f + f) * series;
}

}  // namespace ferrum::FERRUM_ISA
