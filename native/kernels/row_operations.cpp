// Operations on one row of activations at a time. Widths are multiples of 16: buffers are padded, and padding holds 0.
#include "kernel_table.h"
#include "vector.h"

namespace ferrum::FERRUM_ISA {

// A group whose largest value is below this counts as zeros: 127 over it would soon be infinite.
inline constexpr float kSmallestScaled = 1e-30f;

void quantize_row(const float* x, int width, const QuantizedRows& out, int row) {
  int8_t* codes = out.codes_out + size_t(row) * out.padded;
  float* scales = out.scales_out + size_t(row) * out.groups;
  float* scaled_sums32 = out.scaled_sums32_out + size_t(row) * out.groups;
  float* scaled_sums16 = out.scaled_sums16_out + size_t(row) * 2 * out.groups;
  int32_t* sums32 = out.sums32_out + size_t(row) * out.groups;
  int32_t* sums16 = out.sums16_out + size_t(row) * 2 * out.groups;
  for (int g = 0; g * kGroup < width; ++g) {
    float padded[kGroup];
    const float* input = x + g * kGroup;
    if ((g + 1) * kGroup > width) {
      for (int i = 0; i < kGroup; ++i) padded[i] = g * kGroup + i < width ? input[i] : 0.0f;
      input = padded;
    }
    Lanes magnitude = l_set(0.0f);
    for (int i = 0; i < kGroup; i += kWidth) {
      Vector& part = magnitude.part[(i / kWidth) % kParts];
      part = v_max(part, v_abs(v_load(input + i)));
    }
    const float largest = l_fold_max(magnitude);
    const bool is_zero = largest < kSmallestScaled;
    const float scale = is_zero ? 0.0f : largest / 127.0f;
    const float inverse = is_zero ? 0.0f : 127.0f / largest;
    int8_t* group_codes = codes + g * kGroup;
    for (int i = 0; i < kGroup; i += kWidth) v_to_s8(group_codes + i, v_mul(v_load(input + i), v_set(inverse)));
    const int32_t half[2] = {sum_of_16(group_codes), sum_of_16(group_codes + 16)};
    scales[g] = scale;
    sums16[2 * g] = half[0];
    sums16[2 * g + 1] = half[1];
    sums32[g] = half[0] + half[1];
    scaled_sums16[2 * g] = scale * float(half[0]);
    scaled_sums16[2 * g + 1] = scale * float(half[1]);
    scaled_sums32[g] = scale * float(half[0] + half[1]);
  }
}

void rms_norm_row(const float* x, const float* weight, int width, int group_width, float epsilon, float* out) {
  for (int start = 0; start < width; start += group_width) {
    const float* input = x + start;
    Lanes squares = l_set(0.0f);
    for (int i = 0; i < group_width; i += kLanes) {
      const Lanes value = l_load(input + i);
      squares = l_fma(value, value, squares);
    }
    const float mean = l_fold_add(squares) / float(group_width);
    const float inverse = 1.0f / __builtin_sqrtf(mean + epsilon);
    for (int i = 0; i < group_width; i += kLanes)
      l_store(out + start + i, l_mul(l_mul(l_load(input + i), l_set(inverse)), l_load(weight + i)));
  }
}

void add_row(const float* a, const float* b, int width, float* out) {
  for (int i = 0; i < width; i += kWidth) v_store(out + i, v_add(v_load(a + i), v_load(b + i)));
}

void multiply_row(const float* a, const float* b, int width, float* out) {
  for (int i = 0; i < width; i += kWidth) v_store(out + i, v_mul(v_load(a + i), v_load(b + i)));
}

void scale_row(const float* x, float factor, int width, float* out) {
  for (int i = 0; i < width; i += kWidth) v_store(out + i, v_mul(v_load(x + i), v_set(factor)));
}

void silu_row(const float* x, int width, float* out) {
  for (int i = 0; i < width; i += kWidth) {
    const Vector value = v_load(x + i);
    const Vector exponential = v_exp(v_sub(v_zero(), value));
    v_store(out + i, v_div(value, v_add(v_set(1.0f), exponential)));
  }
}

void gelu_tanh_row(const float* x, int width, float* out) {
  for (int i = 0; i < width; i += kWidth) {
    const Vector value = v_load(x + i);
    const Vector cubic = v_fma(v_mul(v_mul(value, value), v_set(0.044715f)), value, value);
    const Vector u = v_mul(v_set(0.7978845608f), cubic);
    const Vector exponential = v_exp(v_sub(v_zero(), v_add(u, u)));
    v_store(out + i, v_div(value, v_add(v_set(1.0f), exponential)));
  }
}

void soft_cap_row(const float* x, float cap, int width, float* out) {
  for (int i = 0; i < width; i += kWidth) {
    const Vector z = v_div(v_load(x + i), v_set(cap));
    const Vector exponential = v_exp(v_add(z, z));
    const Vector quotient = v_div(v_set(2.0f), v_add(exponential, v_set(1.0f)));
    v_store(out + i, v_mul(v_set(cap), v_sub(v_set(1.0f), quotient)));
  }
}

void rope_row(const float* x, const float* cosine, const float* sine, int pairs, int head_width, int num_heads,
              bool interleaved, float* out) {
  const int step = interleaved ? 2 : 1;
  const int distance = interleaved ? 1 : pairs;
  for (int head = 0; head < num_heads; ++head) {
    const float* input = x + size_t(head) * head_width;
    float* output = out + size_t(head) * head_width;
    for (int i = 0; i < pairs; ++i) {
      const float a = input[i * step];
      const float b = input[i * step + distance];
      output[i * step] = __builtin_fmaf(a, cosine[i], -(b * sine[i]));
      output[i * step + distance] = __builtin_fmaf(a, sine[i], b * cosine[i]);
    }
    for (int i = 2 * pairs; i < head_width; ++i) output[i] = input[i];
  }
}

namespace {

void store_half(const float* k, const float* v, int head_width, int slot, uint8_t* block) {
  uint16_t* keys = reinterpret_cast<uint16_t*>(block);
  for (int d = 0; d < head_width; ++d) keys[size_t(d) * kGroup + slot] = float_to_half(k[d]);
  uint16_t* row = keys + size_t(head_width) * kGroup + size_t(slot) * head_width;
  for (int d = 0; d < head_width; d += kWidth) v_to_half(row + d, v_load(v + d));
}

// One scale for all values of the row, which it returns; ``codes`` are contiguous.
float quantize_head(const float* x, int head_width, int8_t* codes) {
  Lanes magnitude = l_set(0.0f);
  for (int d = 0; d < head_width; d += kWidth) {
    Vector& part = magnitude.part[(d / kWidth) % kParts];
    part = v_max(part, v_abs(v_load(x + d)));
  }
  const float largest = l_fold_max(magnitude);
  const bool is_zero = largest < kSmallestScaled;
  const Vector inverse = v_set(is_zero ? 0.0f : 127.0f / largest);
  for (int d = 0; d < head_width; d += kWidth) v_to_s8(codes + d, v_mul(v_load(x + d), inverse));
  return is_zero ? 0.0f : largest / 127.0f;
}

void store_int8(const float* k, const float* v, int head_width, int slot, uint8_t* block) {
  int8_t* keys = reinterpret_cast<int8_t*>(block);
  int8_t* values = keys + size_t(head_width) * kGroup;
  float* scales = reinterpret_cast<float*>(values + size_t(head_width) * kGroup);
  // The token's own row of V holds the codes of K for a moment: they go to a column.
  int8_t* row = values + size_t(slot) * head_width;
  scales[slot] = quantize_head(k, head_width, row);
  for (int d = 0; d < head_width; ++d) keys[size_t(d) * kGroup + slot] = row[d];
  scales[kGroup + slot] = quantize_head(v, head_width, row);
}

}  // namespace

void store_kv(const float* k, const float* v, int head_width, int slot, KvType type, uint8_t* block) {
  if (type == KvType::int8) store_int8(k, v, head_width, slot, block);
  else store_half(k, v, head_width, slot, block);
}

}  // namespace ferrum::FERRUM_ISA
