// The Python module ferrum._native: checks shapes, releases the interpreter lock, forwards. No logic of its own.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <optional>
#include <stdexcept>
#include <string>
#include <tuple>

#include "arrays.h"
#include "attention_cut.h"
#include "kernels/kernel_table.h"
#include "measure/arithmetic_rate.h"
#include "measure/read_bandwidth.h"
#include "runtime/kv_blocks.h"
#include "runtime/plan_interpreter.h"
#include "runtime/weight_packing.h"
#include "sampling_arguments.h"
#include "text/string_table.h"

using namespace nanobind::literals;

namespace ferrum {
namespace {

const KernelTable& kernels_named(const std::string& name) {
  const KernelTable* table = select_kernels(name.c_str());
  if (table == nullptr) throw std::invalid_argument("kernel set '" + name + "' cannot run on this processor");
  return *table;
}

void require_source(WeightType type, int rows, int columns, size_t bytes) {
  packed_size(type, rows, columns);
  require(bytes == source_row_bytes(type, columns) * size_t(rows), "weight data does not match its shape");
}

// ---- the runtime ----------------------------------------------------------------------------------------------------

class Runtime {
 public:
  Runtime(const std::string& kernel_set, int num_threads, int max_tokens, int max_outputs, int num_blocks,
          int context_length)
      : kernels_(kernels_named(kernel_set)),
        interpreter_(&kernels_, num_threads, {max_tokens, max_outputs, num_blocks, context_length}) {}

  void reserve_weights(size_t bytes) { interpreter_.reserve_weights(bytes); }
  int add_weight(int type, int rows, int columns) { return interpreter_.add_weight(WeightType(type), rows, columns); }
  void pack_weights(const std::vector<std::tuple<int, int, Array<uint8_t>>>& sources) {
    const std::vector<WeightView>& weights = interpreter_.memory().weights;
    std::vector<WeightRows> parts;
    for (const auto& [id, first_row, data] : sources) {
      require(id >= 0 && id < int(weights.size()), "a weight that was not added");
      const WeightView& weight = weights[size_t(id)];
      const size_t row_bytes = source_row_bytes(weight.type, weight.columns);
      const int num_rows = int(data.size() / row_bytes), end = first_row + num_rows;
      require(size_t(num_rows) * row_bytes == data.size(), "weight data are not whole rows");
      require(first_row >= 0 && first_row % kTileColumns == 0 && end <= weight.rows &&
                  (end % kTileColumns == 0 || end == weight.rows),
              "rows of a weight must begin and end on tiles, inside the weight");
      parts.push_back({weight, first_row, num_rows, data.data()});
    }
    nb::gil_scoped_release release;
    interpreter_.pack_weights(parts);
  }
  int add_vector(Array<float> values) { return interpreter_.add_vector(values.data(), int(values.size())); }
  int add_buffer(int width, bool per_output, bool replicated) {
    return interpreter_.add_buffer(width, space(per_output), replicated);
  }
  int add_quantized(int width, bool per_output, bool replicated) {
    return interpreter_.add_quantized(width, space(per_output), replicated);
  }
  int add_kv_layer(KvType type, int num_heads, int head_width) {
    require(head_width % 16 == 0, "head width must be a multiple of 16");
    return interpreter_.add_kv_layer(type, num_heads, head_width);
  }
  int add_rope_table(Array<double> frequencies) {
    return interpreter_.add_rope_table(frequencies.data(), int(frequencies.size()));
  }
  void add_row_chain(bool per_output, bool replicable, std::vector<RowStep> steps, bool follows_group) {
    interpreter_.add_operation(
        std::make_unique<RowChain>(space(per_output), replicable, std::move(steps), follows_group));
  }
  void add_linear_group(int input, bool quantized, bool per_output, std::vector<LinearSegment> segments,
                        std::vector<RowStep> then) {
    for (const RowStep& step : then) require(is_column_step(step.kind), "a group of linears goes on by columns only");
    interpreter_.add_operation(
        std::make_unique<LinearGroup>(input, quantized, space(per_output), std::move(segments), std::move(then)));
  }
  void add_attention(const AttentionShape& shape) {
    interpreter_.add_operation(std::make_unique<PagedAttention>(shape));
  }
  void finish(int logits, int vocabulary) {
    vocabulary_ = vocabulary;
    interpreter_.finish(logits, vocabulary);
  }

