// The tasks of one operation in one step, dealt out to the team.
//
// Each member has a contiguous range of its own, so that it walks through memory in one direction and knows what it
// will read next; a member that is done early takes what is left of the others' ranges.
//
// Where cores share no cache a line takes a third of a microsecond from one to the other, a good part of a short
// operation. So a member deals its own range when it comes to the operation, and the number of tasks is written only
// when it changes: in a steady run of steps no line here moves before somebody looks for work among the others.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

namespace ferrum {

class TaskRanges {
 public:
  explicit TaskRanges(int num_members) : num_running_(num_members), ranges_(new Range[size_t(num_members)]) {}

  // By one thread, before anybody claims; the first ``num_running`` members will.
  void set_count(int num_tasks, int num_running) {
    if (num_tasks_ != num_tasks) num_tasks_ = num_tasks;
    if (num_running_ != num_running) num_running_ = num_running;
  }

  int num_tasks() const { return num_tasks_; }

  // Runs tasks until none is left that nobody has claimed; those of a member that has yet to come are left to it.
  template <typename Run>
  void claim_all(int member, Run&& run) {
    ranges_[size_t(member)].left.store(pack(begin_of(member), begin_of(member + 1)), std::memory_order_relaxed);
    for (int distance = 0; distance < num_running_; ++distance) {
      std::atomic<uint64_t>& left = ranges_[size_t((member + distance) % num_running_)].left;
      if (is_empty(left.load(std::memory_order_relaxed))) continue;
      for (uint64_t claim; !is_empty(claim = left.fetch_add(1, std::memory_order_relaxed));) run(next_of(claim));
    }
  }

 private:
  // Next task and end in one value: who looks at a range that its member has not dealt yet sees the one of the step
  // before, which is empty, and never half of each.
  struct alignas(64) Range {
    std::atomic<uint64_t> left{0};
  };
  static uint64_t pack(int next, int end) { return uint64_t(uint32_t(end)) << 32 | uint32_t(next); }
  static int next_of(uint64_t range) { return int(uint32_t(range)); }
  static bool is_empty(uint64_t range) { return uint32_t(range) >= uint32_t(range >> 32); }

  int begin_of(int member) const { return int(long(num_tasks_) * member / num_running_); }

  int num_running_;
  int num_tasks_ = 0;
  std::unique_ptr<Range[]> ranges_;
};

}  // namespace ferrum
