// How attention is cut into tasks: nothing in a step's result shows it, so only a look at it can.
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <tuple>
#include <vector>

#include "../runtime/attention_tiles.h"
#include "arrays.h"
#include "bind.h"

using namespace nanobind::literals;

namespace ferrum {
namespace {

// First row, end row, KV head, first piece, end piece.
using CutTask = std::tuple<int, int, int, int, int>;

std::vector<CutTask> cut_attention(Array<int32_t> positions, Array<int32_t> sequence_starts, int num_kv_heads,
                                   int queries_per_row, int window, int num_threads, int context_length) {
  require(num_kv_heads > 0 && queries_per_row > 0 && num_threads > 0, "there must be heads and threads");
  require(sequence_starts.size() > 1 && sequence_starts(sequence_starts.size() - 1) == int(positions.size()),
          "sequence_starts must end at the number of rows");
  for (size_t row = 0; row < positions.size(); ++row)
    require(positions(row) >= 0 && positions(row) < context_length, "a position outside the context");
  Step step;
  step.num_tokens = int(positions.size());
  step.num_sequences = int(sequence_starts.size()) - 1;
  step.num_threads = num_threads;
  step.positions = positions.data();
  step.sequence_starts = sequence_starts.data();
  AttentionTiles tiles({num_kv_heads, queries_per_row, window}, step.num_tokens, context_length, num_threads);
  std::vector<CutTask> tasks(size_t(tiles.cut(step)));
  for (size_t task = 0; task < tasks.size(); ++task) {
    const AttentionTiles::TaskPieces pieces = tiles.pieces_of(int(task));
    tasks[task] = {pieces.tile->first_row, pieces.tile->end_row, pieces.tile->head, pieces.begin, pieces.end};
  }
  return tasks;
}

}  // namespace

void bind_attention_cut(nb::module_& m) {
  m.def("cut_attention", &cut_attention, "positions"_a, "sequence_starts"_a, "num_kv_heads"_a, "queries_per_row"_a,
        "window"_a, "num_threads"_a, "context_length"_a,
        "(first row, end row, KV head, first piece, end piece) of each task.");
}

}  // namespace ferrum
