// LinearGroup: linears over one input, claimed together so that their tiles share one barrier. In steps of few rows,
// what needs nothing but columns of its outputs is done with each slice of columns by the member that computed it:
// where cores share no cache, other members then have a quarter of the bytes, quantised, to fetch.
#pragma once

#include "row_chain.h"
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
  // ``then``: column steps on what the segments write; they all have one width then.
  LinearGroup(int input, bool quantized, RowSpace space, std::vector<LinearSegment> segments, std::vector<RowStep> then)
      : input_(input), quantized_(quantized), space_(space), segments_(std::move(segments)), then_(std::move(then)) {}
  int prepare(const Memory& memory, const Step& step) override;
  void run(const Memory& memory, const Step& step, int task, int member) override;

 private:
  struct Rows {
    int begin;
    int end;
  };
  void run_tiles(const Memory& memory, const LinearSegment& segment, int tile_begin, int tile_end, const uint8_t* next,
                 const Rows& rows, int copy) const;
  void run_then(const Memory& memory, int column_begin, int column_end, const Rows& rows) const;

  int input_;
  bool quantized_;
  RowSpace space_;
  std::vector<LinearSegment> segments_;
  std::vector<RowStep> then_;
  // How a step's work is cut.
  struct Cut {
    int tiles_per_task = 1;  // of one segment; where it goes on with their columns, of each
    int rows_per_task = 1;
    int row_tasks = 1;
    bool does_then = false;
    bool operator==(const Cut&) const = default;
  };
  Cut cut_;  // set by prepare
};

}  // namespace ferrum