  bool run(Array<int32_t> token_ids, Array<int32_t> positions, Array<int32_t> sequence_starts,
           Matrix<int32_t> block_tables, Array<int32_t> output_rows, nb::object sampling, MutableArray<int32_t> tokens,
           MutableArray<double> mirostat_mu, nb::object digests, nb::object wanted, nb::object found) {
    const Limits& limits = interpreter_.limits();
    Step step;
    step.num_tokens = int(token_ids.size());
    step.num_sequences = int(sequence_starts.size()) - 1;
    step.num_outputs = int(output_rows.size());
    require(step.num_tokens > 0 && step.num_tokens <= limits.max_tokens, "step has no rows, or more than max_tokens");
    require(step.num_outputs <= limits.max_outputs, "step has more output rows than max_outputs");
    require(positions.size() == token_ids.size(), "positions and token_ids differ in length");
    require(step.num_sequences > 0 && int(block_tables.shape(0)) == step.num_sequences,
            "block_tables and sequence_starts differ in length");
    check_rows(step, token_ids, positions, sequence_starts, block_tables, output_rows);
    step.token_ids = token_ids.data();
    step.positions = positions.data();
    step.sequence_starts = sequence_starts.data();
    step.block_tables = block_tables.data();
    step.block_table_stride = int(block_tables.shape(1));
    step.output_rows = output_rows.data();

    std::optional<SamplingArguments> arguments;
    if (!sampling.is_none()) {
      arguments.emplace(sampling, SamplingArguments::Sizes{step.num_outputs, vocabulary_, limits.context_length},
                        mirostat_mu);
      require(int(tokens.size()) == step.num_outputs, "tokens and output_rows differ in length");
      step.sampling = &arguments->columns();
      step.sampled_tokens = tokens.data();
    }
    if (!digests.is_none()) {
      const auto target = nb::cast<MutableArray<uint64_t>>(digests);
      require(int(target.size()) == step.num_outputs, "digests and output_rows differ in length");
      step.digests = target.data();
    }
    LogProbabilityColumns log_probabilities;
    if (!wanted.is_none()) {
      log_probabilities = log_probability_columns(step, wanted, found);
      step.log_probabilities = &log_probabilities;
    }
    nb::gil_scoped_release release;
    return interpreter_.run(step);
  }

  void copy_logits(MutableMatrix<float> out) const {
    require(int(out.shape(1)) == vocabulary_, "logits have another width than the vocabulary");
    for (size_t row = 0; row < out.shape(0); ++row)
      memcpy(out.data() + row * out.shape(1), interpreter_.logits_row(int(row)), sizeof(float) * out.shape(1));
  }
  size_t block_bytes() const { return interpreter_.memory().kv_block_bytes; }
  void copy_block(int source, int target) {
    require_block(source);
    require_block(target);
    if (source != target) copy_kv_block(interpreter_.memory(), source, target);
  }
  void read_block(int block, MutableArray<uint8_t> out) const {
    require_block(block);
    require(out.size() == block_bytes(), "out is not as large as a block");
    read_kv_block(interpreter_.memory(), block, out.data());
  }
  void write_block(int block, Array<uint8_t> content) {
    require_block(block);
    require(content.size() == block_bytes(), "content is not as large as a block");
    write_kv_block(interpreter_.memory(), block, content.data());
  }
  void abort() { interpreter_.abort(); }
  void start_timing() { interpreter_.start_timing(); }
  void stop_timing() { interpreter_.stop_timing(); }
  std::vector<double> operation_seconds() const { return interpreter_.operation_seconds(); }
  size_t weight_bytes() const { return interpreter_.weight_bytes(); }
  size_t kv_bytes() const { return interpreter_.kv_bytes(); }
  size_t scratch_bytes() const { return interpreter_.scratch_bytes(); }
  std::string kernel_set() const { return kernels_.name; }

 private:
  void require_block(int block) const {
    require(block >= 0 && block < interpreter_.limits().num_blocks, "a block id outside the arena");
  }

  LogProbabilityColumns log_probability_columns(const Step& step, const nb::object& wanted,
                                                const nb::object& found) const {
    require(step.sampling != nullptr, "log-probabilities are wanted where nothing is chosen");
    const auto num_entries = nb::cast<Array<int32_t>>(wanted.attr("num_entries"));
    const auto known_tokens = nb::cast<Array<int32_t>>(wanted.attr("known_tokens"));
    const auto values = nb::cast<MutableArray<float>>(found.attr("values"));
    const auto ranks = nb::cast<MutableArray<int32_t>>(found.attr("ranks"));
    const auto top_ids = nb::cast<MutableMatrix<int32_t>>(found.attr("top_ids"));
    const auto top_values = nb::cast<MutableMatrix<float>>(found.attr("top_values"));
    for (size_t size :
         {num_entries.size(), known_tokens.size(), values.size(), ranks.size(), top_ids.shape(0), top_values.shape(0)})
      require(int(size) == step.num_outputs, "log-probability columns and output_rows differ in length");
    require(top_ids.shape(1) == top_values.shape(1), "top_ids and top_values differ in width");
    for (int row = 0; row < step.num_outputs; ++row) {
      require(num_entries(row) >= 0 && num_entries(row) <= int(top_ids.shape(1)) + 1,
              "more log-probabilities are wanted than there is room for");
      require(known_tokens(row) < vocabulary_, "a known token outside the vocabulary");
    }
    return {num_entries.data(), known_tokens.data(), values.data(),        ranks.data(),
            top_ids.data(),     top_values.data(),   int(top_ids.shape(1))};
  }

