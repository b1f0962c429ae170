// Single kernels, for their tests and micro-benchmarks; and which there are.
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "../runtime/plan_interpreter.h"
#include "../runtime/weight_packing.h"
#include "arrays.h"
#include "bind.h"
#include "kernels_named.h"
#include "sampling_arguments.h"

using namespace nanobind::literals;

namespace ferrum {
namespace {

struct PackedWeight {
  PackedWeight(int weight_type, int weight_rows, int weight_columns, Array<uint8_t> data)
      : type(WeightType(weight_type)), rows(weight_rows), columns(weight_columns) {
    const PackedSize size = packed_size(type, rows, columns);
    require(data.size() == source_row_bytes(type, columns) * size_t(rows), "weight data does not match its shape");
    arena = Arena(size.tile_bytes * size_t(size.tiles));
    view = pack_matrix(type, rows, columns, data.data(), arena.as<uint8_t>());
  }
  WeightType type;
  int rows, columns;
  Arena arena;
  WeightView view;
};

// out [rows of x, padded outputs] = x [rows, columns] @ weight.T, through quantised activations for quantised types.
void linear(const std::string& kernel_set, const PackedWeight& weight, Matrix<float> x, MutableMatrix<float> out) {
  const KernelTable& kernels = kernels_named(kernel_set);
  const int rows = int(x.shape(0)), tiles = divide_up(weight.rows, kTileColumns);
  require(int(x.shape(1)) == weight.columns && out.shape(0) == x.shape(0) && int(out.shape(1)) == tiles * kTileColumns,
          "shapes of x, weight and out do not fit");
  nb::gil_scoped_release release;
  if (layout_of(weight.type) == nullptr) {
    kernels.linear_float(weight.view, 0, tiles, x.data(), x.shape(1), 0, rows, out.data(), out.shape(1), nullptr);
    return;
  }
  PlanInterpreter scratch(&kernels, 1, {rows, 1, 1, 1});
  const QuantizedRows& quantized =
      scratch.memory().quantized[size_t(scratch.add_quantized(weight.columns, RowSpace::tokens, false))][0];
  for (int row = 0; row < rows; ++row)
    kernels.quantize_row(x.data() + size_t(row) * x.shape(1), weight.columns, quantized, row);
  kernels.linear_quantized(weight.view, 0, tiles, weight.view.data, quantized, 0, rows, out.data(), out.shape(1),
                           nullptr);
}

// The choice of tokens alone, for rows of logits that come from anywhere.
class Sampler {
 public:
  Sampler(const std::string& kernel_set, int num_threads, int max_rows, int vocabulary, int context_length)
      : interpreter_(&kernels_named(kernel_set), num_threads, {1, max_rows, 1, context_length}),
        logits_(interpreter_.add_buffer(vocabulary, RowSpace::outputs, false)) {
    interpreter_.finish(logits_, vocabulary);
  }

  void load(Matrix<float> logits) {
    const Buffer& buffer = interpreter_.memory().buffers[size_t(logits_)];
    require(int(logits.shape(1)) == buffer.width && int(logits.shape(0)) <= interpreter_.limits().max_outputs,
            "logits are more or wider rows than this sampler takes");
    for (size_t row = 0; row < logits.shape(0); ++row)
      memcpy(buffer.row(int(row), 0), logits.data() + row * logits.shape(1), sizeof(float) * logits.shape(1));
    num_rows_ = int(logits.shape(0));
  }

  void choose(nb::object sampling, MutableArray<int32_t> tokens, MutableArray<double> mirostat_mu) {
    const int vocabulary = interpreter_.memory().buffers[size_t(logits_)].width;
    const SamplingArguments arguments(sampling, {num_rows_, vocabulary, interpreter_.limits().context_length},
                                      mirostat_mu);
    require(int(tokens.size()) == num_rows_, "tokens and rows differ in length");
    Step step;
    step.num_outputs = num_rows_;
    step.sampling = &arguments.columns();
    step.sampled_tokens = tokens.data();
    nb::gil_scoped_release release;
    interpreter_.run(step);
  }

 private:
  PlanInterpreter interpreter_;
  const int logits_;
  int num_rows_ = 0;
};

// False for logits that are not finite; top_ids and top_values say how many of the most likely are wanted.
bool log_probabilities(const std::string& kernel_set, Array<float> logits, int token, MutableArray<float> value,
                       MutableArray<int32_t> rank, MutableArray<int32_t> top_ids, MutableArray<float> top_values) {
  require(token >= 0 && size_t(token) < logits.size(), "a token outside the vocabulary");
  require(
      value.size() == 1 && rank.size() == 1 && top_ids.size() == top_values.size() && top_ids.size() <= logits.size(),
      "shapes of value, rank, top_ids and top_values do not fit");
  return kernels_named(kernel_set)
      .log_probabilities(logits.data(), int(logits.size()), token, int(top_ids.size()),
                         {value.data(), rank.data(), top_ids.data(), top_values.data()});
}

}  // namespace

void bind_kernels(nb::module_& m) {
  m.def(
      "packed_bytes",
      [](int type, int rows, int columns) {
        const PackedSize size = packed_size(WeightType(type), rows, columns);
        return size.tile_bytes * size_t(size.tiles);
      },
      "type"_a, "rows"_a, "columns"_a, "Bytes of a weight in the kernels' layout.");
  m.def(
      "kernel_sets",
      [] {
        std::vector<std::string> names;
        for (const char* name : {"avx512", "avxvnni", "avx2", "portable"})
          if (select_kernels(name) != nullptr) names.emplace_back(name);
        return names;
      },
      "The kernel sets this processor can run, best first.");

  nb::module_ kernels = m.def_submodule("kernels", "Single kernels, for their tests and micro-benchmarks.");
  nb::class_<PackedWeight>(kernels, "PackedWeight")
      .def(nb::init<int, int, int, Array<uint8_t>>(), "type"_a, "rows"_a, "columns"_a, "data"_a)
      .def_prop_ro("num_bytes", [](const PackedWeight& w) { return w.arena.bytes(); })
      .def(
          "read_row",
          [](const PackedWeight& w, int row, MutableArray<float> out) {
            require(row >= 0 && row < w.rows && int(out.size()) == w.columns, "row or width out of range");
            read_row(w.view, row, out.data());
          },
          "row"_a, "out"_a);
  kernels.def("linear", &linear, "kernel_set"_a, "weight"_a, "x"_a, "out"_a);
  nb::class_<Sampler>(kernels, "Sampler")
      .def(nb::init<const std::string&, int, int, int, int>(), "kernel_set"_a, "num_threads"_a, "max_rows"_a,
           "vocabulary"_a, "context_length"_a)
      .def("load", &Sampler::load, "logits"_a, "Takes rows of logits, which it chooses from until others come.")
      .def("choose", &Sampler::choose, "sampling"_a, "tokens"_a, "mirostat_mu"_a);
  kernels.def("log_probabilities", &log_probabilities, "kernel_set"_a, "logits"_a, "token"_a, "value"_a, "rank"_a,
              "top_ids"_a, "top_values"_a);
}

}  // namespace ferrum
