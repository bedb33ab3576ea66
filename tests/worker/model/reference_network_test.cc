// The reference's gradients are the slopes of its own loss: without this, it and the network could
// be wrong alike.
#include "tests/worker/model/model_fixture.h"

namespace tessera {

TEST_CASE("every gradient of the reference is the slope of its loss, by central differences",
          "[reference]") {
  const std::string text =
      GENERATE(as<std::string>(), "5 linear:4 softmax", "5 linear-:4 norm softmax",
               "5 linear-:4 norm- softmax", "4 linear:6 norm relu linear:3 softmax",
               "4 norm relu linear:3 softmax", "6 linear:7 relu drop:0.4 linear-:3 softmax",
               "5 linear:6 norm relu drop:0.3 linear-:6 norm relu linear-:4 norm- softmax",
               "3 linear:4 sigmoid", "3 linear:5 norm relu linear:1 sigmoid",
               "2 5 4 conv:3:3x2:2x1:1 relu linear:3 softmax",
               "2 5 4 conv-:3:3 norm relu drop:0.3 conv:2:2 norm- linear:3 softmax",
               "2 5 6 norm conv:3:3:1:1 max:3:2:1 relu conv:4:2 avg softmax",
               "1 4 4 avg:2:1:1 conv:3:2:1:1 max linear:3 softmax",
               "4 5 6 conv:6:3:1:2:2:2 tanh conv-:3:2x1:1:0:1x2:3 linear:3 softmax",
               "4 3 4 conv:4:1 lnorm gelu gnorm:2 linear:5 lnorm silu gnorm:5 linear:3 softmax",
               "4 3 4 conv:6:2 gnorm-:3 leaky:0.2 lrn:3:2:0.75:1 lnorm- linear:3 softmax",
               "5 linear:4 gelu:tanh linear:6 logistic lnorm linear:3 softmax",
               "5 4 4 lrn:4:3:1.5:0.5 conv:6:3:1:1 lrn:5:1:0.75:2 max:2 linear:3 softmax");
  CAPTURE(text);
  const v1::Model model = ModelOf(text);
  const auto backend = Cpu();
  const auto network = NetworkOf(model, 7, *backend);
  ReferenceNetwork reference(model);
  SetRandom(*network, &reference, 3);
  const Rows rows(model, 7, 5);
  const StepKey key{1, 2, 3};
  reference.TrainLoss(rows.batch(), key, true);
  const double h = 1e-5;
  for (size_t p = 0; p < reference.parameters.size(); ++p) {
    const double norm = NormOf(reference.gradients[p]) + 1e-3;
    for (size_t i = 0; i < reference.parameters[p].size(); ++i) {
      CAPTURE(p, i);
      double& w = reference.parameters[p][i];
      const double saved = w;
      w = saved + h;
      const double above = reference.TrainLoss(rows.batch(), key, false);
      w = saved - h;
      const double below = reference.TrainLoss(rows.batch(), key, false);
      w = saved;
      REQUIRE(std::fabs((above - below) / (2 * h) - reference.gradients[p][i]) < 1e-5 * norm);
    }
  }
}

}  // namespace tessera
