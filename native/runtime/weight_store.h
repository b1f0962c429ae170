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

struct WeightShape {
  WeightType type;
  int rows;
  int columns;
};

class WeightStore {
 public:
  // Once, before the first weight: one arena for all of them, so that huge pages hold the small ones too.
  void reserve(size_t bytes) { arena_ = Arena(bytes); }
  // Places of weights of these shapes, all zeros until their rows are packed. Two tiles of the first, then two of the
  // second and so on: what is worked on by turns is read in one direction. std::invalid_argument where their numbers of
  // tiles differ or are odd, if there are several.
  std::vector<WeightView> add(const std::vector<WeightShape>& shapes);
  // Packs rows of any of its weights, every member of the team taking tiles of all of them.
  void pack(const std::vector<WeightRows>& parts, ThreadTeam& team);

  size_t bytes() const { return bytes_; }

 private:
  Arena arena_;
  size_t bytes_ = 0;
};

}  // namespace ferrum
