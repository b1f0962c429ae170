#include "weighed_row.h"

#include "surprise.h"
#include "token_weights.h"

namespace ferrum::FERRUM_ISA {
namespace {

constexpr float kFirstBounds[3] = {0x1p-4f, 0x1p-8f, 0x1p-14f};
// So many candidates are looked at one by one sooner than their row is looked at again.
constexpr int kFew = 8192;
constexpr uint32_t kBeyondBits = kMostBits + 1;
// Rows that weigh more have so many likely tokens that a look at three bounds leaves too many of them.
constexpr double kFlatTotal = 512.0;

Levels measure_levels(const float* weights, int vocabulary) {
  Levels levels{};
  DoubleSums sums[3] = {d_zero(), d_zero(), d_zero()};
  int i = 0;
  for (; i + kWidth <= vocabulary; i += kWidth) {
    const Vector weight = v_load(weights + i);
    for (int level = 0; level < 3; ++level) {
      const Vector bound = v_set(kFirstBounds[level]);
      levels.count[level] += __builtin_popcount(v_mask_not_less(weight, bound));
      sums[level] = d_add(sums[level], v_keep_not_less(weight, weight, bound));
    }
  }
  for (int level = 0; level < 3; ++level) levels.sum[level] = d_total(sums[level]);
  for (; i < vocabulary; ++i)
    for (int level = 0; level < 3; ++level)
      if (weights[i] >= kFirstBounds[level]) {
        ++levels.count[level];
        levels.sum[level] += double(weights[i]);
      }
  return levels;
}

// sums[k]: what the weights of the k-th slice add up to.
void measure_slices(const float* weights, int vocabulary, double* sums) {
  // A sum waits for the one before it: neighbours add to different copies.
  constexpr int kCopies = 4;
  double copies[kCopies][kNumSlices] = {};
  const auto add = [&](int i, int copy) {
    const int place = int(bits_of(weights[i]) >> kSliceShift) - int(kLeastBits >> kSliceShift);
    copies[copy][place > 0 ? place : 0] += double(weights[i]);  // which a weight of 0 may do
  };
  int i = 0;
  for (; i + kCopies <= vocabulary; i += kCopies)
    for (int copy = 0; copy < kCopies; ++copy) add(i + copy, copy);
  for (; i < vocabulary; ++i) add(i, 0);
  for (int k = 0; k < kNumSlices; ++k) sums[k] = (copies[0][k] + copies[1][k]) + (copies[2][k] + copies[3][k]);
}

// The first slice, heaviest first, with which the sum reaches ``wanted``, of which ``above`` is there; adds to it what
// those before the slice weigh.
int slice_reaching(const double* sums, int num_slices, double wanted, double& above) {
  int place = num_slices - 1, last = place;
  for (; place >= 0; --place) {
    if (sums[place] == 0.0) continue;
    last = place;
    if (above + sums[place] >= wanted) return place;
    above += sums[place];
  }
  above -= sums[last];
  return last;
}

float border(int slice) { return float_of(kLeastBits + (uint32_t(slice) << kSliceShift)); }

// Slices by how far their tokens' surprises are from the entropy. The nearest slices, in either direction, are neighbours.
class TypicalSlices {
 public:
  TypicalSlices(const double* sums, double total, double entropy) : sums_(sums) {
    double distances[kNumSlices + 1];  // of the borders
    for (int k = 0; k <= kNumSlices; ++k) distances[k] = natural_log(total / double(border(k))) - entropy;
    for (int k = 0; k < kNumSlices; ++k) {
      const double most = distances[k], least = distances[k + 1];
      farthest_[k] = __builtin_fabs(most) > __builtin_fabs(least) ? __builtin_fabs(most) : __builtin_fabs(least);
      nearest_[k] = least > 0.0 ? least : (most < 0.0 ? -most : 0.0);
      if (nearest_[k] == 0.0) middle_ = k;
    }
    if (nearest_[middle_] > 0.0) middle_ = nearest_[0] < nearest_[kNumSlices - 1] ? 0 : kNumSlices - 1;
  }

  struct Zone {
    int first, end;              // of the slices that have a part in the run
    int whole_first, whole_end;  // of those that are certainly inside as a whole
  };

