// Weights as files store them, of every type.
#pragma once

#include <cstring>
#include <vector>

#include "../runtime/arena.h"
#include "../runtime/weight_packing.h"
#include "digest.h"

namespace ferrum::vectors {

struct NamedType {
  WeightType type;
  const char* name;
  int block_values;
  std::vector<int> factors;  // where a block keeps its halves
};

inline const std::vector<NamedType>& weight_types() {
  static const std::vector<NamedType> types{
      {WeightType::F32, "F32", 1, {}},           {WeightType::F16, "F16", 1, {}},
      {WeightType::BF16, "BF16", 1, {}},         {WeightType::Q4_0, "Q4_0", 32, {0}},
      {WeightType::Q4_1, "Q4_1", 32, {0, 2}},    {WeightType::Q5_0, "Q5_0", 32, {0}},
      {WeightType::Q5_1, "Q5_1", 32, {0, 2}},    {WeightType::Q8_0, "Q8_0", 32, {0}},
      {WeightType::Q2_K, "Q2_K", 256, {80, 82}}, {WeightType::Q3_K, "Q3_K", 256, {108}},
      {WeightType::Q4_K, "Q4_K", 256, {0, 2}},   {WeightType::Q5_K, "Q5_K", 256, {0, 2}},
      {WeightType::Q6_K, "Q6_K", 256, {208}},
  };
  return types;
}

// Random stored bits; halves and floats lie between 2^-7 and 2^-3, of either sign.
inline std::vector<uint8_t> stored_weight(const NamedType& kind, int rows, int columns, Generator& generator) {
  std::vector<uint8_t> bytes(source_row_bytes(kind.type, columns) * size_t(rows));
  for (uint8_t& byte : bytes) byte = uint8_t(generator.next());
  const auto put_half = [&](size_t at, uint16_t exponent_bits) {
    const uint16_t half = uint16_t((generator.next() & 0x83ffu) | exponent_bits);
    memcpy(bytes.data() + at, &half, 2);
  };
  if (kind.type == WeightType::F32) {
    for (size_t at = 0; at < bytes.size(); at += 4) {
      const float value = generator.normal() * 0.0625f;
      memcpy(bytes.data() + at, &value, 4);
    }
  } else if (kind.block_values == 1) {
    const bool is_half = kind.type == WeightType::F16;
    for (size_t at = 0; at < bytes.size(); at += 2)
      put_half(at, uint16_t(is_half ? (8 + generator.below(4)) << 10 : 0x3c00));
  } else {
    const size_t block_bytes = source_row_bytes(kind.type, kind.block_values);
    for (size_t start = 0; start < bytes.size(); start += block_bytes)
      for (int factor : kind.factors) put_half(start + size_t(factor), uint16_t((8 + generator.below(4)) << 10));
  }
  return bytes;
}

struct Weight {
  Weight(WeightType type, int rows, int columns, const uint8_t* source) {
    const PackedSize size = packed_size(type, rows, columns);
    arena = Arena(size.tile_bytes * size_t(size.tiles));
    view = pack_matrix(type, rows, columns, source, arena.as<uint8_t>());
    tiles = size.tiles;
  }
  Arena arena;
  WeightView view;
  int tiles;
};

}  // namespace ferrum::vectors
