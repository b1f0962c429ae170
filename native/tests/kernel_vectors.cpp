// usage: kernel_vectors            names the kernel sets this processor runs
//        kernel_vectors KERNEL_SET  runs every kernel of the set, one line "what digest" for each kind of output
//
// Two processors, compilers or kernel sets agree when the lines are equal: scripts/cross-check compares them.
#include "vector_groups.h"

int main(int argc, char** argv) {
  if (argc == 1) {
    for (const char* name : {"portable", "avx2", "avxvnni", "avx512"})
      if (ferrum::select_kernels(name) != nullptr) puts(name);
    return 0;
  }
  const ferrum::KernelTable* kernels = argc == 2 ? ferrum::select_kernels(argv[1]) : nullptr;
  if (kernels == nullptr) {
    fprintf(stderr, "kernel_vectors: one argument, a kernel set that this processor runs; without one it lists them\n");
    return 2;
  }
  using namespace ferrum::vectors;
  for (auto run : {sixteen_bit_vectors, linear_vectors, row_vectors, attention_vectors, sampling_vectors, rule_vectors})
    run(*kernels);
  return 0;
}
