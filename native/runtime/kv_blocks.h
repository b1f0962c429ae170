// Whole blocks of the KV arenas, moved as they lie: one block is that block of every layer, layer after layer.
#pragma once

#include <cstdint>
#include <cstring>

#include "step.h"

namespace ferrum {

inline size_t kv_block_bytes(const Memory& memory) {
  size_t bytes = 0;
  for (const KvLayer& layer : memory.kv_layers) bytes += layer.block_bytes;
  return bytes;
}

inline void copy_kv_block(const Memory& memory, int source, int target) {
  for (const KvLayer& layer : memory.kv_layers)
    memcpy(layer.block_of(target, 0), layer.block_of(source, 0), layer.block_bytes);
}

inline void read_kv_block(const Memory& memory, int block, uint8_t* out) {
  for (const KvLayer& layer : memory.kv_layers) {
    memcpy(out, layer.block_of(block, 0), layer.block_bytes);
    out += layer.block_bytes;
  }
}

inline void write_kv_block(const Memory& memory, int block, const uint8_t* content) {
  for (const KvLayer& layer : memory.kv_layers) {
    memcpy(layer.block_of(block, 0), content, layer.block_bytes);
    content += layer.block_bytes;
  }
}

}  // namespace ferrum
