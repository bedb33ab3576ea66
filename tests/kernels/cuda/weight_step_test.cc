// Which steps of weights go by their product, on a GPU that the host plays. What they do is the battery's.
#include "kernels/cuda/weight_step.h"

#include <catch2/catch.hpp>

#include "kernels/cuda/backend.h"
#include "proto/job.pb.h"
#include "tests/kernels/cuda/emulation/faults.h"

namespace tessera {
namespace {

std::unique_ptr<Backend> DeviceWith(const DeviceOptions& options) {
  auto backend = CreateCudaBackend(0, options);
  REQUIRE(backend.ok());
  return *std::move(backend);
}

// In memory of that many bytes, which all arrays share: nobody looks at the results.
class Steps {
 public:
  explicit Steps(const DeviceOptions& options = {}, int64_t bytes = 24 << 20)
      : backend_(DeviceWith(options)) {
    v1::Optimizer sgd;
    sgd.mutable_sgd()->set_learning_rate(0.1);
    kernel_ = backend_->vector().MakeOptimizer(sgd);
    auto memory = Buffer<char>::Create(backend_->memory(), bytes);
    REQUIRE(memory.ok());
    memory_ = *std::move(memory);
    backend_->memory().Zero(memory_.data(), bytes);
  }
  bool Queue(int64_t rows, int64_t inputs, int64_t outputs) {
    auto* const bf16 = reinterpret_cast<Bf16*>(memory_.data());
    return kernel_->StepByProduct(reinterpret_cast<OptimizerNumbers*>(memory_.data()),
                                  {rows, inputs, outputs}, bf16, bf16,
                                  reinterpret_cast<float*>(memory_.data()), bf16 + (8 << 20));
  }
  Backend& backend() { return *backend_; }

 private:
  const std::unique_ptr<Backend> backend_;
  std::unique_ptr<OptimizerKernel> kernel_;
  Buffer<char> memory_;
};

}  // namespace

TEST_CASE("weights of a million values and batches of a thousand rows step by their product",
          "[cuda]") {
  Steps steps;
  CHECK(steps.Queue(128, 1024, 1024));
  CHECK(steps.Queue(1024, 1024, 1024));
  CHECK_FALSE(steps.Queue(1025, 1024, 1024));
  CHECK_FALSE(steps.Queue(128, 1016, 1024));
  CHECK(steps.Queue(8, 8, 131072));
  CHECK(steps.backend().shortcuts().product_steps == 3);
}

TEST_CASE("what steps by its product is the device options' to say", "[cuda]") {
  DeviceOptions options;
  options.product_step_size_min = 100;
  options.product_step_rows_max = 3;
  Steps steps(options);
  CHECK(steps.Queue(3, 8, 16));
  CHECK_FALSE(steps.Queue(4, 8, 16));
  CHECK_FALSE(steps.Queue(3, 8, 8));
}

TEST_CASE("a generation without such products steps by gradients", "[cuda]") {
  for (const auto& [major, minor] : {std::pair(8, 0), std::pair(8, 9), std::pair(10, 0)}) {
    CAPTURE(major, minor);
    cuda::Faults().gpu = {"emulated GPU", major, minor};
    Steps steps;
    cuda::Faults().gpu = {"emulated GPU", 9, 0};
    CHECK_FALSE(steps.Queue(128, 1024, 1024));
    CHECK(steps.backend().shortcuts().product_steps == 0);
  }
}

TEST_CASE("a step by a product that fails on the device is told", "[cuda]") {
  Steps steps;
  cuda::Faults().launches_left = 0;
  CHECK(steps.Queue(8, 1024, 1024));
  cuda::Faults().launches_left = -1;
  CHECK_FALSE(steps.backend().Finish().ok());
}

}  // namespace tessera