  Zone around(double wanted) const {
    // Distances are rounded to float32: those that differ by less may come in either order.
    const double outer = distance_reaching(wanted, farthest_) * (1.0 + 0x1p-20) + 1e-9;
    const double inner = distance_reaching(wanted, nearest_) * (1.0 - 0x1p-20) - 1e-9;
    Zone zone{middle_, middle_ + 1, middle_, middle_};
    while (zone.first > 0 && nearest_[zone.first - 1] <= outer) --zone.first;
    while (zone.end < kNumSlices && nearest_[zone.end] <= outer) ++zone.end;
    if (farthest_[middle_] >= inner) return zone;
    ++zone.whole_end;
    while (zone.whole_first > zone.first && farthest_[zone.whole_first - 1] < inner) --zone.whole_first;
    while (zone.whole_end < zone.end && farthest_[zone.whole_end] < inner) ++zone.whole_end;
    return zone;
  }

 private:
  // The distance with which the slices reach ``wanted`` when they come as a whole in the order of their distances.
  double distance_reaching(double wanted, const double* distances) const {
    int lighter = middle_ - 1, heavier = middle_;
    double sum = 0.0, distance = 0.0;
    while (lighter >= 0 || heavier < kNumSlices) {
      const bool is_lighter = heavier == kNumSlices || (lighter >= 0 && distances[lighter] < distances[heavier]);
      const int next = is_lighter ? lighter-- : heavier++;
      distance = distances[next];
      sum += sums_[next];
      if (sum >= wanted) break;
    }
    return distance;
  }

