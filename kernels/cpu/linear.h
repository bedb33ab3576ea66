// oneDNN's matrix products, prepared once per shape.
#ifndef TESSERA_KERNELS_CPU_LINEAR_H_
#define TESSERA_KERNELS_CPU_LINEAR_H_

#include <map>
#include <memory>
#include <tuple>

#include "absl/status/status.h"
#include "kernels/bf16.h"
#include "kernels/cpu/threads.h"
#include "kernels/linear.h"

namespace tessera {

// Which of oneDNN's forms, fixed so that results do not depend on a timing. Measured on one Zen 4
// core, f32, in GFLOP/s, for 128 rows and 4096 -> 2048 (in brackets 16 rows, 4096 -> 512); the
// core's limit is 116:
//
//                      dnnl_sgemm     matmul        inner_product, plain layouts
//   Forward            89  (36)       107 (84) *    89  (36)
//   WeightGradient     114 (101)      106 (100)     114 (103) *
//   InputGradient      100 (109)      101 (84)      100 (108) *
//
// and bf16 orders them the same way. Layouts of oneDNN's own choice are up to 4% faster still, and
// cost more than that to convert to and from. A WeightGradient that adds is a matmul: inner_product
// cannot.
template <typename T>
class CpuLinear final : public LinearKernel<T> {
 public:
  explicit CpuLinear(const CpuThreads& threads);
  ~CpuLinear() override;

  void Forward(const LinearShape& shape, const T* x, const T* weight, const float* bias,
               float* y) override;
  void WeightGradient(const LinearShape& shape, const T* x, const T* dy, WriteMode mode,
                      float* dweight) override;
  void InputGradient(const LinearShape& shape, const T* dy, const T* weight, float* dx) override;

  // Takes the first failure since the last call.
  absl::Status TakeStatus();

 private:
  enum class Kind {
    kForward,
    kForwardWithBias,
    kWeightGradient,
    kWeightGradientAdded,
    kInputGradient
  };
  struct Product;
  struct Engine;
  using Key = std::tuple<Kind, int64_t, int64_t, int64_t>;

  // Factor, factor, bias or null, result, in the order of the product's arguments.
  void Run(Kind kind, const LinearShape& shape, const void* a, const void* b, const void* bias,
           void* out);
  Product& Prepared(Kind kind, const LinearShape& shape);

  const CpuThreads threads_;
  std::unique_ptr<Engine> engine_;
  std::map<Key, Product> products_;
  absl::Status status_;
};

extern template class CpuLinear<float>;
extern template class CpuLinear<Bf16>;

}  // namespace tessera

#endif  // TESSERA_KERNELS_CPU_LINEAR_H_
