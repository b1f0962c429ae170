#include "thread_team.h"

#include <chrono>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace ferrum {
namespace {

// Results must not depend on the floating-point state a thread happens to have: set it alike, restore it after.
class SameFloatingPoint {
 public:
  SameFloatingPoint() {
#if defined(__x86_64__)
    saved_ = _mm_getcsr();
    _mm_setcsr(0x1f80);  // nearest even, no flush to zero, no exceptions
#elif defined(__aarch64__)
    asm volatile("mrs %0, fpcr" : "=r"(saved_));
    asm volatile("msr fpcr, %0" ::"r"(uint64_t(0)));
#endif
  }
  ~SameFloatingPoint() {
#if defined(__x86_64__)
    _mm_setcsr(saved_);
#elif defined(__aarch64__)
    asm volatile("msr fpcr, %0" ::"r"(saved_));
#endif
  }

 private:
#if defined(__aarch64__)
  uint64_t saved_ = 0;
#else
  unsigned saved_ = 0;
#endif
};

// Turns of a waiting loop, about 15 nanoseconds each. Falling asleep and being woken costs 45 microseconds, more than most
// operations last and a part of a step: members wait through operations and, some 0.6 milliseconds, through what the
// caller does between two runs, unless they share processors.
constexpr int kSpinsBetweenRuns = 40000;
constexpr int kSpinsAtBarrier = 20000;
constexpr int kSpinsWhenCrowded = 200;

// After longer runs members sleep at once: being woken is less than a hundredth of them. Where containers or hosts
// allow a process so much time in a tenth of a second, a spinning member spends of it, and what is spent too early is
// taken back in one piece: steps of 23 ms were seen to take 45.
constexpr std::chrono::milliseconds kLongRun{8};

constexpr std::chrono::microseconds kNap{50};

// Of all teams of the process, which share its processors: a member that waits for its own makes room for another's.
alignas(64) std::atomic<int> num_running_teams{0};

}  // namespace

void ThreadTeam::pause() {
#if defined(__x86_64__)
  _mm_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

void ThreadTeam::nap(int member) {
  if (is_crowded_) {
    std::this_thread::yield();
    return;
  }
  places_.leave(member);
  std::this_thread::sleep_for(kNap);
  places_.note(member);
}

ThreadTeam::ThreadTeam(int num_threads)
    : num_threads_(num_threads),
      is_crowded_(unsigned(num_threads) > std::thread::hardware_concurrency()),
      spins_between_runs_(is_crowded_ ? kSpinsWhenCrowded : kSpinsBetweenRuns),
      spins_at_barrier_(is_crowded_ ? kSpinsWhenCrowded : kSpinsAtBarrier),
      signals_(new Signal[size_t(num_threads) * kMostRounds * 2]),
      own_(new Own[size_t(num_threads)]),
      places_(num_threads, threads_),
      num_running_(num_threads),
      members_of_runs_{num_threads, num_threads},
      num_wanted_(num_threads) {
  threads_.reserve(size_t(num_threads - 1));
  try {
    for (int member = 1; member < num_threads; ++member) threads_.emplace_back([this, member] { work(member); });
  } catch (...) {  // a limit on threads or memory: those that did start must end before the caller hears of it
    close();
    throw;
  }
}

ThreadTeam::~ThreadTeam() { close(); }

std::vector<int> ThreadTeam::places() const {
  std::vector<int> places;
  for (int member = 0; member < num_threads_; ++member) places.push_back(places_.place_of(member));
  return places;
}

void ThreadTeam::close() {
  closing_ = true;
  announce_run(num_threads_);
  wake_all(run_number_);
  for (std::thread& thread : threads_) thread.join();
}

void ThreadTeam::wait_for_run(unsigned last, int num_spins) const {
  for (int i = 0; i < num_spins && num_running_teams.load(std::memory_order_relaxed) == 0; ++i) {
    if (run_number_.load(std::memory_order_acquire) != last) return;
    pause();
  }
  while (run_number_.load(std::memory_order_acquire) == last) run_number_.wait(last, std::memory_order_acquire);
}

void ThreadTeam::announce_run(int num_members) {
  const unsigned next = run_number_.load(std::memory_order_relaxed) + 1;
  members_of(next).store(num_members, std::memory_order_release);
  if (num_wanted_.load(std::memory_order_relaxed) != num_members) {
    num_wanted_.store(num_members, std::memory_order_release);
    wake_all(num_wanted_);
  }
  run_number_.store(next, std::memory_order_release);
}

bool ThreadTeam::is_left_out(int member, unsigned run) {
  const int num_members = members_of(run).load(std::memory_order_acquire);
  // It cannot be over before a member of it has come.
  if (run_number_.load(std::memory_order_acquire) != run) return true;
  if (member < num_members) return false;
  places_.leave(member);
  for (int wanted; (wanted = num_wanted_.load(std::memory_order_acquire)) <= member;)
    num_wanted_.wait(wanted, std::memory_order_acquire);
  return true;
}

void ThreadTeam::run(int num_members, const std::function<void(int)>& body) {
  const SameFloatingPoint state;
  body_ = &body;
  num_running_ = num_members;
  turn_of_run_ = own_[0].turn;
  places_.begin_run();
  working_.store(num_members - 1, std::memory_order_relaxed);
  announce_run(num_members);
  num_running_teams.fetch_add(1, std::memory_order_release);  // after the number: our own members find it changed
  wake_all(run_number_);
  own_[0].barriers_of_run = 0;
  body(0);
  for (int i = 0; working_.load(std::memory_order_acquire) != 0; ++i) {
    if (i < spins_at_barrier_) {
      pause();
      continue;
    }
    const int left = working_.load(std::memory_order_acquire);
    if (left != 0) working_.wait(left, std::memory_order_acquire);
  }
  num_running_teams.fetch_sub(1, std::memory_order_relaxed);
}

void ThreadTeam::work(int member) {
  const SameFloatingPoint state;
  unsigned seen = 0;
  int num_spins = spins_between_runs_;
  for (;;) {
    wait_for_run(seen, num_spins);
    seen = run_number_.load(std::memory_order_acquire);
    if (closing_) return;
    if (is_left_out(member, seen)) continue;
    places_.note(member);
    own_[size_t(member)] = {turn_of_run_, 0};
    const auto began = std::chrono::steady_clock::now();
    (*body_)(member);
    const bool was_long = std::chrono::steady_clock::now() - began > kLongRun;
    num_spins = was_long ? 0 : spins_between_runs_;
    if (working_.fetch_sub(1, std::memory_order_acq_rel) == 1) wake_all(working_);
  }
}

}  // namespace ferrum
