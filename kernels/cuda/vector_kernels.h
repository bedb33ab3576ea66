// What vector.cc runs, expression by expression as common/rule and kernels/cpu have it: compiled
// without fused multiply-adds, the bits are theirs.
#ifndef TESSERA_KERNELS_CUDA_VECTOR_KERNELS_H_
#define TESSERA_KERNELS_CUDA_VECTOR_KERNELS_H_

#include <cmath>
#include <cstdint>

#include "kernels/bf16.h"
#include "kernels/cuda/plain_sgd.h"
#include "kernels/cuda/tiles.h"
#include "kernels/optimizer_numbers.h"

namespace tessera::cuda {

// A map of elements in f32.
template <int inputs, int outputs>
struct Floats : Alone {
  using In = float;
  using Out = float;
  static constexpr int kIn = inputs;
  static constexpr int kOut = outputs;
  const float* in[inputs];
  float* out[outputs];
};

// x, y -> y
struct AxpyOp : Floats<2, 1> {
  float a;
  TESSERA_HOST_DEVICE void operator()(int64_t, int, const Common&, const float* v, float* r) const {
    r[0] = v[1] + a * v[0];
  }
};

struct AddOp : Floats<2, 1> {
  TESSERA_HOST_DEVICE void operator()(int64_t, int, const Common&, const float* v, float* r) const {
    r[0] = v[0] + v[1];
  }
};

struct SubtractOp : Floats<2, 1> {
  TESSERA_HOST_DEVICE void operator()(int64_t, int, const Common&, const float* v, float* r) const {
    r[0] = v[0] - v[1];
  }
};

// x, y -> y
struct BlendOp : Floats<2, 1> {
  float a, b;
  TESSERA_HOST_DEVICE void operator()(int64_t, int, const Common&, const float* v, float* r) const {
    r[0] = a * v[0] + b * v[1];
  }
};

struct ScaleByOp : Floats<1, 1> {
  using Common = float;
  const float* factor;
  TESSERA_HOST_DEVICE float Prepare(int64_t) const { return *factor; }
  TESSERA_HOST_DEVICE void operator()(int64_t, int, const float& by, const float* v,
                                      float* r) const {
    r[0] = v[0] * by;
  }
};

// Sums of squares, one for each part of an array.
struct SumSquares {
  static constexpr int kThreads = 256;
  static constexpr int kPart = 65536;  // values
  static constexpr int kPhases = 2;
  static constexpr bool Reduces(int phase) { return phase == 0; }
  struct Value {
    double sum;
  };
  struct Shared {
    Value total;
  };
  struct Own {
    Value value;
  };
  const float* x;
  int64_t n;
  double* parts;

  int64_t blocks() const { return CeilDiv(n, kPart); }
  TESSERA_HOST_DEVICE static Value Combine(const Value& a, const Value& b) {
    return {a.sum + b.sum};
  }

  template <int phase>
  TESSERA_HOST_DEVICE void Run(const Lane& lane, Shared& shared, Own& own) const {
    if constexpr (phase == 0) {
      const int64_t first = lane.block * kPart;
      const int64_t count = n - first < kPart ? n - first : kPart;
      double sum = 0;
      ForOwn<kThreads, 8, 8>(
          count, lane.thread,
          [&sum](int32_t, int32_t, float value) {
            sum += static_cast<double>(value) * static_cast<double>(value);
          },
          [](bool) {}, x + first);
      own.value = {sum};
    } else {
      if (lane.thread == 0) parts[lane.block] = shared.total.sum;
    }
  }
};

// What a limit says of the norm whose squares these parts are; one block.
struct LimitNorm {
  static constexpr int kThreads = 256;
  static constexpr int kPhases = 2;
  static constexpr bool Reduces(int phase) { return phase == 0; }
  using Value = SumSquares::Value;
  struct Shared {
    Value total;
  };
  struct Own {
    Value value;
  };
  const double* parts;
  int64_t count;
  float most, epsilon, factor_max;
  float* factor;

  TESSERA_HOST_DEVICE static Value Combine(const Value& a, const Value& b) {
    return SumSquares::Combine(a, b);
  }

