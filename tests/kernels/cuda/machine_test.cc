#include "kernels/cuda/machine.h"

#include <catch2/catch.hpp>
#include <string>

#include "kernels/cuda/backend.h"
#include "tests/kernels/cuda/emulation/faults.h"

namespace tessera::cuda {
namespace {

std::string Refusal(int ordinal, const Machine& machine, const Gpu& gpu) {
  const EmulatedFaults& faults = Faults();
  Faults().machine = machine;
  Faults().gpu = gpu;
  const auto backend = CreateCudaBackend(ordinal);
  Faults().machine = {13000, 13000, 1, ""};
  Faults().gpu = {"emulated GPU", 9, 0};
  CHECK(faults.launches_left < 0);
  if (backend.ok()) return "";
  CHECK(backend.status().code() == absl::StatusCode::kFailedPrecondition);
  return std::string(backend.status().message());
}

}  // namespace

TEST_CASE("an error of a GPU that has little memory free says how little", "[cuda]") {
  CHECK(LittleMemory(int64_t{400} << 20, int64_t{143155} << 20) ==
        "; 400 MiB of its 143155 MiB are free: nvidia-smi says who has the others");
  CHECK(LittleMemory(int64_t{100} << 30, int64_t{143155} << 20) == "");
  CHECK(LittleMemory(0, 0) == "");
}

TEST_CASE("a machine without the GPU that is wanted is refused with what it has", "[cuda]") {
  const Gpu gpu{"NVIDIA H200", 9, 0};
  CHECK(Refusal(0, {13000, 13000, 1, ""}, gpu) == "");
  CHECK(Refusal(0, {13010, 13000, 1, ""}, gpu) == "");
  CHECK(Refusal(3, {13000, 13000, 4, ""}, gpu) == "");
  CHECK(Refusal(0, {0, 13000, 0, ""}, gpu) ==
        "cluster.device: cuda:0: this machine has no NVIDIA driver, want one; or use cpu");
  CHECK(Refusal(0, {12080, 13000, 1, ""}, gpu) ==
        "cluster.device: cuda:0: the driver supports CUDA 12.8, want 13.0 or newer");
  CHECK(Refusal(0, {13000, 13000, 0, "no CUDA-capable device is detected"}, gpu) ==
        "cluster.device: cuda:0: no GPU can be used: no CUDA-capable device is detected");
  CHECK(Refusal(0, {13000, 13000, 0, ""}, gpu) ==
        "cluster.device: cuda:0: this machine has no GPU, want one; or use cpu");
  CHECK(Refusal(1, {13000, 13000, 1, ""}, gpu) ==
        "cluster.device: cuda:1: this machine has 1 GPU, want cuda");
  CHECK(Refusal(4, {13000, 13000, 4, ""}, gpu) ==
        "cluster.device: cuda:4: this machine has 4 GPUs, want less");
  CHECK(Refusal(0, {13000, 13000, 1, ""}, {"NVIDIA Tesla V100", 7, 0}) ==
        "cluster.device: cuda:0: NVIDIA Tesla V100 has compute capability 7.0, want 8.0 or newer");
}

}  // namespace tessera::cuda
