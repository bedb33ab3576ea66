// A model in two networks, which pass activations and their gradient to each other.
#ifndef TESSERA_TESTS_WORKER_MODEL_HALVES_H_
#define TESSERA_TESTS_WORKER_MODEL_HALVES_H_

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "tests/worker/model/model_fixture.h"

namespace tessera {

// The first linear layer with parameters in front of it.
inline int CutOf(const v1::Model& model) {
  bool learns = false;
  for (int i = 0; i < model.layers_size(); ++i) {
    if (model.layers(i).has_linear() && learns) return i;
    learns = learns || model.layers(i).has_linear() || model.layers(i).has_conv2d();
  }
  FAIL("the model has no place for a cut");
  return 0;
}

inline std::unique_ptr<Network> FrontOf(const v1::Model& model, Network::Options options,
                                        Backend& backend) {
  options.layers = LayerRange{0, CutOf(model)};
  auto network = Network::Create(model, options, backend);
  INFO(network.status());
  REQUIRE(network.ok());
  return *std::move(network);
}

inline std::unique_ptr<Network> BackOf(const v1::Model& model, Network::Options options,
                                       Backend& backend) {
  options.layers = LayerRange{CutOf(model), model.layers_size()};
  auto network = Network::Create(model, options, backend);
  INFO(network.status());
  REQUIRE(network.ok());
  return *std::move(network);
}

// The half's parameters become those of the whole model, whose host has them.
inline void CopyParameters(Network& whole, Network* half) {
  for (size_t i = 0; i < half->shape().parameters.size(); ++i) {
    const int at = half->plan().parameter_begin + static_cast<int>(i);
    const absl::Span<const float> from = whole.arrays().parameter(at);
    REQUIRE(whole.shape().parameters[at].name == half->shape().parameters[i].name);
    std::copy(from.begin(), from.end(), half->arrays().parameter(static_cast<int>(i)).begin());
  }
  half->arrays().SendParameters();
}

// What a back is given of rows whose activations a front has sent. The vectors stay the caller's.
inline Batch Received(const Batch& rows, const std::vector<float>& activations) {
  Batch batch = rows;
  batch.inputs = activations.data();
  return batch;
}

// One step of both. `adds` and `more` as in Batch.
inline LossAndCount TrainHalves(Network& front, Network& back, const Batch& rows,
                                const StepKey& key, bool adds = false, bool more = false) {
  Batch inputs = rows;
  inputs.labels = nullptr;
  inputs.targets = nullptr;
  REQUIRE(front.front().BeginForward(inputs, key).ok());
  const auto sent = front.front().Activations();
  REQUIRE(sent.ok());
  REQUIRE(static_cast<int64_t>(sent->size()) == rows.rows * back.shape().inputs());
  const std::vector<float> activations(sent->begin(), sent->end());
  Batch received = Received(rows, activations);
  received.adds = adds;
  received.more = more;
  const auto loss = back.steps().TrainStep(received, key);
  INFO(loss.status());
  REQUIRE(loss.ok());
  const auto returned = back.back().InputGradient();
  REQUIRE(returned.ok());
  back.back().Finish();
  // The caller's memory may be reused at once.
  std::vector<float> gradient(returned->begin(), returned->end());
  REQUIRE(front.front().FinishStep(gradient).ok());
  std::fill(gradient.begin(), gradient.end(), 1e30f);
  return *loss;
}

// The gradient of a parameter of the whole model, from the half that has it.
inline absl::Span<const float> GradientOf(const Network& front, const Network& back, int i) {
  const int begin = back.plan().parameter_begin;
  return i < begin ? front.arrays().gradient(i) : back.arrays().gradient(i - begin);
}

}  // namespace tessera

#endif  // TESSERA_TESTS_WORKER_MODEL_HALVES_H_
