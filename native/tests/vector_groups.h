// The outputs whose digests kernel_vectors prints, one function for each family of kernels.
#pragma once

#include <cstdio>
#include <string>

#include "../kernels/kernel_table.h"
#include "digest.h"

namespace ferrum::vectors {

inline void print(const std::string& what, const Digest& digest) {
  printf("%-32s %016llx\n", what.c_str(), static_cast<unsigned long long>(digest.value()));
}

void sixteen_bit_vectors(const KernelTable& kernels);
void linear_vectors(const KernelTable& kernels);
void row_vectors(const KernelTable& kernels);
void attention_vectors(const KernelTable& kernels);
void sampling_vectors(const KernelTable& kernels);
void rule_vectors(const KernelTable& kernels);

}  // namespace ferrum::vectors
