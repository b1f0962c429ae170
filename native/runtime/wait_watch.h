// Judges, from a few looks, whether a thread that is waited for computes or has lost its processor.
#pragma once

#include <cstdint>

namespace ferrum {

class WaitWatch {
 public:
  // Whether so long has passed that another look tells something. A wait of no more costs nothing.
  bool is_due(int64_t now_ns) {
    if (last_ns_ == 0) last_ns_ = now_ns;
    return now_ns - last_ns_ >= kBetweenLooksNs;
  }

  // One look: the thread has computed ``worked_ns`` by now. True when it stood still for most of the time since the look
  // before.
  bool stands_still(int64_t now_ns, int64_t worked_ns) {
    const bool stands = has_looked_ && worked_ns - worked_ns_ < (now_ns - last_ns_) / 4;
    has_looked_ = true;
    last_ns_ = now_ns;
    worked_ns_ = worked_ns;
    return stands;
  }

 private:
  // Other processes mostly take a processor for some 30 microseconds, which moving a thread would not save.
  static constexpr int64_t kBetweenLooksNs = 50'000;
  bool has_looked_ = false;
  int64_t last_ns_ = 0;    // of the look before; at first, when the wait began to be long
  int64_t worked_ns_ = 0;  // by then
};

}  // namespace ferrum