  const double* sums_;
  double nearest_[kNumSlices], farthest_[kNumSlices];
  int middle_ = 0;
};

}  // namespace

Reached WeighedRow::reach(double wanted) {
  if (!has_slices_ && total_ < kFlatTotal) {
    look();
    uint32_t high = kBeyondBits;
    int num_above = 0;
    double above = 0.0;
    for (int level = 0; level < 4; ++level) {
      const uint32_t low = level < 3 ? bits_of(kFirstBounds[level]) : kLeastBits;
      const int count = level < 3 ? levels_.count[level] : vocabulary_;
      if (level == 3 || levels_.sum[level] >= wanted) {
        if (count - num_above <= kFew) return reach_between(low, high, above, wanted);
        break;
      }
      high = low;
      num_above = count;
      above = levels_.sum[level];
    }
  }
  slice();
  return reach_in(range_reaching(wanted), wanted);
}

double WeighedRow::sum_from(float least) const {
  const Vector bound = v_set(least);
  DoubleSums sums = d_zero();
  int i = 0;
  for (; i + kWidth <= vocabulary_; i += kWidth) {
    const Vector weight = v_load(weights_ + i);
    sums = d_add(sums, v_keep_not_less(weight, weight, bound));
  }
  double sum = d_total(sums);
  for (; i < vocabulary_; ++i) sum += weights_[i] >= least ? double(weights_[i]) : 0.0;
  return sum;
}

void WeighedRow::keep_typical(double share) {
  slice();
  const double entropy = mean_surprise(vocabulary_, total_, [this](int i) { return weights_[i]; });
  const double wanted = share * total_;
  const TypicalSlices::Zone zone = TypicalSlices(slices_, total_, entropy).around(wanted);
  const auto bits_at = [](int slice) { return kLeastBits + (uint32_t(slice) << kSliceShift); };
  int count = collect(bits_at(zone.first), bits_at(zone.whole_first), room_);
  count += collect(bits_at(zone.whole_end), bits_at(zone.end), room_ + count);
  double whole = 0.0;
  for (int k = 0; k < kNumSlices; ++k) {
    if (k >= zone.whole_first && k < zone.whole_end) whole += slices_[k];
    else slices_[k] = 0.0;
  }
  const Run rest = ferrum::FERRUM_ISA::keep_typical(room_, count, total_, entropy, wanted - whole, weights_);
  const Vector low = v_set(border(zone.whole_first)), high = v_set(border(zone.whole_end));
  int i = 0;
  for (; i + kWidth <= vocabulary_; i += kWidth) {
    const Vector weight = v_load(weights_ + i);
    v_store(weights_ + i, v_choose_less(weight, high, v_keep_not_less(weight, weight, low), v_zero()));
  }
  for (; i < vocabulary_; ++i)
    if (!(weights_[i] >= border(zone.whole_first) && weights_[i] < border(zone.whole_end))) weights_[i] = 0.0f;
  for (int k = 0; k < rest.count; ++k) {
    const float weight = weight_of(room_[k]);
    weights_[id_of(room_[k])] = weight;
    slices_[(bits_of(weight) - kLeastBits) >> kSliceShift] += double(weight);
  }
  total_ = whole + rest.sum;
}

int WeighedRow::collect_heaviest(int count) {
  look();
  int level = 0;
  while (level < 3 && levels_.count[level] < count) ++level;
  return collect(level < 3 ? bits_of(kFirstBounds[level]) : kLeastBits, kBeyondBits, room_);
}

void WeighedRow::look() {
  if (!has_levels_) levels_ = measure_levels(weights_, vocabulary_);
  has_levels_ = true;
}

void WeighedRow::slice() {
  if (!has_slices_) measure_slices(weights_, vocabulary_, slices_);
  has_slices_ = true;
}

WeighedRow::Range WeighedRow::range_reaching(double wanted) const {
  double above = 0.0;
  const int place = slice_reaching(slices_, kNumSlices, wanted, above);
  return {kLeastBits + (uint32_t(place) << kSliceShift), kSliceShift, above, slices_[place]};
}

WeighedRow::Range WeighedRow::narrow(const Range& range, double wanted) const {
  constexpr int kBits = 9;
  const int shift = range.shift > kBits ? range.shift - kBits : 0;
  const int num_slices = 1 << (range.shift - shift);
  double sums[1 << kBits] = {}, above = range.above;
  for (int i = 0; i < vocabulary_; ++i) {
    const uint32_t place = (bits_of(weights_[i]) - range.low) >> shift;
    if (place < uint32_t(num_slices)) sums[place] += double(weights_[i]);
  }
  const int place = slice_reaching(sums, num_slices, wanted, above);
  return {range.low + (uint32_t(place) << shift), shift, above, sums[place]};
}

Reached WeighedRow::reach_in(const Range& first, double wanted) {
  Range range = first;
  while (range.shift > 0 && range.sum > double(kFew) * double(float_of(range.low))) range = narrow(range, wanted);
  if (range.shift == 0) return reach_equal(range, wanted);
  return reach_between(range.low, range.low + (1u << range.shift), range.above, wanted);
}

// All tokens of the range weigh the same: they come by id.
Reached WeighedRow::reach_equal(const Range& range, double wanted) const {
  const float weight = float_of(range.low);
  double sum = range.above;
  int32_t last = 0;
  for (int i = 0; i < vocabulary_ && sum < wanted; ++i) {
    if (weights_[i] != weight) continue;
    sum += double(weight);
    last = i;
  }
  return {candidate(weight, last), sum};
}

Reached WeighedRow::reach_between(uint32_t low, uint32_t high, double above, double wanted) {
  const Run run = keep_weighing(room_, collect(low, high, room_), wanted - above);
  return {room_[run.count - 1], above + run.sum};
}

// All tokens with weights of bits from ``low`` to below ``high``, by id.
int WeighedRow::collect(uint32_t low, uint32_t high, Candidate* out) const {
  const Vector least = v_set(float_of(low)), bound = v_set(float_of(high));
  int count = 0;
  int i = 0;
  if (low >= high) return 0;
  for (; i + kWidth <= vocabulary_; i += kWidth) {
    const Vector weight = v_load(weights_ + i);
    for (uint32_t lanes = v_mask_not_less(weight, least) & ~v_mask_not_less(weight, bound); lanes != 0;
         lanes &= lanes - 1) {
      const int id = i + __builtin_ctz(lanes);
      out[count++] = candidate(weights_[id], id);
    }
  }
  for (; i < vocabulary_; ++i)
    if (weights_[i] >= float_of(low) && weights_[i] < float_of(high)) out[count++] = candidate(weights_[i], i);
  return count;
}

}  // namespace ferrum::FERRUM_ISA
