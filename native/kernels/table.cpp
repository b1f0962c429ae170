// The kernel table of one instruction set.
#include "kernel_table.h"

#define FERRUM_JOIN_(a, b) a##b
#define FERRUM_JOIN(a, b) FERRUM_JOIN_(a, b)
#define FERRUM_TEXT_(a) #a
#define FERRUM_TEXT(a) FERRUM_TEXT_(a)

namespace ferrum {
namespace FERRUM_ISA {

void linear_quantized(const WeightView&, int, int, const uint8_t*, const QuantizedRowsView&, int, int, float*, size_t,
                      const float*);
void linear_float(const WeightView&, int, int, const float*, size_t, int, int, float*, size_t, const float*);
void quantize_row(const float*, int, const QuantizedRows&, int);
void rms_norm_row(const float*, const float*, int, int, float, float*);
void add_row(const float*, const float*, int, float*);
void multiply_row(const float*, const float*, int, float*);
void scale_row(const float*, float, int, float*);
void silu_row(const float*, int, float*);
void gelu_tanh_row(const float*, int, float*);
void soft_cap_row(const float*, float, int, float*);
void rope_row(const float*, const float*, const float*, int, int, int, bool, float*);
void store_kv(const float*, const float*, int, int, KvType, uint8_t*);
bool attention_piece(const AttentionQueries&, KvType, const uint8_t* const*, int, int, int, float*,
                     const AttentionState&);
void attention_merge(const AttentionState&, int, int, const AttentionState&);
Choice sample(const float*, int, const SamplingRule&, const SamplingScratch&);
bool log_probabilities(const float*, int, int32_t, int, const LogProbabilityRow&);

}  // namespace FERRUM_ISA

const KernelTable* FERRUM_JOIN(FERRUM_ISA, _kernels)() {
  static constexpr KernelTable table{
      FERRUM_TEXT(FERRUM_ISA),   FERRUM_ISA::linear_quantized,  FERRUM_ISA::linear_float,
      FERRUM_ISA::quantize_row,  FERRUM_ISA::rms_norm_row,      FERRUM_ISA::add_row,
      FERRUM_ISA::multiply_row,  FERRUM_ISA::scale_row,         FERRUM_ISA::silu_row,
      FERRUM_ISA::gelu_tanh_row, FERRUM_ISA::soft_cap_row,      FERRUM_ISA::rope_row,
      FERRUM_ISA::store_kv,      FERRUM_ISA::attention_piece,   FERRUM_ISA::attention_merge,
      FERRUM_ISA::sample,        FERRUM_ISA::log_probabilities,
  };
  return &table;
}

}  // namespace ferrum
