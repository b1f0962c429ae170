#include "member_places.h"

#include <chrono>

#if defined(__linux__)
#include <time.h>
#endif

namespace ferrum {

MemberPlaces::MemberPlaces(int num_members, std::vector<std::thread>& others)
    : num_members_(num_members),
      others_(others),
      places_(new Place[size_t(num_members)]),
      kept_apart_(size_t(num_members), kAsleep) {
#if defined(__linux__)
  if (sched_getaffinity(0, sizeof inherited_, &inherited_) != 0) CPU_ZERO(&inherited_);
#endif
}

#if defined(__linux__)

namespace {

// Finding out that the other processor is still taken costs some 150 microseconds, finding it free late as much as this.
constexpr int64_t kShareNs = 1'000'000;

int64_t now_ns() { return std::chrono::nanoseconds(std::chrono::steady_clock::now().time_since_epoch()).count(); }

}  // namespace

void MemberPlaces::begin_run() {
  note(0);
  caller_ = pthread_self();
  if (!have_moved() || now_ns() < share_until_ns_.load(std::memory_order_relaxed)) return;
  must_share_ = sched_getaffinity(0, sizeof allowed_, &allowed_) != 0 || CPU_COUNT(&allowed_) < num_members_;
  if (!must_share_) keep_apart();
  else if (are_kept_apart_) let_go();
}

bool MemberPlaces::gives_way(int member, int awaited, WaitWatch& watch) {
  note(member);
  if (must_share_) return false;
  const int here = place_of(member);
  const int64_t now = now_ns();
  const bool has_company = has_neighbour(member);
  if (has_company && now < share_until_ns_.load(std::memory_order_relaxed)) return place_of(awaited) == here;
  if (!has_company && (place_of(awaited) == kAsleep || !watch.is_due(now))) return false;
  if (is_busy_.test_and_set(std::memory_order_acquire)) return false;
  bool is_here = false;
  if (has_company) part_from_neighbours(member);
  else if (watch.stands_still(now, worked_ns(awaited))) is_here = take_over(awaited, here);
  is_busy_.clear(std::memory_order_release);
  return is_here;
}

bool MemberPlaces::has_neighbour(int member) const {
  for (int other = 0; other < num_members_; ++other)
    if (other != member && place_of(other) == place_of(member)) return true;
  return false;
}

void MemberPlaces::part_from_neighbours(int member) {
  keep_apart();
  // Those after it have to go. They say where they are when they next have a processor.
  for (int other = member + 1; other < num_members_; ++other)
    if (place_of(other) == place_of(member)) set_place(other, kUnderWay);
  note(member);
}

bool MemberPlaces::have_moved() const {
  for (int member = 0; member < num_members_; ++member)
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

bool MemberPlaces::take_over(int member, int here) {
  // Moved by being allowed nothing else for a moment; whoever begins the runs keeps what it is allowed.
  cpu_set_t own = inherited_, only;
  const pthread_t thread = thread_of(member);
  if (member == 0 && pthread_getaffinity_np(thread, sizeof own, &own) != 0) return false;
  if (!CPU_ISSET(size_t(here), &own)) return false;
  CPU_ZERO(&only);
  CPU_SET(size_t(here), &only);
  const bool is_moved = pthread_setaffinity_np(thread, sizeof only, &only) == 0;
  if (is_moved && member == 0) pthread_setaffinity_np(thread, sizeof own, &own);
  let_go();
  if (!is_moved) return false;
  set_place(member, here);
  kept_apart_.assign(size_t(num_members_), kAsleep);  // so that the next run keeps them apart again
  share_until_ns_.store(now_ns() + kShareNs, std::memory_order_relaxed);
  return true;
}

void MemberPlaces::let_go() {
  are_kept_apart_ = false;
  for (int member = 1; member < num_members_; ++member) allow(member, inherited_);
}

void MemberPlaces::allow(int member, const cpu_set_t& processors) {
  // Where the system forbids it, all stays as it was.
  pthread_setaffinity_np(thread_of(member), sizeof processors, &processors);
}

pthread_t MemberPlaces::thread_of(int member) const {
  return member == 0 ? caller_ : others_[size_t(member - 1)].native_handle();
}

int64_t MemberPlaces::worked_ns(int member) const {
  clockid_t clock;
  timespec worked;
  if (pthread_getcpuclockid(thread_of(member), &clock) != 0 || clock_gettime(clock, &worked) != 0) return now_ns();
  return int64_t(worked.tv_sec) * 1'000'000'000 + worked.tv_nsec;
}

#else

void MemberPlaces::begin_run() {}
bool MemberPlaces::gives_way(int, int, WaitWatch&) { return false; }

#endif

}  // namespace ferrum
