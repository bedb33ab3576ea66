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

// The rules of common/rule/optimizer.h.
class CudaOptimizer final : public OptimizerKernel {
 public:
  CudaOptimizer(const v1::Optimizer& optimizer, const DeviceOptions& options, cuda::Device* device,
                Shortcuts* shortcuts)
      : optimizer_(optimizer), options_(options), device_(*device), shortcuts_(*shortcuts) {
    TESSERA_CHECK(optimizer.kind_case() != v1::Optimizer::KIND_NOT_SET);
  }

  void Step(const OptimizerNumbers* numbers, int64_t n, const float* g, float* const* state,
            float* w, Bf16* rounded) override {
    const Arrays arrays{n, g, state, w, rounded};
    switch (optimizer_.kind_case()) {
      case v1::Optimizer::kSgd:
        return Sgd(numbers, arrays);
      case v1::Optimizer::kAdagrad:
        return Adagrad(numbers, arrays);
      case v1::Optimizer::kRmsprop:
        return RmsProp(numbers, arrays);
      default: {
        cuda::AdamOp op;
        op.numbers = numbers;
        return Launch(op, arrays);
      }
    }
  }

  // One kernel forms the gradient and steps the weight, so that the gradient of a large layer is never stored. It takes
  // plain SGD only, few rows, and matrices large enough to be worth it (DeviceOptions has the limits).
  bool StepByProduct(const OptimizerNumbers* numbers, const LinearShape& shape, const Bf16* x,
                     const Bf16* dy, float* weight, Bf16* rounded) override {
    if (!optimizer_.has_sgd()) return false;
    const SgdOptions sgd = SgdOptionsOf(optimizer_.sgd());
    if (sgd.momentum != 0 || shape.rows > options_.product_step_rows_max ||
        shape.outputs * shape.inputs < options_.product_step_size_min) {
      return false;
    }
    const bool queued = device_.StepWeight({shape.rows, shape.inputs, shape.outputs, x, dy, weight,
                                            rounded, numbers, sgd.learning_rate, sgd.weight_decay});
    shortcuts_.product_steps += queued ? 1 : 0;
    return queued;
  }

 private:
  struct Arrays {
    int64_t n;
    const float* g;
    float* const* state;
    float* w;
    Bf16* rounded;
  };

  // g, w and the states in; w and the states out.
  template <typename Op>
  void Launch(Op op, const Arrays& arrays) {
    op.in[0] = arrays.g;
    op.in[1] = arrays.w;
    op.out[0] = arrays.w;
    for (int s = 0; s + 2 < Op::kIn; ++s) {
      op.in[s + 2] = arrays.state[s];
      op.out[s + 1] = arrays.state[s];
    }
    // Two kernels, so that steps without rounding do not pay for the test.
    if (arrays.rounded == nullptr) return LaunchElements(op, arrays.n, &device_);
    LaunchElements(cuda::RoundsToo<Op>{op, arrays.rounded}, arrays.n, &device_);
  }

  void Sgd(const OptimizerNumbers* numbers, const Arrays& arrays) {
    const SgdOptions options = SgdOptionsOf(optimizer_.sgd());
    const auto set = [&](auto op) {
      op.numbers = numbers;
      op.learning_rate = options.learning_rate;
      op.decay = options.weight_decay;
      return op;
    };
    // Without momentum there is no state to read or write.
    if (options.momentum == 0) return Launch(set(cuda::PlainSgdOp()), arrays);
    const auto launch = [&](auto op) {
      op.mu = options.momentum;
      Launch(set(op), arrays);
    };
    if (options.nesterov) {
      launch(cuda::NesterovOp());
    } else {
      launch(cuda::MomentumOp());
    }
  }

  void Adagrad(const OptimizerNumbers* numbers, const Arrays& arrays) {
    const AdagradOptions options = AdagradOptionsOf(optimizer_.adagrad());
    cuda::AdagradOp op;
    op.numbers = numbers;
    op.learning_rate = options.learning_rate;
    // An epsilon of 0 would divide 0 by 0 where a weight never had a gradient.
    op.epsilon = std::max(options.epsilon, std::numeric_limits<float>::min());
    op.decay = options.weight_decay;
    Launch(op, arrays);
  }

  void RmsProp(const OptimizerNumbers* numbers, const Arrays& arrays) {
    const RmsPropOptions options = RmsPropOptionsOf(optimizer_.rmsprop());
    const auto set = [&](auto op) {
      op.numbers = numbers;
      op.learning_rate = options.learning_rate;
      op.decay = options.weight_decay;
      // An epsilon of 0 would divide 0 by 0 where a weight never had a gradient.
      op.mean = {static_cast<float>(options.alpha), options.alpha_rest(),
                 std::max(options.epsilon, std::numeric_limits<float>::min())};
      return op;
    };
    if (options.momentum == 0) return Launch(set(cuda::RmsPropOp()), arrays);
    auto op = set(cuda::RmsHeavyOp());
    op.mu = options.momentum;
    Launch(op, arrays);
  }

