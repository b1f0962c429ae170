// How fast a thread team reads memory that no cache holds: the ceiling of decoding one sequence.
#pragma once

#include <cstddef>
#include <vector>

#include "../runtime/arena.h"
#include "../runtime/thread_team.h"

namespace ferrum {

// A buffer cut into one share per member, each on huge pages and first touched by the member that reads it.
class ReadBuffer {
 public:
  ReadBuffer(size_t bytes, int num_threads);

  // Bytes per second of each of ``passes`` passes over the whole buffer, every member reading its share in ``streams``
  // (1, 2, 4 or 8) places at once. Throws std::invalid_argument for another number of streams.
  std::vector<double> measure(int streams, int passes);

  size_t bytes() const { return share_bytes_ * shares_.size(); }

 private:
  ThreadTeam team_;
  size_t share_bytes_;
  std::vector<Arena> shares_;
};

}  // namespace ferrum