  template <int phase>
  TESSERA_HOST_DEVICE void Run(const Lane& lane, Shared& shared, Own& own) const {
    if constexpr (phase == 0) {
      own.value = {0};
      for (int64_t i = lane.thread; i < count; i += kThreads) own.value.sum += parts[i];
    } else {
      if (lane.thread != 0) return;
      const double wanted =
          static_cast<double>(most) / (std::sqrt(shared.total.sum) + static_cast<double>(epsilon));
      // NaN stays NaN, as it fails the comparison.
      *factor = wanted > static_cast<double>(factor_max) ? factor_max : static_cast<float>(wanted);
    }
  }
};

struct RoundOp : Alone {
  using In = float;
  using Out = Bf16;
  static constexpr int kIn = 1;
  static constexpr int kOut = 1;
  const float* in[1];
  Bf16* out[1];
  TESSERA_HOST_DEVICE void operator()(int64_t, int, const Common&, const float* v, Bf16* r) const {
    r[0] = RoundToBf16(v[0]);
  }
};

struct WidenOp : Alone {
  using In = Bf16;
  using Out = float;
  static constexpr int kIn = 1;
  static constexpr int kOut = 1;
  const Bf16* in[1];
  float* out[1];
  TESSERA_HOST_DEVICE void operator()(int64_t, int, const Common&, const Bf16* v, float* r) const {
    r[0] = tessera::Widen(v[0]);
  }
};

// Sums of columns.
struct SumOp {
  static constexpr int kSums = 1;
  static constexpr int kIn = 1;
  struct Column {};
  const float* x;
  bool adds;  // to what is there
  float* sums;
  TESSERA_HOST_DEVICE Column At(int64_t) const { return {}; }
  TESSERA_HOST_DEVICE void Load(int64_t i, float* v) const { v[0] = x[i]; }
  TESSERA_HOST_DEVICE void Add(const Column&, const float* v, double* total) const {
    total[0] += static_cast<double>(v[0]);
  }
  TESSERA_HOST_DEVICE void Finish(int64_t c, const double* total) const {
    StoreSum(total[0], adds, sums + c);
  }
};

// y = matrices of x, turned round, in squares that turn in shared memory, so that both sides move along
// their rows.
struct TransposeSquares {
  static constexpr int kSide = 32;
  static constexpr int kLanes = 8;
  static constexpr int kThreads = kSide * kLanes;
  static constexpr int kPhases = 2;
  static constexpr bool Reduces(int) { return false; }
  struct Shared {
    float square[kSide][kSide + 1];  // [row][column]; one more, against bank conflicts
  };
  struct Own {};

  int64_t rows, columns;  // of a matrix of x
  const float* x;
  float* y;

  // The blocks that a matrix takes.
  int64_t blocks() const { return CeilDiv(columns, kSide) * CeilDiv(rows, kSide); }

  template <int phase>
  TESSERA_HOST_DEVICE void Run(const Lane& lane, Shared& shared, Own&) const {
    // A grid's blocks fit 32 bits, in which a GPU divides several times as fast.
    const auto block = static_cast<uint32_t>(lane.block);
    const auto across = static_cast<uint32_t>(CeilDiv(columns, kSide));
    const auto down = static_cast<uint32_t>(CeilDiv(rows, kSide));
    const int64_t column = int64_t{block % across} * kSide;
    const int64_t row = int64_t{block / across % down} * kSide;
    const int64_t matrix = int64_t{block / across / down} * rows * columns;
    const int along = lane.thread % kSide;
    TESSERA_UNROLL for (int step = 0; step < kSide / kLanes; ++step) {
      const int over = lane.thread / kSide + step * kLanes;
      if constexpr (phase == 0) {
        const int64_t r = row + over, c = column + along;
        if (r < rows && c < columns) shared.square[over][along] = x[matrix + r * columns + c];
      } else {
        const int64_t r = row + along, c = column + over;
        if (r < rows && c < columns) y[matrix + c * rows + r] = shared.square[along][over];
      }
    }
  }
};

// y = x, matrices whose rows lie apart, in tiles along which neighbouring threads copy neighbours.
struct CopyTiles {
  static constexpr int kColumns = 32;
  static constexpr int kLanes = 8;
  static constexpr int kRows = 32;
  static constexpr int kThreads = kColumns * kLanes;
  static constexpr int kPhases = 1;
  static constexpr bool Reduces(int) { return false; }
  struct Shared {};
  struct Own {};

  int64_t rows, columns;
  const float* x;
  int64_t x_stride;
  float* y;
  int64_t y_stride;

  int64_t across() const { return CeilDiv(columns, kColumns); }
  int64_t blocks() const { return across() * CeilDiv(rows, kRows); }

