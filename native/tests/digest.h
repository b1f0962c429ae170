// Digests and inputs that are the same on every processor: integers first, floats made of them exactly.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

namespace ferrum::vectors {

// The logit digest of docs/numerics.md over 32-bit words.
class Digest {
 public:
  void add(uint32_t word) {
    hash_ = (hash_ ^ word) * 0x100000001b3u;
    hash_ ^= hash_ >> 29;
  }
  // Sign and payload of a NaN are the processor's own (x86 makes negative ones, Arm positive); that it is one is not.
  void add(float value) {
    uint32_t bits;
    memcpy(&bits, &value, 4);
    add((bits & 0x7fffffffu) > 0x7f800000u ? 0x7fc00000u : bits);
  }
  void add(const float* values, size_t count) {
    for (size_t i = 0; i < count; ++i) add(values[i]);
  }
  void add(const uint16_t* values, size_t count) {
    for (size_t i = 0; i < count; ++i) add(uint32_t(values[i]));
  }
  void add(const int32_t* values, size_t count) {
    for (size_t i = 0; i < count; ++i) add(uint32_t(values[i]));
  }
  void add(const int8_t* values, size_t count) {
    for (size_t i = 0; i < count; ++i) add(uint32_t(values[i]));
  }
  uint64_t value() const { return hash_; }

 private:
  uint64_t hash_ = 0xcbf29ce484222325u;
};

// SplitMix64 (Steele, Lea and Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014).
class Generator {
 public:
  explicit Generator(uint64_t seed) : state_(seed) {}
  uint64_t next() {
    uint64_t z = state_ += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
  }
  int below(int bound) { return int(next() % uint64_t(bound)); }
  // Bell-shaped, deviation about 1: a sum of four 16-bit numbers, exact in 24 bits.
  float normal() {
    const uint64_t bits = next();
    const int sum = int(bits & 0xffff) + int((bits >> 16) & 0xffff) + int((bits >> 32) & 0xffff) + int(bits >> 48);
    return float(sum - 131070) * 0x1p-15f;
  }
  std::vector<float> normals(size_t count, float factor = 1.0f) {
    std::vector<float> values(count);
    for (float& value : values) value = normal() * factor;
    return values;
  }

 private:
  uint64_t state_;
};

inline float float_of_bits(uint32_t bits) {
  float value;
  memcpy(&value, &bits, 4);
  return value;
}

}  // namespace ferrum::vectors
