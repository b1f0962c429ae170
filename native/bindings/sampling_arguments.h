// What a step's SamplingBatch (runtimes/protocol.py) holds, checked, as the runtime reads it.
#pragma once

#include <vector>

#include "../runtime/step.h"
#include "arrays.h"

namespace ferrum {

// Throws std::invalid_argument where shapes or ids do not fit ``num_rows`` rows of a vocabulary. The columns point into
// the batch and into this object, which must both outlive them.
class SamplingArguments {
 public:
  struct Sizes {
    int num_rows;
    int vocabulary;
    int context_length;
  };
  // ``mirostat_mu`` takes a number for each row where the batch has rules, and is empty otherwise.
  SamplingArguments(nb::handle batch, const Sizes& sizes, const MutableArray<double>& mirostat_mu);

  const SamplingColumns& columns() const { return columns_; }

 private:
  template <typename T>
  const T* column(nb::handle batch, const char* name) const;
  const uint32_t* mask(nb::handle words) const;
  void read_rules(nb::handle rules);

  const Sizes sizes_;
  std::vector<TokenRules> rules_;
  SamplingColumns columns_{};
};

}  // namespace ferrum
