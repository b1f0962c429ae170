// What an executable plan is made of, as Python writes it down.
#include "../runtime/plan_interpreter.h"
#include "bind.h"

using namespace nanobind::literals;

namespace ferrum {

namespace nb = nanobind;

void bind_plan_steps(nb::module_& m) {
  nb::enum_<RowStepKind>(m, "RowStepKind")
      .value("EMBED", RowStepKind::embed)
      .value("RMS_NORM", RowStepKind::rms_norm)
      .value("ADD", RowStepKind::add)
      .value("MULTIPLY", RowStepKind::multiply)
      .value("SILU", RowStepKind::silu)
      .value("GELU_TANH", RowStepKind::gelu_tanh)
      .value("SOFT_CAP", RowStepKind::soft_cap)
      .value("ROPE", RowStepKind::rope)
      .value("STORE_KV", RowStepKind::store_kv)
      .value("SELECT", RowStepKind::select)
      .value("QUANTIZE", RowStepKind::quantize);
  nb::enum_<KvType>(m, "KvType").value("F16", KvType::f16).value("INT8", KvType::int8);
  nb::class_<RowStep>(m, "RowStep")
      .def(
          "__init__",
          [](RowStep* self, RowStepKind kind, int out, int a, int b, int weight, int group_width, float factor,
             bool interleaved) { new (self) RowStep{kind, out, a, b, weight, group_width, factor, interleaved}; },
          "kind"_a, "out"_a, "a"_a = -1, "b"_a = -1, "weight"_a = -1, "group_width"_a = 0, "factor"_a = 0.0f,
          "interleaved"_a = false);
  nb::class_<LinearSegment>(m, "LinearSegment")
      .def(
          "__init__",
          [](LinearSegment* self, int weight, int out, int bias) { new (self) LinearSegment{weight, out, bias}; },
          "weight"_a, "out"_a, "bias"_a = -1);
  nb::class_<AttentionShape>(m, "AttentionShape")
      .def(
          "__init__",
          [](AttentionShape* self, int q, int out, int kv_layer, int num_heads, float scale, int window,
             float soft_cap) { new (self) AttentionShape{q, out, kv_layer, num_heads, scale, window, soft_cap}; },
          "q"_a, "out"_a, "kv_layer"_a, "num_heads"_a, "scale"_a, "window"_a = 0, "soft_cap"_a = 0.0f);
}

}  // namespace ferrum
