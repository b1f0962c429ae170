// What every kernel source includes first. Each is compiled once per instruction set with FERRUM_ISA naming the namespace,
// so no symbol is shared between builds: a linker must never merge an AVX-512 body into the portable build. For the same
// reason kernels use no templates of the standard library.
#pragma once

#include <cstdint>
#include <cstring>

#if defined(__AVX2__)
#include <immintrin.h>
#endif

#define FERRUM_INLINE static inline __attribute__((always_inline))
