// From a GGUF tensor's blocks to the kernels' tiles (kernels/formats.h) and back to single rows.
#pragma once

#include "../kernels/formats.h"

namespace ferrum {

struct PackedSize {
  size_t tile_bytes;
  size_t scales_offset;
  int tiles;
};

// Sizes of a packed matrix. Throws std::invalid_argument when ``columns`` does not suit the type.
PackedSize packed_size(WeightType type, int rows, int columns);

// Bytes of one row of the GGUF tensor.
size_t source_row_bytes(WeightType type, int columns);

// Packs one tile of ``source`` (rows x columns in GGUF blocks) into ``target``, its place.
void pack_tile(WeightType type, int rows, int columns, const uint8_t* source, int tile, uint8_t* target);
// All of a matrix that lies by itself from ``target`` on.
WeightView pack_matrix(WeightType type, int rows, int columns, const uint8_t* source, uint8_t* target);

// The float32 values of one row, as docs/numerics.md defines an embedding before scaling.
void read_row(const WeightView& weight, int row, float* out);

}  // namespace ferrum
