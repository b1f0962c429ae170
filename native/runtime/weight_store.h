// The weight matrices of a plan: one arena in the kernels' layout, filled by the whole team.
#pragma once

#include <vector>

#include "../kernels/formats.h"
#include "arena.h"
#include "thread_team.h"

namespace ferrum {

// Rows [first_row, first_row + num_rows) of a weight as its file stores them. ``first_row`` lies on a tile, and so does
// the end unless it is the weight's own.
struct WeightRows {
  WeightView weight;
  int first_row;
  int num_rows;
  const uint8_t* source;
};

class WeightStore {
 public:
  // Once, before the first weight: one arena for all of them, so that huge pages hold the small ones too.
  void reserve(size_t bytes) { arena_ = Arena(bytes); }
  // The place of a weight of these sizes, all zeros until its rows are packed.
  WeightView add(WeightType type, int rows, int columns);
  // Packs rows of any of its weights, every member of the team taking tiles of all of them.
  void pack(const std::vector<WeightRows>& parts, ThreadTeam& team);

  size_t bytes() const { return bytes_; }

 private:
  Arena arena_;
  size_t bytes_ = 0;
};

}  // namespace ferrum
