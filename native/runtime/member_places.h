// On which processors the members of a team run, and how they keep out of each other's way.
//
// Woken or moved while a processor is busy for a moment, a member may come to share that of another member, where the
// one spins at a barrier for what the other cannot compute meanwhile. The system takes several of its ticks to see it:
// steps of 2 ms were seen to take 40. So each member is kept off the processors where the members before it last ran.
// No member is bound to a processor by that, and who begins the runs is left alone.
//
// Where another process takes a processor for a tick or longer, the member that stood there waits for as long, and all
// wait for it. The first to see it takes that member over to its own processor and gives way: the two share it for a
// while, then are kept apart again.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <thread>
#include <vector>

#if defined(__linux__)
#include <pthread.h>
#include <sched.h>
#endif

#include "wait_watch.h"

namespace ferrum {

class MemberPlaces {
 public:
  // ``others`` are the threads of members 1, 2, ...; they may be started later, before the first run.
  MemberPlaces(int num_members, std::vector<std::thread>& others);

  // By member 0 before it wakes the others. Where it may use fewer processors than there are members, they have to
  // share, and nothing is done about it.
  void begin_run();

  // By a member that has just come, or may have been moved.
  void note(int member) {
#if defined(__linux__)
    std::atomic<int>& processor = places_[size_t(member)].processor;
    const int here = sched_getcpu();
    // Written when it changes only, so that others find the line where they left it.
    if (processor.load(std::memory_order_relaxed) != here) processor.store(here, std::memory_order_relaxed);
#endif
  }

  // The processor where the member last ran, negative while it sleeps or is moved. By any thread.
  int place_of(int member) const { return places_[size_t(member)].processor.load(std::memory_order_relaxed); }

  // By a member that is going to sleep within a run, or through runs; ``note`` when it is back.
  void leave(int member) { set_place(member, kAsleep); }

  // By a member that waits for ``awaited``, now and then; ``watch`` is of this wait. Members on one processor are moved
  // apart, or an awaited one that has lost its processor is taken over to this. True: it is here, so give way to it.
  bool gives_way(int member, int awaited, WaitWatch& watch);

 private:
  // Instead of a processor's number: it does not need one, or was moved and has not said where it came to.
  static constexpr int kAsleep = -1, kUnderWay = -2;
  struct alignas(64) Place {
    std::atomic<int> processor{kAsleep};
  };
  void set_place(int member, int place) { places_[size_t(member)].processor.store(place, std::memory_order_relaxed); }
  bool have_moved() const;
  void keep_apart();

  const int num_members_;
  std::vector<std::thread>& others_;
  std::unique_ptr<Place[]> places_;
  std::vector<int> kept_apart_;                  // the places for which members were last kept apart
  std::atomic_flag is_busy_ = ATOMIC_FLAG_INIT;  // somebody moves members right now
  std::atomic<int64_t> share_until_ns_{0};       // members that share a processor do so on purpose
  bool must_share_ = true;
  bool are_kept_apart_ = false;
#if defined(__linux__)
  bool has_neighbour(int member) const;
  void part_from_neighbours(int member);
  bool take_over(int member, int here);
  void let_go();
  void allow(int member, const cpu_set_t& processors);
  pthread_t thread_of(int member) const;
  int64_t worked_ns(int member) const;
  cpu_set_t allowed_;    // to member 0
  cpu_set_t inherited_;  // by the others when they were started
  pthread_t caller_{};   // member 0 of this run
#endif
};

}  // namespace ferrum
