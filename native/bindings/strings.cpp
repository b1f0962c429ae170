// Arrays of strings, as GGUF stores them.
#include "../text/string_table.h"
#include "arrays.h"
#include "bind.h"

using namespace nanobind::literals;

namespace ferrum {
namespace {

// Where ``count`` strings from ``position`` on end, and how many of them the data really hold.
nb::tuple skip_strings(Array<uint8_t> data, uint64_t position, uint64_t count) {
  require(position <= data.size(), "the position lies beyond the data");
  StringTable table(data.data(), data.size(), position);
  uint64_t index = 0;
  while (index < count && table.next()) ++index;
  return nb::make_tuple(table.position(), index);
}

nb::tuple read_strings(nb::bytes data, size_t count) {
  StringTable table(reinterpret_cast<const uint8_t*>(data.c_str()), data.size(), 0);
  nb::object strings = nb::steal(PyTuple_New(Py_ssize_t(count)));
  if (!strings.is_valid()) nb::raise_python_error();
  for (size_t i = 0; i < count; ++i) {
    require(table.next(), "fewer strings than announced");
    PyObject* text = PyUnicode_DecodeUTF8(table.text(), Py_ssize_t(table.length()), "surrogateescape");
    if (text == nullptr) nb::raise_python_error();
    PyTuple_SET_ITEM(strings.ptr(), Py_ssize_t(i), text);
  }
  return nb::borrow<nb::tuple>(strings);
}

}  // namespace

void bind_strings(nb::module_& m) {
  m.def("skip_strings", &skip_strings, "data"_a, "position"_a, "count"_a,
        "(end, strings found) of an array of strings as GGUF stores it; fewer are found when the data end.");
  m.def("read_strings", &read_strings, "data"_a, "count"_a, "Such an array, decoded; what is not UTF-8 is escaped.");
}

}  // namespace ferrum