  template <int phase>
  TESSERA_HOST_DEVICE void Run(const Lane& lane, Shared&, Own&) const {
    const auto block = static_cast<uint32_t>(lane.block);
    const auto tiles = static_cast<uint32_t>(CeilDiv(columns, kColumns));
    const int64_t column = int64_t{block % tiles} * kColumns + lane.thread % kColumns;
    const int64_t row = int64_t{block / tiles} * kRows + lane.thread / kColumns;
    if (column >= columns) return;
    TESSERA_UNROLL for (int step = 0; step < kRows / kLanes; ++step) {
      const int64_t r = row + step * kLanes;
      if (r < rows) y[r * y_stride + column] = x[r * x_stride + column];
    }
  }
};

// Optimizers. Inputs g, w and the states; outputs w and the states. `numbers` are read when the kernel
// runs. Those that RoundsToo write 2n bytes more.

// A map of elements in f32 for a rule with a learning rate.
template <int inputs, int outputs>
struct RatedFloats : Floats<inputs, outputs> {
  using Common = Rates;
  const OptimizerNumbers* numbers;
  float learning_rate, decay;
  TESSERA_HOST_DEVICE Rates Prepare(int64_t) const { return RatesOf(*numbers, learning_rate); }
};

// Reads 8n bytes, writes 4n.
struct PlainSgdOp : RatedFloats<2, 1> {
  TESSERA_HOST_DEVICE void operator()(int64_t, int, const Rates& of, const float* v,
                                      float* r) const {
    r[0] = PlainSgd(of, decay, v[0], v[1]);
  }
};

// Reads 12n bytes, writes 8n; so do the next two.
struct MomentumOp : RatedFloats<3, 2> {
  float mu;
  TESSERA_HOST_DEVICE void operator()(int64_t, int, const Rates& of, const float* v,
                                      float* r) const {
    const float g = of.scale * v[0] + decay * v[1];
    r[1] = mu * v[2] + g;
    r[0] = v[1] - of.eta * r[1];
  }
};

struct NesterovOp : RatedFloats<3, 2> {
  float mu;
  TESSERA_HOST_DEVICE void operator()(int64_t, int, const Rates& of, const float* v,
                                      float* r) const {
    const float g = of.scale * v[0] + decay * v[1];
    r[1] = mu * v[2] + g;
    r[0] = v[1] - of.eta * (g + mu * r[1]);
  }
};

struct AdagradOp : RatedFloats<3, 2> {
  float epsilon;
  TESSERA_HOST_DEVICE void operator()(int64_t, int, const Rates& of, const float* v,
                                      float* r) const {
    const float g = of.scale * v[0] + decay * v[1];
    r[1] = v[2] + g * g;
    r[0] = v[1] - of.eta * (g / (std::sqrt(r[1]) + epsilon));
  }
};

// The squares' numbers of RMSprop; both of its kernels begin so.
struct SquareMean {
  float alpha, alpha_rest, epsilon;

  // Moves `square` on by g, and divides g by its root.
  TESSERA_HOST_DEVICE float Divide(float g, float before, float* square) const {
    *square = alpha * before + alpha_rest * (g * g);
    return g / (std::sqrt(*square < 0.0f ? 0.0f : *square) + epsilon);
  }
};

struct RmsPropOp : RatedFloats<3, 2> {
  SquareMean mean;
  TESSERA_HOST_DEVICE void operator()(int64_t, int, const Rates& of, const float* v,
                                      float* r) const {
    const float g = of.scale * v[0] + decay * v[1];
    r[0] = v[1] - of.eta * mean.Divide(g, v[2], &r[1]);
  }
};

// With momentum, as of a heavy ball. Reads 16n bytes, writes 12n.
struct RmsHeavyOp : RatedFloats<4, 3> {
  SquareMean mean;
  float mu;
  TESSERA_HOST_DEVICE void operator()(int64_t, int, const Rates& of, const float* v,
                                      float* r) const {
    const float g = of.scale * v[0] + decay * v[1];
    const float along = mean.Divide(g, v[2], &r[1]);
    r[2] = mu * v[3] + along;
    r[0] = v[1] - of.eta * r[2];
  }
};

// Reads 16n bytes, writes 12n.
struct AdamOp : Floats<4, 3> {
  using Common = AdamCoefficients;
  const OptimizerNumbers* numbers;
  TESSERA_HOST_DEVICE AdamCoefficients Prepare(int64_t) const { return numbers->adam; }
  TESSERA_HOST_DEVICE void operator()(int64_t, int, const AdamCoefficients& c, const float* v,
                                      float* r) const {
    const float w = v[1];
    const float g = c.scale * v[0] + c.coupled_decay * w;
    r[1] = c.beta1 * v[2] + c.beta1_rest * g;
    r[2] = c.beta2 * v[3] + c.beta2_rest * (g * g);
    const float square = r[2] < 0.0f ? 0.0f : r[2];
    const float root = std::sqrt(square) * c.root_scale + c.epsilon;
    r[0] = (w - c.decoupled_decay * w) - c.step_size * (r[1] / root);
  }
};

}  // namespace tessera::cuda

#endif  // TESSERA_KERNELS_CUDA_VECTOR_KERNELS_H_
