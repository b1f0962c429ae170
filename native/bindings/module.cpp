// The Python module ferrum._native.
#include "bind.h"

NB_MODULE(_native, m) {
  nanobind::set_leak_warnings(false);  // a runtime alive at interpreter exit is the caller's business, not an error

  ferrum::bind_plan_steps(m);
  ferrum::bind_runtime(m);
  ferrum::bind_attention_cut(m);
  ferrum::bind_kernels(m);
  ferrum::bind_measurements(m);
  ferrum::bind_strings(m);
}
