#include "worker/model/gradient_clip.h"

#include <cmath>

#include "tests/worker/model/model_fixture.h"

namespace tessera {
namespace {

constexpr char kModel[] = "300 linear:400 norm relu linear:7 softmax";

double NormOf(absl::Span<const float> values) {
  double squares = 0;
  for (const float value : values) squares += double{value} * value;
  return std::sqrt(squares);
}

// The gradients of one minibatch, as they are and clipped.
struct Gradients {
  std::vector<float> before, after;
};

Gradients Clipped(double clip_norm, int threads) {
  const v1::Model model = ModelOf(kModel);
  const auto backend = Cpu(threads);
  const auto network = NetworkOf(model, 12, *backend);
  SetRandom(*network, nullptr, 3);
  const Rows data(model, 12, 5);
  REQUIRE(network->steps().TrainStep(data.batch(), {}).ok());
  const absl::Span<const float> gradients = network->arrays().gradients();
  Gradients got;
  got.before.assign(gradients.begin(), gradients.end());
  const auto clip = GradientClip::Create(clip_norm, *backend);
  REQUIRE(clip.ok());
  if (*clip != nullptr) (*clip)->Queue(network.get());
  REQUIRE(backend->Finish().ok());
  got.after.assign(gradients.begin(), gradients.end());
  return got;
}

}  // namespace

TEST_CASE("a gradient that is too long is shortened to the norm over all parameters", "[clip]") {
  const double norm = NormOf(Clipped(0, 1).before);
  REQUIRE(norm > 0.1);
  for (const double share : {0.001, 0.5, 0.999}) {
    const double clip_norm = share * norm;
    const Gradients got = Clipped(clip_norm, 1);
    CHECK(NormOf(got.after) == Approx(clip_norm).epsilon(1e-5));
    const double factor = static_cast<float>(clip_norm) / (norm + 1e-6);
    for (size_t i = 0; i < got.before.size(); ++i) {
      REQUIRE(std::fabs(got.after[i] - factor * got.before[i]) <= 2e-7 * std::fabs(got.before[i]));
    }
    for (const int threads : {2, 3}) {
      const Gradients other = Clipped(clip_norm, threads);
      if (other.before == got.before) CHECK(other.after == got.after);
    }
  }
}

TEST_CASE("a gradient that is short enough keeps its bits", "[clip]") {
  const double norm = NormOf(Clipped(0, 1).before);
  const Gradients got = Clipped(1.001 * norm, 1);
  CHECK(got.after == got.before);
  CHECK(Clipped(0, 1).after == got.before);
}

}  // namespace tessera
