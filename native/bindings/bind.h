// The parts of the Python module. All of them only check shapes, release the interpreter lock and forward.
#pragma once

#include <nanobind/nanobind.h>

namespace ferrum {

// Before the others: they take these as arguments.
void bind_plan_steps(nanobind::module_& m);
void bind_runtime(nanobind::module_& m);
void bind_attention_cut(nanobind::module_& m);
void bind_kernels(nanobind::module_& m);
void bind_measurements(nanobind::module_& m);
void bind_strings(nanobind::module_& m);

}  // namespace ferrum
