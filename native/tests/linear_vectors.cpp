// Linears of every weight type, and the activations they take.
#include "../runtime/step.h"
#include "stored_weights.h"
#include "vector_groups.h"

namespace ferrum::vectors {
namespace {

class QuantizedActivations {
 public:
  QuantizedActivations(int rows, int columns)
      : rows_(size_t(rows)), padded_(size_t(divide_up(columns, kGroup)) * kGroup), groups_(padded_ / kGroup) {
    codes_.resize(rows_ * padded_);
    floats_.resize(rows_ * groups_ * 4);
    sums_.resize(rows_ * groups_ * 3);
    view.codes = view.codes_out = codes_.data();
    view.scales = view.scales_out = floats_.data();
    view.scaled_sums32 = view.scaled_sums32_out = floats_.data() + rows_ * groups_;
    view.scaled_sums16 = view.scaled_sums16_out = floats_.data() + 2 * rows_ * groups_;
    view.sums32 = view.sums32_out = sums_.data();
    view.sums16 = view.sums16_out = sums_.data() + rows_ * groups_;
    view.padded = int(padded_);
    view.groups = int(groups_);
  }
  void add_to(Digest& digest) const {
    digest.add(codes_.data(), codes_.size());
    digest.add(floats_.data(), floats_.size());
    digest.add(sums_.data(), sums_.size());
  }
  QuantizedRows view{};

 private:
  size_t rows_, padded_, groups_;
  std::vector<int8_t> codes_;
  std::vector<float> floats_;
  std::vector<int32_t> sums_;
};

void quantize_vectors(const KernelTable& kernels) {
  Digest digest;
  Generator generator(1);
  for (float factor : {1.0f, 0.0f, 0x1p-149f, 0x1p-133f, 0x1p-103f, 0x1p-99f, 0x1p-66f, 0x1p66f, 0x1p120f}) {
    constexpr int width = 80;  // the last group is half padding
    const std::vector<float> x = generator.normals(width, factor);
    QuantizedActivations out(1, width);
    kernels.quantize_row(x.data(), width, out.view, 0);
    out.add_to(digest);
  }
  print("quantize_row", digest);
}

void vectors_of_type(const KernelTable& kernels, const NamedType& kind) {
  constexpr int outputs = 40, inputs = 512, most_rows = 13;
  Generator generator(100 + uint64_t(kind.type));
  const std::vector<uint8_t> stored = stored_weight(kind, outputs, inputs, generator);
  const Weight weight(kind.type, outputs, inputs, stored.data());
  const std::vector<float> x = generator.normals(size_t(most_rows) * inputs);
  const size_t stride = size_t(weight.tiles) * kTileColumns;
  std::vector<float> bias = generator.normals(stride);
  QuantizedActivations quantized(most_rows, inputs);
  for (int row = 0; row < most_rows; ++row)
    kernels.quantize_row(x.data() + size_t(row) * inputs, inputs, quantized.view, row);
  for (int rows : {1, 2, 3, 8, 13}) {
    Digest digest;
    for (const float* added : {static_cast<const float*>(nullptr), static_cast<const float*>(bias.data())}) {
      std::vector<float> out(size_t(rows) * stride);
      if (layout_of(kind.type) == nullptr)
        kernels.linear_float(weight.view, 0, weight.tiles, x.data(), inputs, 0, rows, out.data(), stride, added);
      else
        kernels.linear_quantized(weight.view, 0, weight.tiles, weight.view.data, quantized.view, 0, rows, out.data(),
                                 stride, added);
      digest.add(out.data(), out.size());
    }
    print(std::string("linear ") + kind.name + " rows " + std::to_string(rows), digest);
  }
  Digest digest;
  std::vector<float> row(inputs);
  for (int i = 0; i < outputs; ++i) {
    read_row(weight.view, i, row.data());
    digest.add(row.data(), row.size());
  }
  print(std::string("read_row ") + kind.name, digest);
}

}  // namespace

void linear_vectors(const KernelTable& kernels) {
  quantize_vectors(kernels);
  for (const NamedType& kind : weight_types()) vectors_of_type(kernels, kind);
}

}  // namespace ferrum::vectors
