// A fixed team of compute threads; the calling thread is its member 0. Between runs the others sleep.
#pragma once

#include <atomic>
#include <functional>
#include <thread>
#include <vector>

namespace ferrum {

class ThreadTeam {
 public:
  explicit ThreadTeam(int num_threads);  // std::system_error where the system does not give that many
  ~ThreadTeam();
  ThreadTeam(const ThreadTeam&) = delete;
  ThreadTeam& operator=(const ThreadTeam&) = delete;

  int size() const { return num_threads_; }

  // Runs ``body(member)`` on every member at once and returns when all have finished. One caller at a time.
  // Every member, the caller included, computes with the same floating-point state: nearest even, denormals kept.
  void run(const std::function<void(int)>& body);

  // Inside ``run``: no member passes before all have arrived. The last to arrive evaluates ``stop`` and all get its answer.
  template <typename Stop>
  bool barrier(Stop&& stop) {
    const unsigned generation = generation_.load(std::memory_order_acquire);
    if (arrived_.fetch_add(1, std::memory_order_acq_rel) + 1 == num_threads_) {
      stopping_ = stop();
      arrived_.store(0, std::memory_order_relaxed);
      generation_.store(generation + 1, std::memory_order_release);
      wake_all(generation_);
    } else {
      wait_for_change(generation_, generation, spins_at_barrier_);
    }
    return stopping_;
  }

 private:
  void work(int member);
  void close();
  // The standard library's notify first reads whether anyone waits; without the fence that read may pass the store
  // before it, and a member that is just falling asleep is never woken.
  template <typename T>
  static void wake_all(std::atomic<T>& value) {
    std::atomic_thread_fence(std::memory_order_seq_cst);
    value.notify_all();
  }
  // Spins for a bounded time, then sleeps.
  static void wait_for_change(const std::atomic<unsigned>& value, unsigned old, int spins);

  const int num_threads_;
  const int spins_at_barrier_;
  std::vector<std::thread> threads_;
  const std::function<void(int)>* body_ = nullptr;
  bool closing_ = false;
  bool stopping_ = false;
  alignas(64) std::atomic<unsigned> run_number_{0};
  alignas(64) std::atomic<int> working_{0};
  alignas(64) std::atomic<int> arrived_{0};
  alignas(64) std::atomic<unsigned> generation_{0};
};

}  // namespace ferrum
