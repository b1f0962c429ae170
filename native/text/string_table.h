// Strings as GGUF stores an array of them: a 64-bit little-endian length and that many bytes each.
#pragma once

#include <cstdint>
#include <cstring>

namespace ferrum {

// A walk over strings of ``size`` bytes from ``position`` on; never reads beyond them.
class StringTable {
 public:
  StringTable(const uint8_t* data, uint64_t size, uint64_t position) : data_(data), size_(size), position_(position) {}

  // Steps over one string; false, without moving, when it would end beyond the data.
  bool next() {
    if (size_ - position_ < sizeof(uint64_t)) return false;
    uint64_t length;
    memcpy(&length, data_ + position_, sizeof length);
    if (length > size_ - position_ - sizeof length) return false;
    text_ = data_ + position_ + sizeof length;
    length_ = length;
    position_ += sizeof length + length;
    return true;
  }

  const char* text() const { return reinterpret_cast<const char*>(text_); }
  uint64_t length() const { return length_; }
  uint64_t position() const { return position_; }

 private:
  const uint8_t* data_;
  uint64_t size_;
  uint64_t position_;
  const uint8_t* text_ = nullptr;
  uint64_t length_ = 0;
};

}  // namespace ferrum
