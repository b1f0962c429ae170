// A row of weights, and how far the heaviest of its tokens reach, without a candidate made of each.
#pragma once

#include "candidates.h"

namespace ferrum::FERRUM_ISA {

// How many tokens weigh at least each of three bounds, and what they weigh together.
struct Levels {
  int count[3];
  double sum[3];
};

// Weights between 2^-32 and 1 are cut into slices by the first bits of their numbers, 32 an octave; 1 has its own.
inline constexpr int kSliceShift = 18;
inline constexpr uint32_t kLeastBits = 0x2f800000u, kMostBits = 0x3f800000u;  // of 2^-32 and 1
inline constexpr int kNumSlices = int((kMostBits - kLeastBits) >> kSliceShift) + 1;

// All tokens that weigh something; ``weights`` add up to ``total``.
//
// First a look at three bounds: where language models have come to a choice, few tokens lie between two of them.
// Otherwise one pass over the row finds what each slice weighs, and a sum is looked for in one slice.
class WeighedRow {
 public:
  // ``room`` [vocabulary] for the candidates that are made.
  WeighedRow(float* weights, int vocabulary, double total, Candidate* room)
      : weights_(weights), vocabulary_(vocabulary), total_(total), room_(room) {}

  double total() const { return total_; }
  // Where the running sum, heaviest first, reaches ``wanted``: more than 0, at most the total.
  Reached reach(double wanted);
  // What those weigh that weigh at least ``least``.
  double sum_from(float least) const;
  // Keeps the shortest run that has ``share`` of the total, those first whose surprise is nearest to the entropy; the
  // weights of others become 0.
  void keep_typical(double share);
  // The ``count`` heaviest, or more of them, in the room: in any order, but all that are heavier than any left out.
  int collect_heaviest(int count);

 private:
  // Tokens whose weights have bits from ``low`` to below ``low`` + 2^``shift``; what heavier ones weigh; what they weigh.
  struct Range {
    uint32_t low;
    int shift;
    double above, sum;
  };

  void look();
  void slice();
  Range range_reaching(double wanted) const;
  Range narrow(const Range& range, double wanted) const;
  Reached reach_in(const Range& range, double wanted);
  Reached reach_equal(const Range& range, double wanted) const;
  Reached reach_between(uint32_t low, uint32_t high, double above, double wanted);
  int collect(uint32_t low, uint32_t high, Candidate* out) const;

  float* weights_;
  const int vocabulary_;
  double total_;
  Candidate* room_;
  bool has_levels_ = false, has_slices_ = false;
  Levels levels_;
  double slices_[kNumSlices];
};

}  // namespace ferrum::FERRUM_ISA
