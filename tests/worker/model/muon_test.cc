// Muon against the code of its authors (muon_values.h), and what it is for: steps of even size in all directions.
#include "worker/model/muon.h"

#include <cmath>
#include <numeric>

#include "common/rule/optimizer.h"
#include "tests/worker/model/model_fixture.h"
#include "tests/worker/model/muon_values.h"
#include "worker/model/local_optimizer.h"

namespace tessera {
namespace {

v1::Optimizer MuonOf(double learning_rate, double momentum, double decay) {
  v1::Optimizer optimizer;
  v1::Muon& muon = *optimizer.mutable_muon();
  muon.set_learning_rate(learning_rate);
  muon.set_momentum(momentum);
  muon.set_weight_decay(decay);
  muon.set_iterations(5);
  muon.mutable_adamw()->set_learning_rate(0.01);
  muon.mutable_adamw()->set_beta1(0.8);
  muon.mutable_adamw()->set_beta2(0.9);
  muon.mutable_adamw()->set_epsilon(1e-3);
  muon.mutable_adamw()->set_weight_decay(0.1);
  return optimizer;
}

// As in muon_values.py.
float Initial(int64_t i) { return (static_cast<float>(i * 5 % 8) - 3.5f) / 4; }
float Gradient(int64_t update, int64_t i) {
  return (static_cast<float>((update * 37 + i * 17 + update * i * 5) % 64) - 31.5f) / 32;
}

Update UpdateAt(uint64_t number) {
  Update update;
  update.number = number;
  update.rate = 1.0f / static_cast<float>(number);
  return update;
}

}  // namespace

TEST_CASE("matrices move as in Muon's own code, and vectors by AdamW", "[muon]") {
  const auto backend = Cpu(GENERATE(1, 2, 3));
  const auto network =
      NetworkOf(ModelOf("7 linear:4 relu linear:9 relu linear:9 softmax"), 2, *backend);
  NetworkArrays& arrays = network->arrays();
  const v1::Optimizer muon = MuonOf(0.05, 0.9, 0.1);
  auto optimizer = LocalOptimizer::Create(muon, *network, *backend);
  REQUIRE(optimizer.ok());
  CHECK_FALSE((*optimizer)->follows_gradients());
  const auto rule = MakeOptimizer(AdamWOf(muon.muon()));
  const size_t count = network->shape().parameters.size();
  std::vector<std::vector<float>> vectors(count), means(count), squares(count);
  for (size_t p = 0; p < count; ++p) {
    const absl::Span<float> w = arrays.parameter(static_cast<int>(p));
    for (size_t i = 0; i < w.size(); ++i) w[i] = Initial(static_cast<int64_t>(i));
    vectors[p].assign(w.begin(), w.end());
    means[p].resize(w.size());
    squares[p].resize(w.size());
  }
  for (uint64_t number = 1; number <= 4; ++number) {
    for (size_t p = 0; p < count; ++p) {
      float* const gradient = arrays.GradientAt(static_cast<int>(p));
      std::vector<float> g(vectors[p].size());
      for (size_t i = 0; i < g.size(); ++i) gradient[i] = g[i] = Gradient(number, i);
      float* const states[] = {means[p].data(), squares[p].data()};
      rule->Apply(UpdateAt(number), g.data(), vectors[p].data(), vectors[p].data(), states,
                  g.size());
    }
    REQUIRE((*optimizer)->Step(UpdateAt(number)).ok());
  }
  const std::vector<std::vector<double>> want = MuonValues();
  for (size_t p = 0; p < count; ++p) {
    CAPTURE(network->shape().parameters[p].name);
    const absl::Span<float> w = arrays.parameter(static_cast<int>(p));
    if (network->shape().parameters[p].is_vector) {
      CHECK(w == absl::MakeConstSpan(vectors[p]));
      continue;
    }
    REQUIRE(w.size() == want[p / 2].size());
    for (size_t i = 0; i < w.size(); ++i) REQUIRE(std::fabs(w[i] - want[p / 2][i]) <= 2e-5);
  }
}

TEST_CASE("a step of a matrix is nearly as long in every direction", "[muon]") {
  const auto backend = Cpu();
  // A convolution's weight is a matrix [channels, 18].
  const auto network =
      NetworkOf(ModelOf("2 6 6 conv:12:3 relu linear:40 relu linear:5 softmax"), 2, *backend);
  auto optimizer = LocalOptimizer::Create(MuonOf(1, 0.95, 0), *network, *backend);
  REQUIRE(optimizer.ok());
  std::mt19937 random(3);
  std::normal_distribution<float> normal;
  for (int p = 0; p < static_cast<int>(network->shape().parameters.size()); ++p) {
    float* const gradient = network->arrays().GradientAt(p);
    const int64_t size = network->shape().parameters[p].size();
    for (int64_t i = 0; i < size; ++i) gradient[i] = normal(random);
    for (float& w : network->arrays().parameter(p)) w = 0;
  }
  REQUIRE((*optimizer)->Step({}).ok());
  for (int p = 0; p < static_cast<int>(network->shape().parameters.size()); p += 2) {
    const ParameterSpec& spec = network->shape().parameters[p];
    CAPTURE(spec.name, spec.rows, spec.columns);
    const absl::Span<float> step = network->arrays().parameter(p);
    const bool tall = spec.rows > spec.columns;
    const double scale = tall ? std::sqrt(double(spec.rows) / double(spec.columns)) : 1;
    const int64_t side = std::min(spec.rows, spec.columns);
    const int64_t length = std::max(spec.rows, spec.columns);
    for (int trial = 0; trial < 20; ++trial) {
      std::vector<double> v(side);
      double norm = 0;
      for (double& x : v) {
        x = normal(random);
        norm += x * x;
      }
      double squares = 0;
      for (int64_t l = 0; l < length; ++l) {
        double sum = 0;
        for (int64_t s = 0; s < side; ++s) {
          sum += v[s] * step[tall ? l * spec.columns + s : s * spec.columns + l];
        }
        squares += sum * sum;
      }
      const double stretch = std::sqrt(squares / norm) / scale;
      CHECK(stretch > 0.6);
      CHECK(stretch < 1.25);
    }
  }
}

TEST_CASE("muon's memory is its states and room for the largest matrix", "[muon]") {
  const auto plan = PlanOf(ModelOf("7 linear:4 relu linear:9 softmax"));
  REQUIRE(plan.ok());
  // [4, 7] and [9, 4]: two matrices of 36 values, two products of 16, and a number.
  CHECK(Muon::MemoryNeeded(*plan) == 4 * (2 * 36 + 2 * 16 + 1));
  CHECK(LocalOptimizer::MemoryNeeded(MuonOf(1, 0.9, 0), *plan) ==
        4 * 2 * plan->parameter_floats + Muon::MemoryNeeded(*plan));
}

}  // namespace tessera
