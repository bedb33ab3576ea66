// The GPU benchmark on a device whose losses are wrong: it says so, and goes on.
#include <catch2/catch.hpp>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "bench/gpu/kernels.h"
#include "bench/gpu/steps.h"
#include "kernels/devices.h"
#include "tests/worker/model/counting_backend.h"

namespace tessera {
namespace {

// Of the CPU's softmax the first gradient is another, and the sum.
class WrongLoss final : public LossKernel {
 public:
  explicit WrongLoss(LossKernel& right) : right_(right) {}
  void SoftmaxCrossEntropy(const MatrixShape& shape, const float* logits,
                           const LossTargets& targets, const LossPiece& piece, float* gradient,
                           LossSums* sums) override {
    right_.SoftmaxCrossEntropy(shape, logits, targets, piece, gradient, sums);
    if (gradient != nullptr) gradient[0] += 1;
    sums->loss *= 2;
  }
  void SigmoidCrossEntropy(const MatrixShape& shape, const float* logits,
                           const LossTargets& targets, const LossPiece& piece, float* gradient,
                           LossSums* sums) override {
    right_.SigmoidCrossEntropy(shape, logits, targets, piece, gradient, sums);
  }
  void MeanSquaredError(const MatrixShape& shape, const float* logits, const LossTargets& targets,
                        const LossPiece& piece, float* gradient, LossSums* sums) override {
    right_.MeanSquaredError(shape, logits, targets, piece, gradient, sums);
  }

 private:
  LossKernel& right_;
};

class WrongBackend final : public CountingBackend {
 public:
  explicit WrongBackend(Backend& right) : CountingBackend(right), loss_(right.loss()) {}
  LossKernel& loss() override { return loss_; }

 private:
  WrongLoss loss_;
};

TEST_CASE("a kernel whose results are wrong keeps no other from being timed", "[bench]") {
  const std::unique_ptr<Backend> cpu = *CreateBackend("cpu", 1);
  WrongBackend device(*cpu);
  std::vector<KernelRate> rates;
  const absl::Status status =
      KernelRates(device, {16, 64}, 1e-4, [&](const KernelRate& rate) { rates.push_back(rate); });
  REQUIRE(status.ok());
  REQUIRE(rates.size() > 20);
  CHECK(rates.front().name == "device copy");
  CHECK(rates.back().name == "device copy");
  for (const KernelRate& rate : rates) {
    CAPTURE(rate.name);
    CHECK(rate.bytes_per_second > 0);
    // At both sizes.
    CHECK(rate.wrong.size() == (rate.name == "softmax, loss, gradient" ? 2 : 0));
    for (const std::string& what : rate.wrong) {
      CHECK(absl::StartsWith(what, "softmax, loss, gradient, "));
      CHECK(absl::EndsWith(what, " as on the CPU"));
    }
  }
}

TEST_CASE("steps whose losses are wrong are counted, and timed", "[bench]") {
  const std::unique_ptr<Backend> cpu = *CreateBackend("cpu", 1);
  const StepSizes sizes{64, 16, 1e-4};
  int wrong = 0;
  REQUIRE(TimeSteps(sizes, {1e9, 1e9}, *cpu, *cpu, &wrong).ok());
  CHECK(wrong == 0);
  WrongBackend device(*cpu);
  REQUIRE(TimeSteps(sizes, {1e9, 1e9}, device, *cpu, &wrong).ok());
  CHECK(wrong > 0);
}

}  // namespace
}  // namespace tessera
