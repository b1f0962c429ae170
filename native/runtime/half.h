// Half precision for the runtime's own code: the portable build's conversions, in a namespace of this library.
#pragma once

#define FERRUM_ISA runtime_scalar
#include "../kernels/sixteen_bits.h"
#undef FERRUM_ISA

namespace ferrum {
using runtime_scalar::bfloat_to_float;
using runtime_scalar::half_to_float;
}  // namespace ferrum
