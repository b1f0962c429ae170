// Whole blocks of the KV arena, moved as they lie: every layer's part, layer after layer.
#pragma once

#include <cstdint>
#include <cstring>

#include "step.h"

namespace ferrum {

inline void copy_kv_block(const Memory& memory, int source, int target) {
  memcpy(memory.kv_block(target), memory.kv_block(source), memory.kv_block_bytes);
}

inline void read_kv_block(const Memory& memory, int block, uint8_t* out) {
  memcpy(out, memory.kv_block(block), memory.kv_block_bytes);
}

inline void write_kv_block(const Memory& memory, int block, const uint8_t* content) {
  memcpy(memory.kv_block(block), content, memory.kv_block_bytes);
}

}  // namespace ferrum
