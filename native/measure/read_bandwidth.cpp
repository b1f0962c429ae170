#include "read_bandwidth.h"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <stdexcept>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace ferrum {
namespace {

// Whole huge pages, and a multiple of every stride below.
constexpr size_t kShareStep = size_t(2) << 20;
constexpr size_t kLine = 64;
// Far enough ahead to hide the latency of memory, near enough to stay in the first-level cache: 8 streams * 1 KiB.
constexpr size_t kPrefetchBytes = 1024;

// Joins everything that is read, so that no load can be left out. Each stream takes a line a turn.
template <int Streams>
uint64_t read_words(const uint8_t* data, size_t bytes) {
  const size_t part = bytes / Streams;
  uint64_t joined[Streams] = {};
  for (size_t at = 0; at < part; at += kLine)
    for (int s = 0; s < Streams; ++s) {
      uint64_t words[kLine / sizeof(uint64_t)];
      memcpy(words, data + size_t(s) * part + at, kLine);
      for (uint64_t word : words) joined[s] |= word;
    }
  uint64_t all = 0;
  for (uint64_t one : joined) all |= one;
  return all;
}

#if defined(__x86_64__)

template <int Streams>
__attribute__((target("avx2"))) uint64_t read_vectors(const uint8_t* data, size_t bytes) {
  const size_t part = bytes / Streams;
  __m256i low = _mm256_setzero_si256(), high = low;
  for (size_t at = 0; at < part; at += kLine)
#pragma GCC unroll 8
    for (int s = 0; s < Streams; ++s) {
      const uint8_t* p = data + size_t(s) * part + at;
      _mm_prefetch(reinterpret_cast<const char*>(p + kPrefetchBytes), _MM_HINT_T0);
      low = _mm256_or_si256(low, _mm256_load_si256(reinterpret_cast<const __m256i*>(p)));
      high = _mm256_or_si256(high, _mm256_load_si256(reinterpret_cast<const __m256i*>(p + 32)));
    }
  alignas(32) uint64_t words[4];
  _mm256_store_si256(reinterpret_cast<__m256i*>(words), _mm256_or_si256(low, high));
  return words[0] | words[1] | words[2] | words[3];
}

template <int Streams>
uint64_t read_share(const uint8_t* data, size_t bytes) {
  return __builtin_cpu_supports("avx2") ? read_vectors<Streams>(data, bytes) : read_words<Streams>(data, bytes);
}

#else

template <int Streams>
uint64_t read_share(const uint8_t* data, size_t bytes) {
  return read_words<Streams>(data, bytes);
}

#endif

using ReadShare = uint64_t (*)(const uint8_t*, size_t);

ReadShare reader_of(int streams) {
  switch (streams) {
    case 1: return read_share<1>;
    case 2: return read_share<2>;
    case 4: return read_share<4>;
    case 8: return read_share<8>;
    default: throw std::invalid_argument("streams must be 1, 2, 4 or 8");
  }
}

}  // namespace

ReadBuffer::ReadBuffer(size_t bytes, int num_threads) : team_(num_threads) {
  const size_t share = bytes / size_t(num_threads);
  share_bytes_ = (share + kShareStep - 1) / kShareStep * kShareStep;
  for (int member = 0; member < num_threads; ++member) shares_.emplace_back(share_bytes_);
  // Not zero: a page that was only read may be the system's one page of zeros.
  team_.run([&](int member) { memset(shares_[size_t(member)].as<uint8_t>(), 1, share_bytes_); });
}

std::vector<double> ReadBuffer::measure(int streams, int passes) {
  using Clock = std::chrono::steady_clock;
  const ReadShare read = reader_of(streams);
  std::vector<double> rates;
  volatile uint64_t sink = 0;
  for (int pass = 0; pass < passes; ++pass) {
    std::vector<Clock::time_point> starts(shares_.size());
    std::vector<uint64_t> joined(shares_.size());
    team_.run([&](int member) {
      // The pass begins with the first who reads, once all are awake.
      team_.barrier(member, false);
      starts[size_t(member)] = Clock::now();
      joined[size_t(member)] = read(shares_[size_t(member)].as<uint8_t>(), share_bytes_);
    });
    const std::chrono::duration<double> elapsed = Clock::now() - *std::min_element(starts.begin(), starts.end());
    for (uint64_t one : joined) sink = sink | one;
    rates.push_back(double(bytes()) / elapsed.count());
  }
  return rates;
}

}  // namespace ferrum
