// Networks whose weights step by the product that their gradient is, on a GPU that has such steps or is played so. On
// others everything goes by gradients, and is to be the CPU's all the same.
#include <algorithm>
#include <cmath>

#include "kernels/cuda/backend.h"
#include "tests/worker/model/model_fixture.h"
#include "worker/model/local_optimizer.h"

namespace tessera {
namespace {

constexpr int64_t kRows = 20;
constexpr char kModel[] = "16 linear:24 relu linear-:40 norm relu linear:8 softmax";
constexpr int kWeights[] = {0, 2, 5};  // of linear layers, among its parameters

std::unique_ptr<Backend> Device(int64_t rows_max = 1024) {
  DeviceOptions options;
  options.product_step_size_min = 0;
  options.product_step_rows_max = rows_max;
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

// An optimizer, and in which way each parameter came to it.
class Watched final : public GradientWork {
 public:
  explicit Watched(LocalOptimizer* optimizer) : optimizer_(*optimizer) {}
  void Queue(int i) override {
    by_gradient.push_back(i);
    optimizer_.Queue(i);
  }
  bool QueueProduct(int i, const WeightProduct& product) override {
    offered.push_back(i);
    if (!optimizer_.QueueProduct(i, product)) return false;
    by_product.push_back(i);
    return true;
  }
  std::vector<int> by_gradient, offered, by_product;

 private:
  LocalOptimizer& optimizer_;
};

struct Trained {
  Trained(Backend& backend, Precision precision, bool fetches_gradients = false)
      : backend(backend), model(ModelOf(kModel)) {
    Network::Options options;
    options.batch_max = kRows;
    options.precision = precision;
    options.fetches_gradients = fetches_gradients;
    auto made = Network::Create(model, options, backend);
    REQUIRE(made.ok());
    network = *std::move(made);
    v1::Optimizer sgd;
    sgd.mutable_sgd()->set_learning_rate(0.05);
    sgd.mutable_sgd()->set_weight_decay(0.01);
    optimizer = *LocalOptimizer::Create(sgd, *network, backend);
  }
  // From the same parameters each time; batches differ from step to step. What it leaves.
  std::vector<float> Steps(int count, bool follows) {
    SetRandom(*network, nullptr, 5);
    network->arrays().SendParameters();
    losses.clear();
    for (int step = 0; step < count; ++step) {
      const Rows batch(model, kRows, 10 + static_cast<unsigned>(step));
      Update update;
      update.number = static_cast<uint64_t>(step) + 1;
      update.rate = 1.0f / static_cast<float>(1 + step);
      if (step > 0) network->pass().KeepRounded();
      if (follows) optimizer->Begin(update);
      REQUIRE(
          network->steps().BeginStep(batch.batch(), {}, follows ? optimizer.get() : nullptr).ok());
      if (!follows) REQUIRE(optimizer->Step(update).ok());
      const auto loss = network->steps().EndStep();
      REQUIRE(loss.ok());
      losses.push_back(loss->loss);
    }
    network->arrays().FetchParameters();
    REQUIRE(backend.Finish().ok());
    return {network->arrays().parameters().begin(), network->arrays().parameters().end()};
  }

  Backend& backend;
  const v1::Model model;
  std::unique_ptr<Network> network;
  std::unique_ptr<LocalOptimizer> optimizer;
  std::vector<double> losses;
};

}  // namespace

TEST_CASE("steps by products are the CPU's, within bf16's roundings", "[device]") {
  const auto cpu = Cpu(), device = Device();
  Trained want(*cpu, Precision::kF32), got(*device, Precision::kBf16);
  const std::vector<float> got_values = got.Steps(8, /*follows=*/true);
  const std::vector<float> want_values = want.Steps(8, /*follows=*/false);
  if (device->shortcuts().product_steps == 0) WARN("no steps by products on " << device->gpu());
  for (int step = 0; step < 8; ++step) {
    CHECK(got.losses[step] == Approx(want.losses[step]).epsilon(5e-2));
  }
  CHECK(Difference(got_values, want_values) < 5e-2);
}

TEST_CASE("steps by products that are repeated leave what the first ones left", "[device]") {
  const auto device = Device();
  Trained trained(*device, Precision::kBf16);
  // Twelve: each place of batches and sums comes twice, which queues and records, but for the step that rounds: that
  // one is recorded in the second round.
  const std::vector<float> first = trained.Steps(12, true);
  const std::vector<double> losses = trained.losses;
  CHECK(trained.Steps(12, true) == first);
  CHECK(trained.losses == losses);
  const int64_t queued = device->shortcuts().product_steps;
  CHECK(trained.Steps(12, true) == first);
  CHECK(device->shortcuts().product_steps == queued);
}

TEST_CASE("where weights do not step by products steps are those by gradients", "[device]") {
  const auto refusing = Device(/*rows_max=*/0), other = Device(/*rows_max=*/0), taking = Device();
  Trained refused(*refusing, Precision::kBf16), behind(*other, Precision::kBf16),
      taken(*taking, Precision::kBf16);
  const std::vector<float> by_gradient = refused.Steps(8, /*follows=*/true);
  CHECK(by_gradient == behind.Steps(8, /*follows=*/false));
  CHECK(refusing->shortcuts().product_steps == 0);
  // Sums in another order, which later round to another bf16 now and then. In one step nothing else differs: layers
  // before one that has moved see the weight that it had.
  CHECK(Difference(taken.Steps(1, true), refused.Steps(1, true)) < 1e-5);
  CHECK(Difference(taken.Steps(8, true), by_gradient) < 1e-2);
}

TEST_CASE("weights of linear layers in bf16 are offered as products, and nothing else is",
          "[device]") {
  const auto device = Device();
  const std::vector<int> weights(std::rbegin(kWeights), std::rend(kWeights));
  const auto step = [&](Trained& trained, Watched& watched, const Batch& batch) {
    trained.optimizer->Begin({});
    REQUIRE(trained.network->steps().BeginStep(batch, {}, &watched).ok());
    REQUIRE(trained.network->steps().EndPiece().ok());
  };
  const Rows rows(ModelOf(kModel), kRows, 1);
  {
    Trained trained(*device, Precision::kBf16);
    Watched watched(trained.optimizer.get());
    step(trained, watched, rows.batch());
    CHECK(watched.offered == weights);
    const bool takes = device->shortcuts().product_steps > 0;
    CHECK(watched.by_product == (takes ? weights : std::vector<int>()));
    std::vector<int> all = watched.by_gradient;
    all.insert(all.end(), watched.by_product.begin(), watched.by_product.end());
    std::sort(all.begin(), all.end());
    CHECK(all == std::vector<int>{0, 1, 2, 3, 4, 5, 6});
  }
  const auto offers_none = [&](Trained& trained, const std::vector<Batch>& batches) {
    Watched watched(trained.optimizer.get());
    for (const Batch& batch : batches) step(trained, watched, batch);
    CHECK(watched.offered.empty());
    CHECK(watched.by_gradient.size() == 7);
  };
  // Gradients that the host wants, factors in f32, and pieces, which add up.
  Trained fetching(*device, Precision::kBf16, /*fetches_gradients=*/true);
  offers_none(fetching, {rows.batch()});
  Trained f32(*device, Precision::kF32);
  offers_none(f32, {rows.batch()});
  Trained in_pieces(*device, Precision::kBf16);
  offers_none(in_pieces, {rows.piece(0, 12), rows.piece(12, 12)});
}

}  // namespace tessera
