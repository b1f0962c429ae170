// The tasks of one operation in one step, dealt out to the team.
//
// Each member has a contiguous range of its own, so that it walks through memory in one direction and knows what it
// will read next; a member that is done early takes what is left of the others' ranges.
#pragma once

#include <atomic>
#include <memory>

namespace ferrum {

class TaskRanges {
 public:
  explicit TaskRanges(int num_members) : num_members_(num_members), ranges_(new Range[size_t(num_members)]) {}

  // By one thread, before anybody claims.
  void deal(int num_tasks) {
    num_tasks_ = num_tasks;
    for (int member = 0; member < num_members_; ++member) {
      ranges_[size_t(member)].next.store(begin_of(member), std::memory_order_relaxed);
      ranges_[size_t(member)].end = begin_of(member + 1);
    }
  }

  int num_tasks() const { return num_tasks_; }

  // Runs tasks until none is left that nobody has claimed.
  template <typename Run>
  void claim_all(int member, Run&& run) {
    for (int distance = 0; distance < num_members_; ++distance) {
      Range& range = ranges_[size_t((member + distance) % num_members_)];
      if (range.next.load(std::memory_order_relaxed) >= range.end) continue;
      for (int task; (task = range.next.fetch_add(1, std::memory_order_relaxed)) < range.end;) run(task);
    }
  }

 private:
  struct alignas(64) Range {
    std::atomic<int> next{0};
    int end = 0;
  };

  int begin_of(int member) const { return int(long(num_tasks_) * member / num_members_); }

  int num_members_;
  int num_tasks_ = 0;
  std::unique_ptr<Range[]> ranges_;
};

}  // namespace ferrum
