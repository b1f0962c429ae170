// The tokens a choice is narrowed down to.
//
// A candidate is one number: the bits of its weight, then the complement of its id, so that a greater number is the
// heavier token and, of equally heavy ones, the lower id. Nothing is sorted: what is asked is always how far the
// heaviest reach.
#pragma once

#include "vector.h"

namespace ferrum::FERRUM_ISA {

using Candidate = uint64_t;

FERRUM_INLINE Candidate candidate(float weight, int32_t id) {
  uint32_t bits;
  memcpy(&bits, &weight, 4);
  return Candidate(bits) << 32 | uint32_t(~id);
}
FERRUM_INLINE int32_t id_of(Candidate candidate) { return ~int32_t(uint32_t(candidate)); }
FERRUM_INLINE float weight_of(Candidate candidate) {
  const uint32_t bits = uint32_t(candidate >> 32);
  float weight;
  memcpy(&weight, &bits, 4);
  return weight;
}

// The first ``count`` candidates, whose weights add up to ``sum``.
struct Run {
  int count;
  double sum;
};

// All tokens that weigh at least ``least``, by id.
int collect(const float* weights, int vocabulary, float least, Candidate* out);
// The ``count`` heaviest of a row, or more of them: in any order, but all that are heavier than any left out.
int collect_heaviest(const float* weights, int vocabulary, int count, Candidate* out);

double sum_of(const Candidate* candidates, int count);
// Moves the ``keep`` heaviest to the front.
Run keep_heaviest(Candidate* candidates, int count, int keep);
// Moves the shortest run of heaviest ones that weighs ``wanted`` to the front, its lightest last; all if none does.
Run keep_weighing(Candidate* candidates, int count, double wanted);
// The same with the candidates in another order: those whose surprise is nearest to the entropy come first (Meister et
// al., "Locally typical sampling", 2023). ``weights`` are those of the row, ``total`` is what the candidates weigh.
Run keep_typical(Candidate* candidates, int count, double total, double wanted, const float* weights);
// Of those that weigh at least ``least``, if there are two or more, only the last stays.
int drop_top_choices(Candidate* candidates, int count, double least);
// Those that weigh at least ``least``, to the front; the heaviest if none does.
int keep_from(Candidate* candidates, int count, float least);

// One token drawn from the shortest run of heaviest ones of a row that has ``share`` of the ``total`` of all, as
// keep_weighing would find it; but no candidate is made of the many that are certainly inside or outside.
Candidate draw_from_nucleus(const float* weights, int vocabulary, double total, double share, double draw,
                            Candidate* out);
// The first, heaviest first, with which the sum of weights exceeds ``threshold``.
Candidate draw_by_weight(Candidate* candidates, int count, double threshold);

}  // namespace ferrum::FERRUM_ISA
