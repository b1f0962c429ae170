// What Python hands over for one step, checked before the runtime reads it.
#pragma once

#include "../runtime/plan_interpreter.h"
#include "arrays.h"

namespace ferrum {

// Throws std::invalid_argument for rows that do not fit one another, the limits or the vocabulary.
void check_rows(const Step& step, const Limits& limits, int vocabulary);

// Where the log-probabilities go that ``wanted`` asks for. Throws std::invalid_argument where shapes or ids do not fit.
LogProbabilityColumns log_probability_columns(const Step& step, int vocabulary, const nb::object& wanted,
                                              const nb::object& found);

}  // namespace ferrum
