// Conversions from and to 16-bit floats.
#include "stored_weights.h"
#include "vector_groups.h"

namespace ferrum::vectors {
namespace {

// Every 16-bit pattern as a weight of one input: fma(1, w, +0) is w, and read_row the single-value conversion.
void sixteen_bit_weights(const KernelTable& kernels, WeightType type, const char* name) {
  constexpr int count = 1 << 16;
  std::vector<uint16_t> stored(count);
  for (int i = 0; i < count; ++i) stored[size_t(i)] = uint16_t(i);
  const Weight weight(type, count, 1, reinterpret_cast<const uint8_t*>(stored.data()));
  const float one = 1.0f;
  std::vector<float> out(count);
  kernels.linear_float(weight.view, 0, weight.tiles, &one, 1, 0, 1, out.data(), count, nullptr);
  Digest digest;
  digest.add(out.data(), out.size());
  for (int i = 0; i < count; ++i) {
    read_row(weight.view, i, out.data());
    digest.add(out[0]);
  }
  print(std::string("every ") + name, digest);
}

// Floats of every sign, exponent and leading mantissa bits, with ends just below, at and above the ties.
void float_to_half_vectors(const KernelTable& kernels) {
  constexpr int width = 64;
  std::vector<uint16_t> block(kv_head_bytes(KvType::f16, width) / sizeof(uint16_t));
  const uint16_t *keys = block.data(), *values = keys + size_t(width) * kGroup;
  Digest digest;
  for (uint32_t end : {0x0000u, 0x0001u, 0x0fffu, 0x1000u, 0x1001u, 0x2fffu, 0x3000u, 0x3001u, 0xffffu}) {
    float x[width];
    for (uint32_t high = 0; high < 0x10000; high += width) {
      for (uint32_t i = 0; i < width; ++i) x[i] = float_of_bits(((high + i) << 16) | end);
      const int slot = int(high / width) % kGroup;
      kernels.store_kv(x, x, width, slot, KvType::f16, reinterpret_cast<uint8_t*>(block.data()));
      for (int d = 0; d < width; ++d) digest.add(uint32_t(keys[size_t(d) * kGroup + slot]));
      digest.add(values + size_t(slot) * width, width);
    }
  }
  print("float_to_half", digest);
}

}  // namespace

void sixteen_bit_vectors(const KernelTable& kernels) {
  sixteen_bit_weights(kernels, WeightType::F16, "half");
  sixteen_bit_weights(kernels, WeightType::BF16, "bfloat");
  float_to_half_vectors(kernels);
}

}  // namespace ferrum::vectors
