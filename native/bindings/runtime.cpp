// A runtime as Python builds it, operation by operation, and runs its steps.
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <optional>
#include <string>
#include <tuple>

#include "../runtime/kv_blocks.h"
#include "../runtime/plan_interpreter.h"
#include "../runtime/weight_packing.h"
#include "arrays.h"
#include "bind.h"
#include "kernels_named.h"
#include "sampling_arguments.h"
#include "step_arguments.h"

using namespace nanobind::literals;

namespace ferrum {
namespace {

class Runtime {
 public:
  Runtime(const std::string& kernel_set, int num_threads, int max_tokens, int max_outputs, int num_blocks,
          int context_length)
      : kernels_(kernels_named(kernel_set)),
        interpreter_(&kernels_, num_threads, {max_tokens, max_outputs, num_blocks, context_length}) {}

  void reserve_weights(size_t bytes) { interpreter_.reserve_weights(bytes); }
  int add_weights(const std::vector<std::tuple<int, int, int>>& shapes) {
    std::vector<WeightShape> all;
    for (const auto& [type, rows, columns] : shapes) all.push_back({WeightType(type), rows, columns});
    require(!all.empty(), "no weights to add");
    return interpreter_.add_weights(all);
  }
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
           MutableArray<double> mirostat_mu, nb::object digests, nb::object wanted, nb::object found,
           int num_lent_threads) {
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
    step.token_ids = token_ids.data();
    step.positions = positions.data();
    step.sequence_starts = sequence_starts.data();
    step.block_tables = block_tables.data();
    step.block_table_stride = int(block_tables.shape(1));
    step.output_rows = output_rows.data();
    require(num_lent_threads >= 0, "num_lent_threads is negative");
    step.num_lent_threads = num_lent_threads;
    check_rows(step, limits, vocabulary_);

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
      log_probabilities = log_probability_columns(step, vocabulary_, wanted, found);
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
  std::vector<int> thread_places() const { return interpreter_.thread_places(); }
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

  static RowSpace space(bool per_output) { return per_output ? RowSpace::outputs : RowSpace::tokens; }

  const KernelTable& kernels_;
  PlanInterpreter interpreter_;
  int vocabulary_ = 0;
};

}  // namespace

void bind_runtime(nb::module_& m) {
  nb::class_<Runtime>(m, "Runtime")
      .def(nb::init<const std::string&, int, int, int, int, int>(), "kernel_set"_a, "num_threads"_a, "max_tokens"_a,
           "max_outputs"_a, "num_blocks"_a, "context_length"_a)
      .def("reserve_weights", &Runtime::reserve_weights, "bytes"_a)
      .def("add_weights", &Runtime::add_weights, "shapes"_a,
           "Places of weights (type, rows, columns) whose tiles lie by turns, in one run of ids; returns the first.")
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
           "found"_a.none() = nb::none(), "num_lent_threads"_a = 0)
      .def("copy_logits", &Runtime::copy_logits, "out"_a)
      .def("copy_block", &Runtime::copy_block, "source"_a, "target"_a)
      .def("read_block", &Runtime::read_block, "block"_a, "out"_a)
      .def("write_block", &Runtime::write_block, "block"_a, "content"_a)
      .def("thread_places", &Runtime::thread_places)
      .def("abort", &Runtime::abort)
      .def("start_timing", &Runtime::start_timing)
      .def("stop_timing", &Runtime::stop_timing)
      .def_prop_ro("operation_seconds", &Runtime::operation_seconds)
      .def_prop_ro("block_bytes", &Runtime::block_bytes)
      .def_prop_ro("weight_bytes", &Runtime::weight_bytes)
      .def_prop_ro("kv_bytes", &Runtime::kv_bytes)
      .def_prop_ro("scratch_bytes", &Runtime::scratch_bytes)
      .def_prop_ro("kernel_set", &Runtime::kernel_set);
}

}  // namespace ferrum
