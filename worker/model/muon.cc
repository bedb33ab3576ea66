#include "worker/model/muon.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

namespace tessera {
namespace {

// The quintic's coefficients, of X, A X and A A X.
constexpr float kFirst = 3.4445f, kThird = -4.7750f, kFifth = 2.0315f;

// Values of the largest matrix, and of the largest A.
struct Room {
  int64_t matrix = 0, product = 0;
};

std::vector<bool> MatricesOf(const NetworkPlan& plan) {
  std::vector<bool> takes(plan.shape.parameters.size());
  for (const StagePlan& stage : plan.stages) {
    // The embeddings' weights are no products' and are left to AdamW, as Muon's authors advise.
    if (stage.kind->is_product && stage.weight >= 0) takes[stage.weight] = true;
  }
  return takes;
}

Room RoomOf(const NetworkPlan& plan) {
  const std::vector<bool> takes = MatricesOf(plan);
  Room room;
  for (size_t i = 0; i < takes.size(); ++i) {
    if (!takes[i]) continue;
    const ParameterSpec& spec = plan.shape.parameters[i];
    const int64_t side = std::min(spec.rows, spec.columns);
    room.matrix = std::max(room.matrix, spec.size());
    room.product = std::max(room.product, side * side);
  }
  return room;
}

}  // namespace

Muon::Muon(const v1::Muon& keys, const NetworkPlan& plan, Backend& backend)
    : keys_(keys), backend_(backend), takes_(MatricesOf(plan)) {
  for (const ParameterSpec& spec : plan.shape.parameters) {
    shapes_.push_back({spec.rows, spec.columns});
  }
}

absl::StatusOr<std::unique_ptr<Muon>> Muon::Create(const v1::Muon& keys, const NetworkPlan& plan,
                                                   Backend& backend) {
  std::unique_ptr<Muon> muon(new Muon(keys, plan, backend));
  const Room room = RoomOf(plan);
  Memory& memory = backend.memory();
  TESSERA_ASSIGN_OR_RETURN(muon->first_, Buffer<float>::Create(memory, room.matrix));
  TESSERA_ASSIGN_OR_RETURN(muon->second_, Buffer<float>::Create(memory, room.matrix));
  TESSERA_ASSIGN_OR_RETURN(muon->product_, Buffer<float>::Create(memory, room.product));
  TESSERA_ASSIGN_OR_RETURN(muon->square_, Buffer<float>::Create(memory, room.product));
  TESSERA_ASSIGN_OR_RETURN(muon->factor_, Buffer<float>::Create(memory, 1));
  return muon;
}

int64_t Muon::MemoryNeeded(const NetworkPlan& plan) {
  const Room room = RoomOf(plan);
  return (2 * room.matrix + 2 * room.product + 1) * static_cast<int64_t>(sizeof(float));
}

float* Muon::Orthogonalize(const MatrixShape& shape, float* matrix) {
  VectorKernel& vector = backend_.vector();
  LinearKernel<float>& linear = backend_.linear();
  const int64_t n = shape.size();
  constexpr float kEpsilon = 1e-7f;
  vector.NormFactor(n, matrix, {1, kEpsilon, std::numeric_limits<float>::infinity()},
                    factor_.data());
  vector.ScaleBy(n, factor_.data(), matrix);
  const bool turns = shape.rows > shape.columns;
  const int64_t side = std::min(shape.rows, shape.columns);
  const int64_t length = std::max(shape.rows, shape.columns);
  float *x = matrix, *y = first_.data();
  if (turns) {
    vector.Transpose(1, shape, matrix, first_.data());
    x = first_.data();
    y = second_.data();
  }
  float *const a = product_.data(), *const aa = square_.data();
  for (int64_t i = 0; i < keys_.iterations(); ++i) {
    // A = X X^T: the linear kernel multiplies by the transpose of what it takes for a weight.
    linear.Forward({side, length, side}, x, x, nullptr, a);
    // A is symmetric.
    linear.Forward({side, side, side}, a, a, nullptr, aa);
    // B = -4.7750 A + 2.0315 A A in the place of A A.
    vector.Blend(side * side, kThird, a, kFifth, aa);
    // X becomes B X + 3.4445 X. The input gradient is the product with a weight that is not transposed.
    linear.InputGradient({side, length, side}, aa, x, y);
    vector.Axpy(n, kFirst, x, y);
    std::swap(x, y);
  }
  if (!turns) return x;
  float* const turned = x == first_.data() ? second_.data() : first_.data();
  vector.Transpose(1, {side, length}, x, turned);
  return turned;
}

void Muon::Step(int i, float rate, float* gradient, float* momentum, float* weight) {
  VectorKernel& vector = backend_.vector();
  const MatrixShape& shape = shapes_[i];
  const auto mu = static_cast<float>(keys_.momentum());
  const double eta = keys_.learning_rate() * rate;
  const double ratio = static_cast<double>(shape.rows) / static_cast<double>(shape.columns);
  vector.Blend(shape.size(), 1, gradient, mu, momentum);
  // Nesterov's step: along the gradient and the momentum that has just taken it in.
  vector.Axpy(shape.size(), mu, momentum, gradient);
  const float* const along = Orthogonalize(shape, gradient);
  // Weight decay and step in one pass over the weight.
  vector.Blend(shape.size(), static_cast<float>(-eta * std::sqrt(std::max(1.0, ratio))), along,
               static_cast<float>(1 - eta * keys_.weight_decay()), weight);
}

}  // namespace tessera