  static RowSpace space(bool per_output) { return per_output ? RowSpace::outputs : RowSpace::tokens; }

  void check_rows(const Step& step, const Array<int32_t>& token_ids, const Array<int32_t>& positions,
                  const Array<int32_t>& starts, const Matrix<int32_t>& tables,
                  const Array<int32_t>& output_rows) const {
    const Limits& limits = interpreter_.limits();
    require(starts(0) == 0 && starts(size_t(step.num_sequences)) == step.num_tokens,
            "sequence_starts do not cover the rows");
    for (int i = 0; i < step.num_tokens; ++i)
      require(token_ids(i) >= 0 && token_ids(i) < vocabulary_, "token id outside the vocabulary");
    for (int s = 0; s < step.num_sequences; ++s) {
      require(starts(s) < starts(s + 1), "a sequence without rows");
      for (int row = starts(s); row < starts(s + 1); ++row)
        require(positions(row) >= 0 && positions(row) < limits.context_length &&
                    (row == starts(s) || positions(row) == positions(row - 1) + 1),
                "positions must be consecutive and inside the context");
      const int blocks = positions(starts(s + 1) - 1) / kBlockTokens + 1;
      require(blocks <= int(tables.shape(1)), "a block table is too short for its positions");
      for (int b = 0; b < blocks; ++b)
        require(tables(s, b) >= 0 && tables(s, b) < limits.num_blocks, "a block id outside the arena");
    }
    for (int i = 0; i < step.num_outputs; ++i)
      require(output_rows(i) >= 0 && output_rows(i) < step.num_tokens, "an output row outside the step");
  }

