// Chooses the kernel table at run time, by what the processor says it can do.
#include <string.h>
#if defined(FERRUM_HAS_X86_BUILDS)
#include <cpuid.h>
#endif

#include "kernel_table.h"

namespace ferrum {

#if !defined(FERRUM_HAS_X86_BUILDS)
const KernelTable* avx2_kernels() { return nullptr; }
const KernelTable* avxvnni_kernels() { return nullptr; }
const KernelTable* avx512_kernels() { return nullptr; }
#endif

namespace {

bool has_avx2() {
#if defined(FERRUM_HAS_X86_BUILDS)
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c");
#else
  return false;
#endif
}

bool has_avxvnni() {
#if defined(FERRUM_HAS_X86_BUILDS)
  // Asked of the processor itself: not every compiler's __builtin_cpu_supports knows the name.
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  return has_avx2() && __get_cpuid_count(7, 1, &eax, &ebx, &ecx, &edx) && (eax & (1u << 4)) != 0;
#else
  return false;
#endif
}

bool has_avx512() {
#if defined(FERRUM_HAS_X86_BUILDS)
  return has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") &&
         __builtin_cpu_supports("avx512vnni");
#else
  return false;
#endif
}

}  // namespace

const KernelTable* select_kernels(const char* name) {
  const bool any = name == nullptr || name[0] == '\0';
  if ((any || strcmp(name, "avx512") == 0) && has_avx512()) return avx512_kernels();
  if ((any || strcmp(name, "avxvnni") == 0) && has_avxvnni()) return avxvnni_kernels();
  if ((any || strcmp(name, "avx2") == 0) && has_avx2()) return avx2_kernels();
  if (any || strcmp(name, "portable") == 0) return portable_kernels();
  return nullptr;
}

}  // namespace ferrum
