#include "bench/gpu/weight_steps.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "bench/gpu/kernels.h"
#include "bench/gpu/verdict.h"
#include "common/base/check.h"
#include "proto/job.pb.h"

namespace tessera {
namespace {

constexpr int64_t kRows[] = {128, 512, 1024, 2048};

// Random, as zeros would run faster.
absl::Status Fill(Backend& device, uint32_t seed, const Buffer<Bf16>& values) {
  std::mt19937 random(seed);
  std::vector<Bf16> drawn(values.size());
  for (Bf16& value : drawn) {
    value = RoundToBf16(static_cast<float>(random() >> 8) * 0x1p-23f - 1);
  }
  device.memory().CopyIn(drawn.data(), values.bytes(), values.data());
  return device.Finish();
}

// One weight, and how it steps.
class WeightUnderWay {
 public:
  static absl::StatusOr<std::unique_ptr<WeightUnderWay>> Create(Backend& device,
                                                                const LinearShape& shape) {
    auto made = std::unique_ptr<WeightUnderWay>(new WeightUnderWay(device, shape));
    Memory& memory = device.memory();
    const int64_t weights = shape.outputs * shape.inputs;
    TESSERA_ASSIGN_OR_RETURN(made->products_, device.linear_bf16());
    TESSERA_ASSIGN_OR_RETURN(made->x_, Buffer<Bf16>::Create(memory, shape.rows * shape.inputs));
    TESSERA_ASSIGN_OR_RETURN(made->dy_, Buffer<Bf16>::Create(memory, shape.rows * shape.outputs));
    TESSERA_ASSIGN_OR_RETURN(made->weight_, Buffer<float>::Create(memory, weights));
    TESSERA_ASSIGN_OR_RETURN(made->gradient_, Buffer<float>::Create(memory, weights));
    TESSERA_ASSIGN_OR_RETURN(made->rounded_, Buffer<Bf16>::Create(memory, weights));
    TESSERA_ASSIGN_OR_RETURN(made->numbers_, Buffer<OptimizerNumbers>::Create(memory, 1));
    TESSERA_RETURN_IF_ERROR(Fill(device, 1, made->x_));
    TESSERA_RETURN_IF_ERROR(Fill(device, 2, made->dy_));
    v1::Optimizer sgd;
    sgd.mutable_sgd()->set_learning_rate(0.01);
    made->kernel_ = device.vector().MakeOptimizer(sgd);
    const OptimizerNumbers numbers = NumbersOf(sgd, {});
    memory.CopyIn(&numbers, sizeof(numbers), made->numbers_.data());
    return made;
  }

  // False: the device has no such step.
  bool ByProduct() {
    return kernel_->StepByProduct(numbers_.data(), shape_, x_.data(), dy_.data(), weight_.data(),
                                  rounded_.data());
  }
  void ByGradient() {
    products_->WeightGradient(shape_, x_.data(), dy_.data(), WriteMode::kOverwrite,
                              gradient_.data());
    kernel_->Step(numbers_.data(), weight_.size(), gradient_.data(), nullptr, weight_.data(),
                  rounded_.data());
  }
  // The weight becomes 0.
  void Reset() { device_.memory().Zero(weight_.data(), weight_.bytes()); }
  absl::StatusOr<std::vector<float>> Weight() {
    TESSERA_RETURN_IF_ERROR(device_.Finish());
    std::vector<float> values(weight_.size());
    device_.memory().CopyOut(weight_.data(), weight_.bytes(), values.data());
    return values;
  }

 private:
  WeightUnderWay(Backend& device, const LinearShape& shape) : device_(device), shape_(shape) {}
  Backend& device_;
  const LinearShape shape_;
  LinearKernel<Bf16>* products_ = nullptr;
  Buffer<Bf16> x_, dy_, rounded_;
  Buffer<float> weight_, gradient_;
  Buffer<OptimizerNumbers> numbers_;
  std::unique_ptr<OptimizerKernel> kernel_;
};

// Whether one step from 0 is the same in both ways, but for the order of sums.
absl::StatusOr<bool> StepAlike(Backend& device, const LinearShape& shape) {
  std::unique_ptr<WeightUnderWay> weight;
  TESSERA_ASSIGN_OR_RETURN(weight, WeightUnderWay::Create(device, shape));
  weight->Reset();
  if (!weight->ByProduct()) return true;
  TESSERA_ASSIGN_OR_RETURN(const std::vector<float> by_product, weight->Weight());
  weight->Reset();
  weight->ByGradient();
  TESSERA_ASSIGN_OR_RETURN(const std::vector<float> by_gradient, weight->Weight());
  float most = 0, largest = 0;
  for (size_t i = 0; i < by_product.size(); ++i) {
    const float difference = std::fabs(by_product[i] - by_gradient[i]);
    most = difference <= most ? most : difference;  // a NaN stays
    largest = std::max(largest, std::fabs(by_gradient[i]));
  }
  return most <= 1e-4f * largest;
}

std::string Milliseconds(double seconds) { return absl::StrFormat("%.4f", seconds * 1e3); }

}  // namespace

absl::Status TimeWeightSteps(int64_t width, double seconds, Backend& device, int* wrong) {
  if (!device.linear_bf16().ok()) return absl::OkStatus();
  std::printf("\n%-34s %12s %12s\n", "steps of a weight, ms", "by product", "by gradient");
  // One that no tile divides.
  for (const LinearShape& shape : {LinearShape{77, 264, 392}, LinearShape{128, width, width}}) {
    TESSERA_ASSIGN_OR_RETURN(const bool alike, StepAlike(device, shape));
    if (alike) continue;
    TellWrong(absl::StrCat("a weight of ", shape.outputs, " x ", shape.inputs,
                           " does not step by its product as by its gradient"),
              wrong);
  }
  for (const int64_t rows : kRows) {
    std::unique_ptr<WeightUnderWay> weight;
    TESSERA_ASSIGN_OR_RETURN(weight, WeightUnderWay::Create(device, {rows, width, width}));
    weight->Reset();
    std::string by_product = "-";
    if (weight->ByProduct()) {
      TESSERA_ASSIGN_OR_RETURN(const double each,
                               SecondsPerCall(device, seconds, [&] { weight->ByProduct(); }));
      by_product = Milliseconds(each);
    }
    weight->Reset();
    TESSERA_ASSIGN_OR_RETURN(const double each,
                             SecondsPerCall(device, seconds, [&] { weight->ByGradient(); }));
    std::printf("%-34s %12s %12s\n", absl::StrCat("bf16 weight step, rows ", rows).c_str(),
                by_product.c_str(), Milliseconds(each).c_str());
  }
  return absl::OkStatus();
}

}  // namespace tessera
