// A fixed team of compute threads; the calling thread is its member 0. Between runs the others sleep, and through runs
// that do without them.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "member_places.h"

namespace ferrum {

class ThreadTeam {
 public:
  explicit ThreadTeam(int num_threads);  // std::system_error where the system does not give that many
  ~ThreadTeam();
  ThreadTeam(const ThreadTeam&) = delete;
  ThreadTeam& operator=(const ThreadTeam&) = delete;

  int size() const { return num_threads_; }
  // Where members last ran, in their order; see MemberPlaces::place_of. By any thread.
  std::vector<int> places() const;

  // Runs ``body(member)`` on the first ``num_members`` members at once, 1 to all of them, and returns when they have
  // finished. One caller at a time. Every member, the caller included, computes with the same floating-point state:
  // nearest even, denormals kept.
  void run(int num_members, const std::function<void(int)>& body);
  void run(const std::function<void(int)>& body) { run(num_threads_, body); }

  // Inside ``run``: no member of the run passes before all have arrived. True for all when any of them came with ``stop``.
  //
  // A dissemination barrier (Hensgen, Finkel, Manber 1988): in round r each member tells the one 2^r further on and
  // hears from the one 2^r before. Who arrives last is not held up by any shared counter: two members wait for one
  // another's cache line and nothing else.
  bool barrier(int member, bool stop) {
    places_.note(member);
    Own& own = own_[size_t(member)];
    const uint64_t turn = ++own.turn;
    const bool lets_others_in = is_time_for_others(++own.barriers_of_run);
    for (int round = 0, distance = 1; distance < num_running_; ++round, distance *= 2) {
      signal(member, round, turn).store(turn << 1 | uint64_t(stop), std::memory_order_release);
      if (lets_others_in && round == 0) std::this_thread::yield();
      const int from = (member - distance + num_running_) % num_running_;
      stop |= wait_for_turn(member, from, signal(from, round, turn), turn);
    }
    if (lets_others_in && num_running_ == 1) std::this_thread::yield();
    return stop;
  }

 private:
  void work(int member);
  void close();
  // Makes the next run known to its members; those that sleep are still to be woken.
  void announce_run(int num_members);
  // Whether the run of number ``run`` does without the member, or is over; sleeps until some run wants it.
  bool is_left_out(int member, unsigned run);
  // The standard library's notify first reads whether anyone waits; without the fence that read may pass the store
  // before it, and a member that is just falling asleep is never woken.
  template <typename T>
  static void wake_all(std::atomic<T>& value) {
    std::atomic_thread_fence(std::memory_order_seq_cst);
    value.notify_all();
  }
  // Until there is a run after the one of number ``last``: spins ``num_spins`` times, then sleeps.
  void wait_for_run(unsigned last, int num_spins) const;
  std::atomic<int>& members_of(unsigned run) { return members_of_runs_[run & 1]; }

  struct alignas(64) Signal {
    std::atomic<uint64_t> value{0};  // turn << 1 | stop
  };
  struct alignas(64) Own {
    uint64_t turn = 0;
    unsigned barriers_of_run = 0;
  };
  // A run begins when the caller has woken those who hand out what the last one made. On processors that members keep
  // busy they would wait for the system's next tick, 4 ms, two short runs. So members offer theirs, often at first.
  static bool is_time_for_others(unsigned barrier) { return barrier >= 4 && (barrier & (barrier - 1)) == 0; }
  // Turns take two sets of signals by turns: a member may be a turn ahead of one that has yet to read its signal.
  std::atomic<uint64_t>& signal(int member, int round, uint64_t turn) {
    return signals_[(size_t(member) * kMostRounds + size_t(round)) * 2 + (turn & 1)].value;
  }
  bool wait_for_turn(int member, int awaited, const std::atomic<uint64_t>& value, uint64_t turn) {
    WaitWatch watch;
    for (int i = 0;; ++i) {
      const uint64_t seen = value.load(std::memory_order_acquire);
      if (seen >> 1 == turn) return seen & 1;
      const bool is_long = i >= spins_at_barrier_;
      const bool looks = is_long || i % kSpinsPerLook == kSpinsPerLook - 1;
      if (looks && places_.gives_way(member, awaited, watch)) std::this_thread::yield();
      else if (is_long) nap(member);
      else pause();
    }
  }
  static void pause();
  // Nobody wakes a napping member: who arrives last would pay for it in every operation.
  void nap(int member);

  static constexpr int kMostRounds = 16;
  // Turns of a waiting loop after which a member looks where those it waits for are.
  static constexpr int kSpinsPerLook = 500;
  const int num_threads_;
  const bool is_crowded_;  // more members than processors
  const int spins_between_runs_;
  const int spins_at_barrier_;
  std::unique_ptr<Signal[]> signals_;
  std::unique_ptr<Own[]> own_;
  std::vector<std::thread> threads_;
  MemberPlaces places_;
  const std::function<void(int)>* body_ = nullptr;
  int num_running_;           // members of this run
  uint64_t turn_of_run_ = 0;  // of barriers, before it: members that were left out have fallen behind
  std::atomic<bool> closing_{false};
  // How many take part in the last two runs: a member that was left out may come while the next run is being announced.
  std::atomic<int> members_of_runs_[2];
  std::atomic<int> num_wanted_;  // as many take part in the run that is announced; left out, members sleep on it
  alignas(64) std::atomic<unsigned> run_number_{0};
  alignas(64) std::atomic<int> working_{0};
};

}  // namespace ferrum
