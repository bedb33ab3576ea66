#include "bench/gpu/kernels.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <memory>
#include <random>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "kernels/devices.h"
#include "proto/job.pb.h"

namespace tessera {
namespace {

// So many arrays of a matrix's size, as many vectors of a row's, labels for the rows.
constexpr int kMatrices = 5;
constexpr int kVectors = 6;

struct Arrays {
  MatrixShape shape;
  Buffer<float> matrix[kMatrices];
  Buffer<float> vector[kVectors];
  Buffer<Bf16> halves;
  Buffer<int32_t> labels;
  Buffer<LossSums> sums;
};

struct Kernel {
  std::string name;
  // Bytes that must move for each entry of the matrix.
  double bytes_per_entry;
  std::function<void(Backend&, Arrays&)> run;
};

v1::Optimizer OptimizerOf(const std::string& kind) {
  v1::Optimizer optimizer;
  if (kind == "adamw") {
    optimizer.mutable_adamw()->set_learning_rate(1e-3);
    optimizer.mutable_adamw()->set_beta1(0.9);
    optimizer.mutable_adamw()->set_beta2(0.999);
    optimizer.mutable_adamw()->set_epsilon(1e-3);
  } else {
    optimizer.mutable_sgd()->set_learning_rate(1e-3);
    if (kind == "momentum") optimizer.mutable_sgd()->set_momentum(0.9);
  }
  return optimizer;
}

Kernel Optimizer(const std::string& kind, double bytes) {
  return {kind, bytes, [kind](Backend& backend, Arrays& a) {
            float* const states[] = {a.matrix[3].data(), a.matrix[4].data()};
            backend.vector()
                .MakeOptimizer(OptimizerOf(kind))
                ->Step({}, a.shape.size(), a.matrix[1].data(), states, a.matrix[2].data());
          }};
}

std::vector<Kernel> Kernels() {
  std::vector<Kernel> kernels;
  kernels.push_back({"device copy", 8, [](Backend& b, Arrays& a) {
                       b.memory().Copy(a.matrix[0].data(), a.matrix[0].bytes(), a.matrix[2].data());
                     }});
  kernels.push_back({"batch norm: statistics", 4, [](Backend& b, Arrays& a) {
                       b.batch_norm().Statistics(a.shape, 1e-5, a.matrix[0].data(),
                                                 a.vector[0].data(), a.vector[1].data());
                     }});
  kernels.push_back({"batch norm: normalize, relu", 8, [](Backend& b, Arrays& a) {
                       b.batch_norm().Normalize(a.shape, a.matrix[0].data(), a.vector[2].data(),
                                                a.vector[3].data(), {}, true, a.matrix[2].data());
                     }});
  // Two readings of x, dy and y: the gradient wants sums over all rows first.
  kernels.push_back({"batch norm: backward, relu", 28, [](Backend& b, Arrays& a) {
                       b.batch_norm().Backward(
                           a.shape,
                           {a.matrix[0].data(), a.vector[2].data(), a.vector[3].data(), nullptr,
                            a.matrix[3].data(), a.matrix[1].data()},
                           a.vector[4].data(), a.vector[5].data(), a.matrix[2].data());
                     }});
  kernels.push_back({"relu", 8, [](Backend& b, Arrays& a) {
                       b.activation().Relu(a.shape.size(), a.matrix[0].data(), a.matrix[2].data());
                     }});
  kernels.push_back({"dropout", 8, [](Backend& b, Arrays& a) {
                       b.activation().Dropout(a.shape.size(), {1, 2, 3, 4}, 0.3, a.matrix[0].data(),
                                              a.matrix[2].data());
                     }});
  kernels.push_back({"softmax, loss, gradient", 8, [](Backend& b, Arrays& a) {
                       b.loss().SoftmaxCrossEntropy(a.shape, a.matrix[0].data(), a.labels.data(),
                                                    a.matrix[2].data(), a.sums.data());
                     }});
  kernels.push_back({"sigmoid, loss, gradient", 8, [](Backend& b, Arrays& a) {
                       b.loss().SigmoidCrossEntropy(a.shape, a.matrix[0].data(),
                                                    {a.labels.data(), nullptr}, a.matrix[2].data(),
                                                    a.sums.data());
                     }});
  kernels.push_back(Optimizer("sgd", 12));
  kernels.push_back(Optimizer("momentum", 20));
  kernels.push_back(Optimizer("adamw", 28));
  kernels.push_back({"subtract (delta)", 12, [](Backend& b, Arrays& a) {
                       b.vector().Subtract(a.shape.size(), a.matrix[0].data(), a.matrix[1].data(),
                                           a.matrix[2].data());
                     }});
  kernels.push_back({"column sums (bias)", 4, [](Backend& b, Arrays& a) {
                       b.vector().ColumnSums(a.shape, a.matrix[0].data(), a.vector[0].data());
                     }});
  kernels.push_back({"round to bf16", 6, [](Backend& b, Arrays& a) {
                       b.vector().Round(a.shape.size(), a.matrix[0].data(), a.halves.data());
                     }});
  return kernels;
}

absl::StatusOr<std::unique_ptr<Arrays>> Fill(Backend& backend, const MatrixShape& shape) {
  auto arrays = std::make_unique<Arrays>();
  arrays->shape = shape;
  Memory& memory = backend.memory();
  std::mt19937 random(7);
  std::normal_distribution<float> normal;
  std::vector<float> values(shape.size());
  for (int m = 0; m < kMatrices; ++m) {
    // State arrays hold squares.
    for (float& value : values) value = m < 3 ? normal(random) : std::fabs(normal(random));
    TESSERA_ASSIGN_OR_RETURN(arrays->matrix[m], Buffer<float>::Create(memory, shape.size()));
    memory.CopyIn(values.data(), arrays->matrix[m].bytes(), arrays->matrix[m].data());
  }
  for (int v = 0; v < kVectors; ++v) {
    TESSERA_ASSIGN_OR_RETURN(arrays->vector[v], Buffer<float>::Create(memory, shape.columns));
    memory.CopyIn(values.data(), arrays->vector[v].bytes(), arrays->vector[v].data());
  }
  std::vector<int32_t> labels(shape.rows);
  for (int32_t& label : labels) label = static_cast<int32_t>(random() % shape.columns);
  TESSERA_ASSIGN_OR_RETURN(arrays->labels, Buffer<int32_t>::Create(memory, shape.rows));
  memory.CopyIn(labels.data(), arrays->labels.bytes(), arrays->labels.data());
  TESSERA_ASSIGN_OR_RETURN(arrays->halves, Buffer<Bf16>::Create(memory, shape.size()));
  TESSERA_ASSIGN_OR_RETURN(arrays->sums, Buffer<LossSums>::Create(memory, 1));
  return arrays;
}

std::vector<float> Read(Backend& backend, const Arrays& arrays) {
  std::vector<float> all;
  const auto read = [&](const Buffer<float>& buffer) {
    const size_t begin = all.size();
    all.resize(begin + buffer.size());
    backend.memory().CopyOut(buffer.data(), buffer.bytes(), all.data() + begin);
  };
  for (const Buffer<float>& matrix : arrays.matrix) read(matrix);
  for (const Buffer<float>& vector : arrays.vector) read(vector);
  return all;
}

// On a small matrix of odd size. The battery holds kernels to finer bounds.
absl::Status Check(const Kernel& kernel, Backend& device, Backend& cpu) {
  const MatrixShape shape{77, 130};
  TESSERA_ASSIGN_OR_RETURN(const auto want, Fill(cpu, shape));
  TESSERA_ASSIGN_OR_RETURN(const auto got, Fill(device, shape));
  kernel.run(cpu, *want);
  kernel.run(device, *got);
  TESSERA_RETURN_IF_ERROR(device.Finish());
  const std::vector<float> a = Read(cpu, *want), b = Read(device, *got);
  for (size_t i = 0; i < a.size(); ++i) {
    if (std::fabs(a[i] - b[i]) <= 1e-5f * (1 + std::fabs(a[i]))) continue;
    return absl::InternalError(
        absl::StrCat(kernel.name, ": value ", i, " is ", b[i], ", want ", a[i], " as on the CPU"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<double> SecondsPerCall(Backend& backend, double seconds,
                                      const std::function<void()>& call) {
  const auto time = [&](int calls) -> absl::StatusOr<double> {
    const auto begin = std::chrono::steady_clock::now();
    for (int i = 0; i < calls; ++i) call();
    TESSERA_RETURN_IF_ERROR(backend.Finish());
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count() / calls;
  };
  TESSERA_ASSIGN_OR_RETURN(double once, time(3));
  TESSERA_ASSIGN_OR_RETURN(once, time(3));
  constexpr int kRounds = 5;
  const int calls = std::max(1, static_cast<int>(seconds / kRounds / std::max(once, 1e-7)));
  std::vector<double> rounds;
  for (int round = 0; round < kRounds; ++round) {
    TESSERA_ASSIGN_OR_RETURN(const double each, time(calls));
    rounds.push_back(each);
  }
  std::nth_element(rounds.begin(), rounds.begin() + kRounds / 2, rounds.end());
  return rounds[kRounds / 2];
}

absl::StatusOr<std::vector<KernelRate>> KernelRates(Backend& device, const MatrixShape& shape,
                                                    double seconds) {
  std::unique_ptr<Backend> cpu;
  TESSERA_ASSIGN_OR_RETURN(cpu, CreateBackend("cpu", 1));
  TESSERA_ASSIGN_OR_RETURN(const auto arrays, Fill(device, shape));
  std::vector<KernelRate> rates;
  for (const Kernel& kernel : Kernels()) {
    TESSERA_RETURN_IF_ERROR(Check(kernel, device, *cpu));
    TESSERA_ASSIGN_OR_RETURN(const double each,
                             SecondsPerCall(device, seconds, [&] { kernel.run(device, *arrays); }));
    rates.push_back(
        {kernel.name, kernel.bytes_per_entry * static_cast<double>(shape.size()) / each});
  }
  return rates;
}

}  // namespace tessera