  const v1::Optimizer optimizer_;
  const DeviceOptions options_;
  cuda::Device& device_;
  Shortcuts& shortcuts_;
};

}  // namespace

void CudaVector::Axpy(int64_t n, float a, const float* x, float* y) {
  cuda::AxpyOp op{{{}, {x, y}, {y}}, a};
  LaunchElements(op, n, &device_);
}

void CudaVector::Add(int64_t n, const float* a, const float* b, float* out) {
  LaunchElements(cuda::AddOp{{{}, {a, b}, {out}}}, n, &device_);
}

void CudaVector::Subtract(int64_t n, const float* a, const float* b, float* out) {
  LaunchElements(cuda::SubtractOp{{{}, {a, b}, {out}}}, n, &device_);
}

void CudaVector::Blend(int64_t n, float a, const float* x, float b, float* y) {
  LaunchElements(cuda::BlendOp{{{}, {x, y}, {y}}, a, b}, n, &device_);
}

void CudaVector::NormFactor(int64_t n, const float* x, const NormLimit& limit, float* factor) {
  cuda::SumSquares squares{x, n, nullptr};
  // A sum for each block, which one block then adds up in order.
  const int64_t parts = squares.blocks();
  squares.parts = static_cast<double*>(
      scratch_.Of(std::max<int64_t>(1, parts) * static_cast<int64_t>(sizeof(double))));
  if (squares.parts == nullptr) return;
  if (parts > 0) device_.Launch(parts, squares);
  device_.Launch(1, cuda::LimitNorm{squares.parts, parts, limit.most, limit.epsilon,
                                    limit.factor_max, factor});
}

void CudaVector::ScaleBy(int64_t n, const float* factor, float* x) {
  cuda::ScaleByOp op;
  op.factor = factor;
  op.in[0] = x;
  op.out[0] = x;
  LaunchElements(op, n, &device_);
}

std::unique_ptr<OptimizerKernel> CudaVector::MakeOptimizer(const v1::Optimizer& optimizer) {
  return std::make_unique<CudaOptimizer>(optimizer, options_, &device_, &shortcuts_);
}

void CudaVector::ColumnSums(const MatrixShape& shape, const float* x, WriteMode mode, float* sums) {
  void* const partial = scratch_.Of(ColumnSumsBytes<cuda::SumOp>(shape));
  if (partial == nullptr) return;
  SumColumns<cuda::SumOp>(shape, {x, mode == WriteMode::kAdd, sums}, static_cast<double*>(partial),
                          &device_);
}

void CudaVector::Transpose(int64_t count, const MatrixShape& shape, const float* x, float* y) {
  if (shape.size() == 0) return;
  cuda::TransposeSquares kernel{shape.rows, shape.columns, x, y};
  // A launch has at most kBlocksMax blocks.
  const int64_t at_once = cuda::kBlocksMax / kernel.blocks();
  TESSERA_CHECK(at_once > 0);
  for (int64_t first = 0; first < count; first += at_once) {
    kernel.x = x + first * shape.size();
    kernel.y = y + first * shape.size();
    device_.Launch(std::min(at_once, count - first) * kernel.blocks(), kernel);
  }
}

void CudaVector::CopyBlock(const MatrixShape& shape, const float* x, int64_t x_stride, float* y,
                           int64_t y_stride) {
  if (shape.size() == 0) return;
  cuda::CopyTiles kernel{shape.rows, shape.columns, x, x_stride, y, y_stride};
  // A launch has at most kBlocksMax blocks.
  const int64_t rows_at_once = cuda::kBlocksMax / kernel.across() * cuda::CopyTiles::kRows;
  for (int64_t row = 0; row < shape.rows; row += rows_at_once) {
    kernel.rows = std::min(rows_at_once, shape.rows - row);
    kernel.x = x + row * x_stride;
    kernel.y = y + row * y_stride;
    device_.Launch(kernel.blocks(), kernel);
  }
}

void CudaVector::Round(int64_t n, const float* x, Bf16* y) {
  LaunchElements(cuda::RoundOp{{}, {x}, {y}}, n, &device_);
}

void CudaVector::Widen(int64_t n, const Bf16* x, float* y) {
  LaunchElements(cuda::WidenOp{{}, {x}, {y}}, n, &device_);
}

}  // namespace tessera
