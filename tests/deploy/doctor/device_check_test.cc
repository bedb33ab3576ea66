// What doctor says of the device that workers compute on: this machine's CPU, and a GPU that the host plays.
#include "deploy/doctor/device_check.h"

#include <catch2/catch.hpp>
#include <string>

#include "kernels/cuda/backend.h"
#include "kernels/devices.h"
#include "tests/kernels/cuda/emulation/faults.h"

namespace tessera {
namespace {

v1::Job JobOn(const std::string& device) {
  v1::Job job;
  job.mutable_cluster()->set_device(device);
  job.mutable_cluster()->set_threads(1);
  job.mutable_cluster()->set_cudnn(true);
  job.mutable_train()->set_precision("f32");
  job.mutable_model()->add_input(64);
  job.mutable_model()->set_loss("softmax_cross_entropy");
  job.mutable_model()->add_layers()->mutable_linear()->set_units(10);
  return job;
}

Finding On(const v1::Job& job) {
  const Findings findings = CheckDevice(
      job,
      [](absl::string_view device, int threads, const DeviceOptions& options) {
        return device == "cuda" ? CreateCudaBackend(0, options)
                                : CreateBackend(device, threads, options);
      },
      /*cores=*/2);
  REQUIRE(findings.size() == 1);
  return findings[0];
}

}  // namespace

TEST_CASE("a device that a worker could compute on is named", "[doctor]") {
  const Finding cpu = On(JobOn("cpu"));
  CHECK(cpu.kind == Finding::Kind::kGood);
  CHECK(cpu.what.rfind("device: cpu (1 thread, ", 0) == 0);
  const Finding gpu = On(JobOn("cuda"));
  CHECK(gpu.kind == Finding::Kind::kGood);
  CHECK(gpu.what == "device: cuda:0 (emulated GPU, 2048 MiB), 2048 MiB free");
}

TEST_CASE("the library of convolutions is told where the model has some that it computes",
          "[doctor]") {
  cuda::Faults().convolutions = true;
  v1::Job job = JobOn("cuda");
  CHECK(On(job).what.find("emulated convolutions") == std::string::npos);
  job.mutable_model()->clear_input();
  for (const int64_t extent : {32, 8, 8}) job.mutable_model()->add_input(extent);
  v1::Model model = job.model();
  job.mutable_model()->clear_layers();
  v1::Conv2d& conv = *job.mutable_model()->add_layers()->mutable_conv2d();
  conv.set_channels(32);
  conv.add_kernel(3);
  *job.mutable_model()->add_layers() = model.layers(0);
  for (const std::string precision : {"f32", "tf32", "bf16"}) {
    CAPTURE(precision);
    job.mutable_train()->set_precision(precision);
    // In f32 products are faster.
    const std::string library = precision == "f32" ? "" : ", emulated convolutions";
    CHECK(On(job).what == "device: cuda:0 (emulated GPU, 2048 MiB" + library + "), 2048 MiB free");
  }
  cuda::Faults().convolutions = false;
}

TEST_CASE("more threads than this machine has cores are noted", "[doctor]") {
  v1::Job job = JobOn("cpu");
  const auto with = [&](int threads, int64_t cores) {
    job.mutable_cluster()->set_threads(threads);
    return CheckDevice(job, CreateBackend, cores);
  };
  const Findings many = with(3, 2);
  REQUIRE(many.size() == 2);
  CHECK(many[0].kind == Finding::Kind::kGood);
  CHECK(many[1].kind == Finding::Kind::kNote);
  CHECK(many[1].what ==
        "cluster.threads: is 3, and this machine has 2 cores: threads would wait for each other");
  CHECK(with(2, 2).size() == 1);
  CHECK(with(3, 0).size() == 1);
}

TEST_CASE("a device that is not there is a problem with its cause", "[doctor]") {
  const auto machine = cuda::Faults().machine;
  cuda::Faults().machine.driver = 0;
  const Finding finding = On(JobOn("cuda"));
  cuda::Faults().machine = machine;
  CHECK(finding.kind == Finding::Kind::kProblem);
  CHECK(finding.what ==
        "cluster.device: cuda:0: this machine has no NVIDIA driver, want one; or use cpu");
  CHECK(finding.advice == "workers need it; where no worker runs, use --no-data");
}

TEST_CASE("a precision that the device has not is a problem", "[doctor]") {
  v1::Job job = JobOn("cpu");
  job.mutable_train()->set_precision("tf32");
  const Finding finding = On(job);
  CHECK(finding.kind == Finding::Kind::kProblem);
  CHECK(finding.what.find("tf32") != std::string::npos);
  CHECK(finding.advice == "set train.precision to f32, or compute on another device");
}

}  // namespace tessera
