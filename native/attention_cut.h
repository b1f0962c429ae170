// How attention is cut into tasks, told to Python: nothing in a step's result shows it, so only a look at it can.
#pragma once

#include <nanobind/nanobind.h>

namespace ferrum {

void bind_attention_cut(nanobind::module_& module);

}  // namespace ferrum
