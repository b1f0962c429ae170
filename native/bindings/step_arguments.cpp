#include "step_arguments.h"

namespace ferrum {

void check_rows(const Step& step, const Limits& limits, int vocabulary) {
  const int32_t *starts = step.sequence_starts, *positions = step.positions;
  require(starts[0] == 0 && starts[step.num_sequences] == step.num_tokens, "sequence_starts do not cover the rows");
  for (int i = 0; i < step.num_tokens; ++i)
    require(step.token_ids[i] >= 0 && step.token_ids[i] < vocabulary, "token id outside the vocabulary");
  for (int s = 0; s < step.num_sequences; ++s) {
    require(starts[s] < starts[s + 1], "a sequence without rows");
    require(starts[s + 1] <= step.num_tokens, "sequence_starts do not cover the rows");
    for (int row = starts[s]; row < starts[s + 1]; ++row)
      require(positions[row] >= 0 && positions[row] < limits.context_length &&
                  (row == starts[s] || positions[row] == positions[row - 1] + 1),
              "positions must be consecutive and inside the context");
    const int32_t* tables = step.block_tables + size_t(s) * size_t(step.block_table_stride);
    const int blocks = positions[starts[s + 1] - 1] / kBlockTokens + 1;
    require(blocks <= step.block_table_stride, "a block table is too short for its positions");
    for (int b = 0; b < blocks; ++b)
      require(tables[b] >= 0 && tables[b] < limits.num_blocks, "a block id outside the arena");
  }
  for (int i = 0; i < step.num_outputs; ++i)
    require(step.output_rows[i] >= 0 && step.output_rows[i] < step.num_tokens, "an output row outside the step");
}

LogProbabilityColumns log_probability_columns(const Step& step, int vocabulary, const nb::object& wanted,
                                              const nb::object& found) {
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
    require(known_tokens(row) < vocabulary, "a known token outside the vocabulary");
  }
  return {num_entries.data(), known_tokens.data(), values.data(),        ranks.data(),
          top_ids.data(),     top_values.data(),   int(top_ids.shape(1))};
}

}  // namespace ferrum
