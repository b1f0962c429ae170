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
// The same for the heaviest that together weigh ``wanted``, which is at most what all weigh.
int collect_weighing(const float* weights, int vocabulary, double wanted, Candidate* out);

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
// Those whose surprise is at most ``most_bits`` and the heaviest, to the front.
int keep_unsurprising(Candidate* candidates, int count, double total, double most_bits);

// The surprise in bits of a token with that weight.
double surprise(double total, float weight);

}  // namespace ferrum::FERRUM_ISA
