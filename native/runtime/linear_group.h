// LinearGroup: linears over one input, claimed together so that their tiles share one barrier.
#pragma once

#include "step.h"

namespace ferrum {

struct LinearSegment {
  int weight;
  int out;        // buffer
  int bias = -1;  // vector, or none
};

class LinearGroup final : public Operation {
 public:
  // ``input``: quantised rows when every weight is quantised, else a float buffer. ``quantized`` says which.
  LinearGroup(int input, bool quantized, RowSpace space, std::vector<LinearSegment> segments)
      : input_(input), quantized_(quantized), space_(space), segments_(std::move(segments)) {}
  int prepare(const Memory& memory, const Step& step) override;
  void run(const Memory& memory, const Step& step, int task, int member) override;

 private:
  int input_;
  bool quantized_;
  RowSpace space_;
  std::vector<LinearSegment> segments_;
  // How a step's work is cut.
  struct Cut {
    int tiles_per_task = 1;
    int rows_per_task = 1;
    int row_tasks = 1;
    bool operator==(const Cut&) const = default;
  };
  Cut cut_;  // set by prepare
};

}  // namespace ferrum