  const KernelTable& kernels_;
  PlanInterpreter interpreter_;
  int vocabulary_ = 0;
};

// ---- single kernels, for their tests and micro-benchmarks --------------------------------------------------------

struct PackedWeight {
  PackedWeight(int weight_type, int weight_rows, int weight_columns, Array<uint8_t> data)
      : type(WeightType(weight_type)), rows(weight_rows), columns(weight_columns) {
    require_source(type, rows, columns, data.size());
    const PackedSize size = packed_size(type, rows, columns);
    arena = Arena(size.tile_bytes * size_t(size.tiles));
    pack_tiles(type, rows, columns, data.data(), arena.as<uint8_t>(), 0, size.tiles);
    view = {type, rows, columns, arena.as<uint8_t>(), size.tile_bytes, size.scales_offset};
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

// ---- measurements ---------------------------------------------------------------------------------------------------

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

// ---- arrays of strings ----------------------------------------------------------------------------------------------

// Where ``count`` strings from ``position`` on end, and how many of them the data really hold.
nb::tuple skip_strings(Array<uint8_t> data, uint64_t position, uint64_t count) {
  require(position <= data.size(), "the position lies beyond the data");
  StringTable table(data.data(), data.size(), position);
  uint64_t index = 0;
  while (index < count && table.next()) ++index;
  return nb::make_tuple(table.position(), index);
}

nb::tuple read_strings(nb::bytes data, size_t count) {
  StringTable table(reinterpret_cast<const uint8_t*>(data.c_str()), data.size(), 0);
  nb::object strings = nb::steal(PyTuple_New(Py_ssize_t(count)));
  if (!strings.is_valid()) nb::raise_python_error();
  for (size_t i = 0; i < count; ++i) {
    require(table.next(), "fewer strings than announced");
    PyObject* text = PyUnicode_DecodeUTF8(table.text(), Py_ssize_t(table.length()), "surrogateescape");
    if (text == nullptr) nb::raise_python_error();
    PyTuple_SET_ITEM(strings.ptr(), Py_ssize_t(i), text);
  }
  return nb::borrow<nb::tuple>(strings);
}

void register_measurements(nb::module_& m) {
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

}  // namespace
}  // namespace ferrum

NB_MODULE(_native, m) {
  using namespace ferrum;
  nb::set_leak_warnings(false);  // a runtime alive at interpreter exit is the caller's business, not an error

  nb::enum_<RowStepKind>(m, "RowStepKind")
      .value("EMBED", RowStepKind::embed)
      .value("RMS_NORM", RowStepKind::rms_norm)
      .value("ADD", RowStepKind::add)
      .value("MULTIPLY", RowStepKind::multiply)
      .value("SILU", RowStepKind::silu)
      .value("GELU_TANH", RowStepKind::gelu_tanh)
      .value("SOFT_CAP", RowStepKind::soft_cap)
      .value("ROPE", RowStepKind::rope)
      .value("STORE_KV", RowStepKind::store_kv)
      .value("SELECT", RowStepKind::select)
      .value("QUANTIZE", RowStepKind::quantize);
  nb::enum_<KvType>(m, "KvType").value("F16", KvType::f16).value("INT8", KvType::int8);
  nb::class_<RowStep>(m, "RowStep")
      .def(
          "__init__",
          [](RowStep* self, RowStepKind kind, int out, int a, int b, int weight, int group_width, float factor,
             bool interleaved) { new (self) RowStep{kind, out, a, b, weight, group_width, factor, interleaved}; },
          "kind"_a, "out"_a, "a"_a = -1, "b"_a = -1, "weight"_a = -1, "group_width"_a = 0, "factor"_a = 0.0f,
          "interleaved"_a = false);
  nb::class_<LinearSegment>(m, "LinearSegment")
      .def(
          "__init__",
          [](LinearSegment* self, int weight, int out, int bias) { new (self) LinearSegment{weight, out, bias}; },
          "weight"_a, "out"_a, "bias"_a = -1);
  nb::class_<AttentionShape>(m, "AttentionShape")
      .def(
          "__init__",
          [](AttentionShape* self, int q, int out, int kv_layer, int num_heads, float scale, int window,
             float soft_cap) { new (self) AttentionShape{q, out, kv_layer, num_heads, scale, window, soft_cap}; },
          "q"_a, "out"_a, "kv_layer"_a, "num_heads"_a, "scale"_a, "window"_a = 0, "soft_cap"_a = 0.0f);
  nb::class_<Runtime>(m, "Runtime")
      .def(nb::init<const std::string&, int, int, int, int, int>(), "kernel_set"_a, "num_threads"_a, "max_tokens"_a,
           "max_outputs"_a, "num_blocks"_a, "context_length"_a)
      .def("reserve_weights", &Runtime::reserve_weights, "bytes"_a)
      .def("add_weight", &Runtime::add_weight, "type"_a, "rows"_a, "columns"_a)
      .def("pack_weights", &Runtime::pack_weights, "sources"_a,
           "Fills weights that were added: (id, first row, rows as the file stores them), in any order.")
      .def("add_vector", &Runtime::add_vector, "values"_a)
      .def("add_buffer", &Runtime::add_buffer, "width"_a, "per_output"_a, "replicated"_a)
      .def("add_quantized", &Runtime::add_quantized, "width"_a, "per_output"_a, "replicated"_a)
      .def("add_kv_layer", &Runtime::add_kv_layer, "type"_a, "num_heads"_a, "head_width"_a)
      .def("add_rope_table", &Runtime::add_rope_table, "inverse_frequencies"_a)
      .def("add_row_chain", &Runtime::add_row_chain, "per_output"_a, "replicable"_a, "steps"_a,
           "follows_group"_a = false)
      .def("add_linear_group", &Runtime::add_linear_group, "input"_a, "quantized"_a, "per_output"_a, "segments"_a,
           "then"_a = std::vector<RowStep>{})
      .def("add_attention", &Runtime::add_attention, "shape"_a)
      .def("finish", &Runtime::finish, "logits"_a, "vocabulary"_a)
      .def("run", &Runtime::run, "token_ids"_a, "positions"_a, "sequence_starts"_a, "block_tables"_a, "output_rows"_a,
           "sampling"_a.none(), "tokens"_a, "mirostat_mu"_a, "digests"_a.none(), "wanted"_a.none() = nb::none(),
           "found"_a.none() = nb::none())
      .def("copy_logits", &Runtime::copy_logits, "out"_a)
      .def("copy_block", &Runtime::copy_block, "source"_a, "target"_a)
      .def("read_block", &Runtime::read_block, "block"_a, "out"_a)
      .def("write_block", &Runtime::write_block, "block"_a, "content"_a)
      .def("abort", &Runtime::abort)
      .def("start_timing", &Runtime::start_timing)
      .def("stop_timing", &Runtime::stop_timing)
      .def_prop_ro("operation_seconds", &Runtime::operation_seconds)
      .def_prop_ro("block_bytes", &Runtime::block_bytes)
      .def_prop_ro("weight_bytes", &Runtime::weight_bytes)
      .def_prop_ro("kv_bytes", &Runtime::kv_bytes)
      .def_prop_ro("scratch_bytes", &Runtime::scratch_bytes)
      .def_prop_ro("kernel_set", &Runtime::kernel_set);

  bind_attention_cut(m);
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

  m.def("skip_strings", &skip_strings, "data"_a, "position"_a, "count"_a,
        "(end, strings found) of an array of strings as GGUF stores it; fewer are found when the data end.");
  m.def("read_strings", &read_strings, "data"_a, "count"_a, "Such an array, decoded; what is not UTF-8 is escaped.");

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
  register_measurements(m);
}
