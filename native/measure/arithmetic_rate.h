// How fast the kernels' own inner loops run on data of a chosen size: in the nearest cache the ceiling of prefill, from
// memory the ceiling of a single linear.
#pragma once

#include "../kernels/kernel_table.h"

namespace ferrum {

struct LinearShape {
  WeightType type;
  int outputs;  // multiple of kTileColumns
  int columns;  // multiple of the type's block
  int rows;     // of activations
};

struct LinearRate {
  double operations_per_second;  // a multiply-add counts as two
  double weight_bytes_per_second;
};

// Every one of ``num_threads`` works on a weight of its own for about ``seconds``; the rates are of all together.
LinearRate measure_linear(const KernelTable& kernels, const LinearShape& shape, int num_threads, double seconds);

struct AttentionTile {
  int head_width;  // multiple of 16
  int queries;     // that share K and V
  int blocks;      // of 32 keys, all visible
  KvType kv_type;
};

// Operations per second of scores and weighted sums together, as above; K and V stay where they fit.
double measure_attention(const KernelTable& kernels, const AttentionTile& tile, int num_threads, double seconds);

}  // namespace ferrum
