// On which processors the members of a team run, and how they keep out of each other's way.
//
// Woken or moved while a processor is busy for a moment, a member may come to share that of another member, where the
// one spins at a barrier for what the other cannot compute meanwhile. The system takes several of its ticks to see it:
// steps of 2 ms were seen to take 40. So each member is kept off the processors where the members before it last ran.
// No member is bound to a processor by that, and who begins the runs is left alone altogether.
#pragma once

#include <atomic>
#include <memory>
#include <thread>
#include <vector>

#if defined(__linux__)
#include <sched.h>
#endif

namespace ferrum {

class MemberPlaces {
 public:
  // ``others`` are the threads of members 1, 2, ...; they may be started later, before the first run.
  MemberPlaces(int num_members, std::vector<std::thread>& others);

  // By member 0 before it wakes the others of ``num_running``; the rest sleeps through the run. Where it may use fewer
  // processors than there are members, they have to share, and nothing is done about it.
  void begin_run(int num_running);

  // By a member that has just come, or may have been moved.
  void note(int member) {
#if defined(__linux__)
    std::atomic<int>& processor = places_[size_t(member)].processor;
    const int here = sched_getcpu();
    // Written when it changes only, so that others find the line where they left it.
    if (processor.load(std::memory_order_relaxed) != here) processor.store(here, std::memory_order_relaxed);
#endif
  }

  // Where member ``member`` last ran, -1: nowhere yet, or the system does not tell. By any thread.
  int place_of(int member) const { return places_[size_t(member)].processor.load(std::memory_order_relaxed); }

  // By a member that waits for others: when one of them last ran on its processor, one of the two is moved away.
  void separate(int member);

 private:
  struct alignas(64) Place {
    std::atomic<int> processor{-1};  // nowhere yet
  };
  bool have_moved() const;
  void keep_apart();

  const int num_members_;
  int num_running_;
  std::vector<std::thread>& others_;
  std::unique_ptr<Place[]> places_;
  std::vector<int> kept_apart_;                  // the places for which members were last kept apart
  std::atomic_flag is_busy_ = ATOMIC_FLAG_INIT;  // somebody keeps them apart right now
  bool must_share_ = true;
  bool are_kept_apart_ = false;
#if defined(__linux__)
  void let_go();
  void allow(int member, const cpu_set_t& processors);
  cpu_set_t allowed_;    // to member 0
  cpu_set_t inherited_;  // by the others when they were started
#endif
};

}  // namespace ferrum
