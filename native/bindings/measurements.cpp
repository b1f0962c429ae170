// Ceilings of the machine.
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "../measure/arithmetic_rate.h"
#include "../measure/read_bandwidth.h"
#include "../runtime/step.h"
#include "../runtime/weight_packing.h"
#include "arrays.h"
#include "bind.h"
#include "kernels_named.h"

using namespace nanobind::literals;

namespace ferrum {
namespace {

nb::tuple linear_rate(const std::string& kernel_set, int type, int outputs, int columns, int rows, int num_threads,
                      double seconds) {
  require(outputs > 0 && outputs % kTileColumns == 0, "outputs must be a multiple of the tile");
  require(rows > 0 && num_threads > 0, "rows and num_threads must be at least 1");
  packed_size(WeightType(type), outputs, columns);
  const KernelTable& kernels = kernels_named(kernel_set);
  LinearRate rate;
  {
    nb::gil_scoped_release release;
    rate = measure_linear(kernels, {WeightType(type), outputs, columns, rows}, num_threads, seconds);
  }
  return nb::make_tuple(rate.operations_per_second, rate.weight_bytes_per_second);
}

double attention_rate(const std::string& kernel_set, KvType kv_type, int head_width, int queries, int blocks,
                      int num_threads, double seconds) {
  require(head_width > 0 && head_width % 16 == 0, "head width must be a multiple of 16");
  require(queries > 0 && blocks > 0 && blocks <= kPieceKeys / kBlockTokens && num_threads > 0,
          "queries, blocks (at most a piece) and num_threads must be at least 1");
  const KernelTable& kernels = kernels_named(kernel_set);
  nb::gil_scoped_release release;
  return measure_attention(kernels, {head_width, queries, blocks, kv_type}, num_threads, seconds);
}

}  // namespace

void bind_measurements(nb::module_& m) {
  nb::module_ measure = m.def_submodule("measure", "Ceilings of this machine.");
  nb::class_<ReadBuffer>(measure, "ReadBuffer")
      .def(
          "__init__",
          [](ReadBuffer* self, size_t bytes, int num_threads) {
            require(bytes > 0 && num_threads > 0, "bytes and num_threads must be at least 1");
            nb::gil_scoped_release release;
            new (self) ReadBuffer(bytes, num_threads);
          },
          "bytes"_a, "num_threads"_a)
      .def("measure", &ReadBuffer::measure, "streams"_a, "passes"_a, nb::call_guard<nb::gil_scoped_release>(),
           "Bytes per second of each pass, all threads together.")
      .def_prop_ro("num_bytes", &ReadBuffer::bytes);
  measure.def("linear_rate", &linear_rate, "kernel_set"_a, "type"_a, "outputs"_a, "columns"_a, "rows"_a,
              "num_threads"_a, "seconds"_a, "Operations and weight bytes per second, all threads together.");
  measure.def("attention_rate", &attention_rate, "kernel_set"_a, "kv_type"_a, "head_width"_a, "queries"_a, "blocks"_a,
              "num_threads"_a, "seconds"_a, "Operations per second, all threads together.");
}

}  // namespace ferrum
