#include "member_places.h"

#if defined(__linux__)
#include <pthread.h>
#endif

namespace ferrum {

MemberPlaces::MemberPlaces(int num_members, std::vector<std::thread>& others)
    : num_members_(num_members),
      num_running_(num_members),
      others_(others),
      places_(new Place[size_t(num_members)]),
      kept_apart_(size_t(num_members), -1) {
#if defined(__linux__)
  if (sched_getaffinity(0, sizeof inherited_, &inherited_) != 0) CPU_ZERO(&inherited_);
#endif
}

#if defined(__linux__)

void MemberPlaces::begin_run(int num_running) {
  num_running_ = num_running;
  note(0);
  if (!have_moved()) return;
  must_share_ = sched_getaffinity(0, sizeof allowed_, &allowed_) != 0 || CPU_COUNT(&allowed_) < num_members_;
  if (!must_share_) keep_apart();
  else if (are_kept_apart_) let_go();
}

void MemberPlaces::separate(int member) {
  note(member);
  const int here = place_of(member);
  for (int other = 0; other < num_running_; ++other) {
    if (other == member || place_of(other) != here) continue;
    if (must_share_ || is_busy_.test_and_set(std::memory_order_acquire)) return;
    keep_apart();
    is_busy_.clear(std::memory_order_release);
    return;
  }
}

bool MemberPlaces::have_moved() const {
  for (int member = 0; member < num_running_; ++member)
    if (place_of(member) != kept_apart_[size_t(member)]) return true;
  return false;
}

void MemberPlaces::keep_apart() {
  are_kept_apart_ = true;
  cpu_set_t left = allowed_;
  for (int member = 1; member < num_members_; ++member) {
    const int taken = kept_apart_[size_t(member - 1)] = place_of(member - 1);
    if (taken >= 0) CPU_CLR(size_t(taken), &left);
    allow(member, left);
  }
  kept_apart_[size_t(num_members_ - 1)] = place_of(num_members_ - 1);
}

void MemberPlaces::let_go() {
  are_kept_apart_ = false;
  for (int member = 1; member < num_members_; ++member) allow(member, inherited_);
}

void MemberPlaces::allow(int member, const cpu_set_t& processors) {
  // Where the system forbids it, all stays as it was.
  pthread_setaffinity_np(others_[size_t(member - 1)].native_handle(), sizeof processors, &processors);
}

#else

void MemberPlaces::begin_run(int) {}
void MemberPlaces::separate(int) {}

#endif

}  // namespace ferrum
