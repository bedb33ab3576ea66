// The two halves of a model on a GPU against the whole on the same device and on the CPU. Runs on a GPU,
// and on those that the host plays.
#include <algorithm>
#include <cmath>

#include "kernels/cuda/backend.h"
#include "tests/worker/model/counting_backend.h"
#include "tests/worker/model/halves.h"
#include "worker/model/local_optimizer.h"

namespace tessera {
namespace {

constexpr int64_t kBatch = 12;

std::unique_ptr<Backend> Device() {
  DeviceOptions options;
  options.cudnn_if_slower = true;  // So few channels would be products' alone.
  auto backend = CreateCudaBackend(0, options);
  INFO(backend.status());
  REQUIRE(backend.ok());
  return *std::move(backend);
}

// As a share of the largest.
double Difference(absl::Span<const float> a, absl::Span<const float> b) {
  REQUIRE(a.size() == b.size());
  double most = 0, largest = 1e-30;
  for (size_t i = 0; i < a.size(); ++i) {
    most = std::max<double>(most, std::fabs(a[i] - b[i]));
    largest = std::max<double>(largest, std::fabs(b[i]));
  }
  return most / largest;
}

const std::vector<std::string>& Models() {
  static const std::vector<std::string> models = {
      "1 8 8 conv-:16:3:1:1 norm relu max:2 conv-:32:3:1:1 norm relu max:2 linear:10 softmax",
      "2 5 4 conv:4:3:1:1 norm relu max:2 drop:0.3 linear:9 norm relu drop:0.4 linear:5 softmax",
      "1 5 4 conv-:3:3x2:2x1:1 relu avg linear:6 norm relu linear:4 softmax",
      "2 5 4 relu conv:4:3 drop:0.2 linear:6 relu linear:1 sigmoid"};
  return models;
}

Network::Options OptionsOf(Precision precision = Precision::kF32) {
  Network::Options options;
  options.batch_max = kBatch;
  options.precision = precision;
  options.fetches_gradients = true;
  return options;
}

v1::Optimizer Momentum() {
  v1::Optimizer sgd;
  sgd.mutable_sgd()->set_learning_rate(0.05);
  sgd.mutable_sgd()->set_momentum(0.9);
  return sgd;
}

std::unique_ptr<Network> WholeOf(const v1::Model& model, const Network::Options& options,
                                 Backend& backend) {
  auto network = Network::Create(model, options, backend);
  REQUIRE(network.ok());
  SetRandom(**network, nullptr, 5);
  (*network)->arrays().SendParameters();
  return *std::move(network);
}

void CheckHalves(const std::string& text, Precision precision, double tolerance) {
  CAPTURE(text);
  const v1::Model model = ModelOf(text);
  const auto cpu = Cpu(), device = Device(), front_device = Device(), back_device = Device();
  const auto want = WholeOf(model, OptionsOf(), *cpu);
  const auto same = WholeOf(model, OptionsOf(precision), *device);
  const auto front = FrontOf(model, OptionsOf(precision), *front_device);
  const auto back = BackOf(model, OptionsOf(precision), *back_device);
  CopyParameters(*want, front.get());
  CopyParameters(*want, back.get());
  const auto want_optimizer = *LocalOptimizer::Create(Momentum(), *want, *cpu),
             same_optimizer = *LocalOptimizer::Create(Momentum(), *same, *device),
             front_optimizer = *LocalOptimizer::Create(Momentum(), *front, *front_device),
             back_optimizer = *LocalOptimizer::Create(Momentum(), *back, *back_device);
  // Often enough that kernels are repeated from what was recorded.
  for (uint64_t step = 0; step < 16; ++step) {
    CAPTURE(step);
    const Rows data(model, kBatch - (step % 5 == 4 ? 3 : 0), 10 + static_cast<unsigned>(step));
    const StepKey key{3, step, 1};
    if (step % 4 == 3) {
      const Rows dropped(model, kBatch, 90 + static_cast<unsigned>(step));
      REQUIRE(front->front().BeginForward(dropped.batch(), {3, step, 2}).ok());
      if (step % 8 == 3) REQUIRE(front->front().Activations().ok());
    }
    const auto want_loss = want->steps().TrainStep(data.batch(), key),
               same_loss = same->steps().TrainStep(data.batch(), key);
    REQUIRE((want_loss.ok() && same_loss.ok()));
    const LossAndCount got = TrainHalves(*front, *back, data.batch(), key);
    CHECK(got.loss == same_loss->loss);
    CHECK(got.correct == same_loss->correct);
    if (step < 6) CHECK(got.loss == Approx(want_loss->loss).epsilon(tolerance));
    REQUIRE((device->Finish().ok() && front_device->Finish().ok() && back_device->Finish().ok()));
    for (int i = 0; i < static_cast<int>(want->shape().parameters.size()); ++i) {
      CAPTURE(want->shape().parameters[i].name);
      CHECK(GradientOf(*front, *back, i) == same->arrays().gradient(i));
    }
    if (step == 3) {
      CHECK(Difference(same->arrays().gradients(), want->arrays().gradients()) < 100 * tolerance);
    }
    for (const auto& optimizer :
         {&want_optimizer, &same_optimizer, &front_optimizer, &back_optimizer}) {
      REQUIRE((*optimizer)->Step({}).ok());
    }
  }
}

}  // namespace

TEST_CASE("halves on the device train as the whole does, bit for bit, and as the CPU",
          "[device][half]") {
  for (const std::string& text : Models()) CheckHalves(text, Precision::kF32, 1e-5);
}

TEST_CASE("halves in tf32 and bf16 are the whole in tf32 and bf16", "[device][half]") {
  CheckHalves(Models()[0], Precision::kTf32, 5e-2);
  CheckHalves(Models()[1], Precision::kBf16, 2e-1);
}

TEST_CASE("the gradients of batches that add come to the host behind the last one",
          "[device][half]") {
  const Precision precision = GENERATE(Precision::kF32, Precision::kBf16);
  // The last batch says that it is, or the caller finds out that no other comes.
  const bool says_last = GENERATE(true, false);
  for (const std::string& text : Models()) {
    CAPTURE(text, says_last, precision == Precision::kBf16);
    const v1::Model model = ModelOf(text);
    const auto device = Device();
    const auto whole = WholeOf(model, OptionsOf(precision), *device);
    const auto front = FrontOf(model, OptionsOf(precision), *device);
    const auto back = BackOf(model, OptionsOf(precision), *device);
    const auto parameters = WholeOf(model, OptionsOf(), *device);
    CopyParameters(*parameters, front.get());
    CopyParameters(*parameters, back.get());
    for (uint64_t step = 0; step < 9; ++step) {
      CAPTURE(step);
      std::vector<float> sum(back->arrays().gradients().size());
      const std::vector<float> before(back->arrays().gradients().begin(),
                                      back->arrays().gradients().end());
      // No parameter moves here.
      if (step > 0) back->pass().KeepRounded();
      // As many that a batch's place in memory is now the first's, now another's.
      for (uint64_t sender = 0; sender < 4; ++sender) {
        const Rows data(model, kBatch - (step % 4 == 3 ? 2 : 0),
                        static_cast<unsigned>(10 * step + sender));
        const StepKey key{3, step, sender};
        const auto want = whole->steps().TrainStep(data.batch(), key);
        REQUIRE(want.ok());
        const bool more = sender < 3 || !says_last;
        CHECK(TrainHalves(*front, *back, data.batch(), key, sender > 0, more).loss == want->loss);
        REQUIRE(device->Finish().ok());
        if (more) CHECK(back->arrays().gradients() == absl::MakeConstSpan(before));
        for (size_t i = 0; i < back->shape().parameters.size(); ++i) {
          const absl::Span<const float> one =
              whole->arrays().gradient(back->plan().parameter_begin + static_cast<int>(i));
          const int64_t offset = back->plan().parameter_offsets[i];
          for (size_t k = 0; k < one.size(); ++k) sum[offset + k] += one[k];
        }
      }
      if (!says_last) back->arrays().FetchGradients();
      REQUIRE(device->Finish().ok());
      CHECK(back->arrays().gradients() == absl::MakeConstSpan(sum));
    }
  }
}

TEST_CASE("halves on the device allocate at once, and for the first batches", "[device][half]") {
  const auto device = Device();
  CountingBackend front_backend(*device), back_backend(*device);
  const v1::Model model = ModelOf(Models()[1]);
  const auto front = FrontOf(model, OptionsOf(), front_backend);
  const auto back = BackOf(model, OptionsOf(), back_backend);
  front->arrays().SetInitialValues(1);
  back->arrays().SetInitialValues(1);
  int64_t calls = 0;
  for (uint64_t step = 0; step < 9; ++step) {
    const Rows data(model, kBatch, 1);
    TrainHalves(*front, *back, data.batch(), {0, step, 0}, step % 2 == 1, step % 2 == 0);
    // Batches have three places.
    if (step == 2) calls = front_backend.counting.calls + back_backend.counting.calls;
  }
  CHECK(front_backend.counting.calls + back_backend.counting.calls == calls);
}

TEST_CASE("a front may be given gradients as fast as it takes them", "[device][half]") {
  const auto device = Device(), other_device = Device();
  for (const std::string& text : Models()) {
    CAPTURE(text);
    const v1::Model model = ModelOf(text);
    const auto parameters = WholeOf(model, OptionsOf(), *device);
    const auto fast = FrontOf(model, OptionsOf(), *device),
               slow = FrontOf(model, OptionsOf(), *other_device);
    CopyParameters(*parameters, fast.get());
    CopyParameters(*parameters, slow.get());
    const auto fast_optimizer = *LocalOptimizer::Create(Momentum(), *fast, *device),
               slow_optimizer = *LocalOptimizer::Create(Momentum(), *slow, *other_device);
    // The same memory each time.
    std::vector<float> gradient;
    Rows data(model, kBatch, 1);
    for (uint64_t step = 0; step < 12; ++step) {
      const Rows next(model, kBatch, 10 + static_cast<unsigned>(step));
      std::copy(next.inputs.begin(), next.inputs.end(), data.inputs.begin());
      gradient.assign(kBatch * fast->shape().outputs(), 0.1f * static_cast<float>(step));
      REQUIRE(fast->front().BeginForward(data.batch(), {3, step, 1}).ok());
      REQUIRE(fast->front().FinishStep(gradient).ok());
      REQUIRE(fast_optimizer->Step({}).ok());
      REQUIRE(slow->front().BeginForward(data.batch(), {3, step, 1}).ok());
      REQUIRE(slow->front().Activations().ok());
      REQUIRE(slow->front().FinishStep(gradient).ok());
      REQUIRE(slow_optimizer->Step({}).ok());
      REQUIRE(other_device->Finish().ok());
    }
    fast->arrays().FetchParameters();
    slow->arrays().FetchParameters();
    REQUIRE((device->Finish().ok() && other_device->Finish().ok()));
    CHECK(fast->arrays().parameters() == slow->arrays().parameters());
  }
}

TEST_CASE("an optimizer that follows the halves' gradients leaves what one behind all of them does",
          "[device][half]") {
  const auto device = Device();
  for (const std::string& text : Models()) {
    CAPTURE(text);
    const v1::Model model = ModelOf(text);
    Network::Options options;
    options.batch_max = kBatch;
    const auto parameters = WholeOf(model, options, *device);
    struct Pair {
      std::unique_ptr<Network> network;
      std::unique_ptr<LocalOptimizer> optimizer;
    };
    const auto make = [&](bool is_front) {
      Pair pair;
      pair.network = is_front ? FrontOf(model, options, *device) : BackOf(model, options, *device);
      CopyParameters(*parameters, pair.network.get());
      pair.optimizer = *LocalOptimizer::Create(Momentum(), *pair.network, *device);
      return pair;
    };
    const Pair front = make(true), back = make(false), plain_front = make(true),
               plain_back = make(false);
    std::vector<float> activations, gradient;
    for (uint64_t step = 0; step < 12; ++step) {
      CAPTURE(step);
      double loss = 0;
      Update update;
      update.number = step + 1;
      front.optimizer->Begin(update);
      back.optimizer->Begin(update);
      for (uint64_t sender = 0; sender < 2; ++sender) {
        const Rows data(model, kBatch, static_cast<unsigned>(10 * step + sender));
        const StepKey key{3, step, sender};
        // The front sends its batch ahead every other time.
        if (step % 2 == 0) {
          REQUIRE(front.network->front().BeginForward(data.batch(), key).ok());
        } else {
          REQUIRE(front.network->input().SendNext(data.batch()).ok());
          REQUIRE(front.network->front().BeginForwardOnNext(key).ok());
        }
        const auto sent = front.network->front().Activations();
        REQUIRE(sent.ok());
        activations.assign(sent->begin(), sent->end());
        Batch received = Received(data.batch(), activations);
        received.adds = sender > 0;
        received.more = sender < 1;
        REQUIRE(back.network->steps().BeginStep(received, key, back.optimizer.get()).ok());
        const auto ended = back.network->steps().EndStep();
        const auto returned = back.network->back().InputGradient();
        REQUIRE((ended.ok() && returned.ok()));
        loss = ended->loss;
        gradient.assign(returned->begin(), returned->end());
        back.network->back().Finish();
        // The front's own updates are of each of its steps; here of the last.
        if (sender == 1) {
          REQUIRE(front.network->front().FinishStep(gradient, front.optimizer.get()).ok());
        }
        const double want = TrainHalves(*plain_front.network, *plain_back.network, data.batch(),
                                        key, sender > 0, sender < 1)
                                .loss;
        CHECK(loss == want);
      }
      REQUIRE(plain_front.optimizer->Step(update).ok());
      REQUIRE(plain_back.optimizer->Step(update).ok());
      for (const Pair* const pair : {&front, &back, &plain_front, &plain_back}) {
        pair->network->arrays().FetchParameters();
      }
      REQUIRE(device->Finish().ok());
      REQUIRE(front.network->arrays().parameters() == plain_front.network->arrays().parameters());
      REQUIRE(back.network->arrays().parameters() == plain_back.network->arrays().parameters());
    }
  }
}

}  // namespace tessera
