#include "kernels/cuda/vector.h"

#include <algorithm>
#include <cstdlib>
#include <limits>

#include "common/base/check.h"
#include "common/rule/optimizer.h"
#include "kernels/cuda/column_sums.h"
#include "kernels/cuda/vector_kernels.h"

namespace tessera {
namespace {

template <typename Op>
void LaunchElements(const Op& op, int64_t n, cuda::Device* device) {
  const cuda::Elementwise<Op> kernel(op, n);
  device->Launch(kernel.blocks(), kernel);
}

// g, w and the states in; w and the states out.
template <typename Op>
Op OnArrays(const float* g, float* const* state, float* w) {
  Op op;
  op.in[0] = g;
  op.in[1] = w;
  op.out[0] = w;
  for (int s = 0; s + 2 < Op::kIn; ++s) {
    op.in[s + 2] = state[s];
    op.out[s + 1] = state[s];
  }
  return op;
}

// The rules of common/rule/optimizer.h.
class CudaOptimizer final : public OptimizerKernel {
 public:
  CudaOptimizer(const v1::Optimizer& optimizer, cuda::Device* device)
      : optimizer_(optimizer), device_(*device) {
    TESSERA_CHECK(optimizer.kind_case() != v1::Optimizer::KIND_NOT_SET);
  }

  void Step(const OptimizerNumbers* numbers, int64_t n, const float* g, float* const* state,
            float* w) override {
    switch (optimizer_.kind_case()) {
      case v1::Optimizer::kSgd:
        return Sgd(numbers, n, g, state, w);
      case v1::Optimizer::kAdagrad:
        return Adagrad(numbers, n, g, state, w);
      default: {
        auto op = OnArrays<cuda::AdamOp>(g, state, w);
        op.numbers = numbers;
        return LaunchElements(op, n, &device_);
      }
    }
  }

 private:
  void Sgd(const OptimizerNumbers* numbers, int64_t n, const float* g, float* const* state,
           float* w) {
    const SgdOptions options = SgdOptionsOf(optimizer_.sgd());
    const auto set = [&](auto op) {
      op.numbers = numbers;
      op.learning_rate = options.learning_rate;
      op.decay = options.weight_decay;
      return op;
    };
    if (options.momentum == 0) {
      return LaunchElements(set(OnArrays<cuda::PlainSgdOp>(g, state, w)), n, &device_);
    }
    const auto launch = [&](auto op) {
      op.mu = options.momentum;
      LaunchElements(set(op), n, &device_);
    };
    if (options.nesterov) {
      launch(OnArrays<cuda::NesterovOp>(g, state, w));
    } else {
      launch(OnArrays<cuda::MomentumOp>(g, state, w));
    }
  }

  void Adagrad(const OptimizerNumbers* numbers, int64_t n, const float* g, float* const* state,
               float* w) {
    const AdagradOptions options = AdagradOptionsOf(optimizer_.adagrad());
    auto op = OnArrays<cuda::AdagradOp>(g, state, w);
    op.numbers = numbers;
    op.learning_rate = options.learning_rate;
    op.epsilon = std::max(options.epsilon, std::numeric_limits<float>::min());
    op.decay = options.weight_decay;
    LaunchElements(op, n, &device_);
  }

  const v1::Optimizer optimizer_;
  cuda::Device& device_;
};

}  // namespace

void CudaVector::Axpy(int64_t n, float a, const float* x, float* y) {
  cuda::AxpyOp op{{{}, {x, y}, {y}}, a};
  LaunchElements(op, n, &device_);
}

void CudaVector::Subtract(int64_t n, const float* a, const float* b, float* out) {
  LaunchElements(cuda::SubtractOp{{{}, {a, b}, {out}}}, n, &device_);
}

std::unique_ptr<OptimizerKernel> CudaVector::MakeOptimizer(const v1::Optimizer& optimizer) {
  return std::make_unique<CudaOptimizer>(optimizer, &device_);
}

void CudaVector::ColumnSums(const MatrixShape& shape, const float* x, WriteMode mode, float* sums) {
  void* const partial = scratch_.Of(ColumnSumsBytes<cuda::SumOp>(shape));
  if (partial == nullptr) return;
  SumColumns<cuda::SumOp>(shape, {x, mode == WriteMode::kAdd, sums}, static_cast<double*>(partial),
                          &device_);
}

void CudaVector::Round(int64_t n, const float* x, Bf16* y) {
  LaunchElements(cuda::RoundOp{{}, {x}, {y}}, n, &device_);
}

void CudaVector::Widen(int64_t n, const Bf16* x, float* y) {
  LaunchElements(cuda::WidenOp{{}, {x}, {y}}, n, &device_);
}

}  // namespace tessera
