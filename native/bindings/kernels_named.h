// Kernel sets by their names.
#pragma once

#include <stdexcept>
#include <string>

#include "../kernels/kernel_table.h"

namespace ferrum {

// Throws std::invalid_argument for one that this processor does not run.
inline const KernelTable& kernels_named(const std::string& name) {
  const KernelTable* table = select_kernels(name.c_str());
  if (table == nullptr) throw std::invalid_argument("kernel set '" + name + "' cannot run on this processor");
  return *table;
}

}  // namespace ferrum
