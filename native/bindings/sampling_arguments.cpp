#include "sampling_arguments.h"

namespace ferrum {
namespace {

// The array itself: a converted copy would be gone when the step runs.
template <typename T>
Array<T> array_of(nb::handle object, const char* name) {
  Array<T> array;
  if (!nb::try_cast(object.attr(name), array, false))
    throw std::invalid_argument(std::string(name) + " has another type");
  return array;
}

template <typename T>
T number_of(nb::handle object, const char* name) {
  return nb::cast<T>(object.attr(name));
}

struct Ids {
  const int32_t* data;
  int count;
};

Ids ids_of(nb::handle object, const char* name, int vocabulary) {
  const Array<int32_t> ids = array_of<int32_t>(object, name);
  for (size_t i = 0; i < ids.size(); ++i)
    require(uint32_t(ids(i)) < uint32_t(vocabulary), "an id outside the vocabulary");
  return {ids.data(), int(ids.size())};
}

template <typename T>
const T* beside(nb::handle object, const char* name, int count) {
  const Array<T> array = array_of<T>(object, name);
  require(int(array.size()) == count, "ids and what is said of them differ in length");
  return array.data();
}

void read_settings(nb::handle settings, int vocabulary, TokenRules& rules) {
  rules.repetition_penalty = number_of<float>(settings, "repetition_penalty");
  rules.presence_penalty = number_of<float>(settings, "presence_penalty");
  rules.frequency_penalty = number_of<float>(settings, "frequency_penalty");
  rules.dry_multiplier = number_of<float>(settings, "dry_multiplier");
  rules.dry_base = number_of<float>(settings, "dry_base");
  rules.dry_allowed_length = number_of<int>(settings, "dry_allowed_length");
  rules.top_n_sigma = number_of<float>(settings, "top_n_sigma");
  rules.dynatemp_range = number_of<float>(settings, "dynatemp_range");
  rules.dynatemp_exponent = number_of<float>(settings, "dynatemp_exponent");
  rules.typical_p = number_of<float>(settings, "typical_p");
  rules.xtc_probability = number_of<float>(settings, "xtc_probability");
  rules.xtc_threshold = number_of<float>(settings, "xtc_threshold");
  rules.mirostat_tau = number_of<double>(settings, "mirostat_tau");
  rules.mirostat_eta = number_of<double>(settings, "mirostat_eta");
  const Ids biased = ids_of(settings, "biased_ids", vocabulary);
  rules.biased_ids = biased.data;
  rules.num_biased = biased.count;
  rules.biases = beside<float>(settings, "biases", biased.count);
}

}  // namespace

template <typename T>
const T* SamplingArguments::column(nb::handle batch, const char* name) const {
  const Array<T> values = array_of<T>(batch, name);
  require(int(values.size()) == sizes_.num_rows, "sampling columns and output_rows differ in length");
  return values.data();
}

SamplingArguments::SamplingArguments(nb::handle batch, const Sizes& sizes, const MutableArray<double>& mirostat_mu)
    : sizes_(sizes) {
  columns_.temperature = column<float>(batch, "temperature");
  columns_.top_k = column<int32_t>(batch, "top_k");
  columns_.top_p = column<float>(batch, "top_p");
  columns_.min_p = column<float>(batch, "min_p");
  columns_.seed = column<uint64_t>(batch, "seed");
  columns_.position = column<int32_t>(batch, "position");
  const nb::object masks = batch.attr("masks"), rules = batch.attr("rules");
  if (!masks.is_none()) {
    for (nb::handle each : masks) columns_.masks.push_back(mask(each));
    require(int(columns_.masks.size()) == sizes_.num_rows, "masks and output_rows differ in length");
  }
  if (!rules.is_none()) {
    read_rules(rules);
    require(int(mirostat_mu.size()) == sizes_.num_rows, "mirostat_mu and output_rows differ in length");
    columns_.mirostat_mu = mirostat_mu.data();
  }
}

const uint32_t* SamplingArguments::mask(nb::handle words) const {
  if (words.is_none()) return nullptr;
  Array<uint32_t> bits;
  require(nb::try_cast(words, bits, false) && int(bits.size()) == divide_up(sizes_.vocabulary, 32),
          "a mask must have a bit for each word of the vocabulary");
  return bits.data();
}

void SamplingArguments::read_rules(nb::handle rules) {
  rules_.reserve(size_t(sizes_.num_rows));  // pointers into it stay
  for (nb::handle each : rules) {
    require(columns_.rules.size() < size_t(sizes_.num_rows), "rules and output_rows differ in length");
    columns_.rules.push_back(nullptr);
    if (each.is_none()) continue;
    TokenRules& row = rules_.emplace_back();
    read_settings(each.attr("settings"), sizes_.vocabulary, row);
    const Ids counted = ids_of(each, "counted_ids", sizes_.vocabulary);
    row.counted_ids = counted.data;
    row.num_counted = counted.count;
    row.window_counts = beside<int32_t>(each, "window_counts", counted.count);
    row.output_counts = beside<int32_t>(each, "output_counts", counted.count);
    const Array<int32_t> dry_tokens = array_of<int32_t>(each, "dry_tokens");
    require(int(dry_tokens.size()) <= sizes_.context_length, "more dry_tokens than the context holds");
    row.dry_tokens = dry_tokens.data();
    row.num_dry_tokens = int(dry_tokens.size());
    row.dry_limit = number_of<int>(each, "dry_limit");
    row.mirostat_mu = number_of<double>(each, "mirostat_mu");
    columns_.rules.back() = &row;
  }
  require(columns_.rules.size() == size_t(sizes_.num_rows), "rules and output_rows differ in length");
}

}  // namespace ferrum
