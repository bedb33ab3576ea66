// How close the buffers of training are to what its backward pass must have, for the residual networks that come as
// jobs. Nothing is allocated.
#include <catch2/catch.hpp>

#include <set>
#include <string>

#include "common/config/job_reader.h"
#include "worker/model/network_memory.h"
#include "worker/model/plan.h"
#include "worker/model/stage_kind.h"

namespace tessera {
namespace {

NetworkPlan PlanOfJob(const std::string& name) {
  const JobReading reading =
      ReadJobFile("deploy/jobs/" + name, {}, JobOptions{/*check_files=*/false});
  INFO(FormatJobErrors(reading.errors));
  REQUIRE(reading.ok());
  return *PlanOf(reading.job.model());
}

// The floats of an example in the tensors that some stage's backward pass reads, each once. From the table of
// stages alone: nothing here knows of buffers.
int64_t NeededFloats(const NetworkPlan& plan) {
  std::set<int> needed;
  for (size_t i = 0; i < plan.stages.size(); ++i) {
    const StagePlan& stage = plan.stages[i];
    if (stage.kind->backward_reads_x) needed.insert(stage.reads.begin(), stage.reads.end());
    if (stage.kind->backward_reads_y || (stage.is_joined && stage.kind->joined_reads_y)) {
      needed.insert(static_cast<int>(i));
    }
  }
  needed.erase(kNetworkInput);
  int64_t floats = 0;
  for (const int value : needed) floats += plan.stages[value].outputs;
  return floats;
}

}  // namespace

TEST_CASE("buffers are little more than the tensors that the backward pass reads", "[memory]") {
  const std::string name = GENERATE(as<std::string>(), "cifar_resnet18.yaml",
                                    "imagenet_resnet18.yaml", "imagenet_resnet50.yaml");
  CAPTURE(name);
  const NetworkPlan plan = PlanOfJob(name);
  const NetworkBuffers buffers = BuffersOf(plan, /*trains=*/true);
  const int64_t needed = NeededFloats(plan);
  // Gradients are in these buffers, too, and evaluation and calibration take turns in them.
  const int64_t planned = buffers.floats;
  CAPTURE(needed, planned);
  CHECK(planned >= needed);
  CHECK(planned <= 1.02 * static_cast<double>(needed));
  CHECK(buffers.floats == buffers.training.places.floats);
  // Each tensor for itself would be far more, so that the bound says something.
  int64_t all = 0;
  for (const StagePlan& stage : plan.stages) all += stage.outputs;
  CHECK(all > 1.3 * static_cast<double>(needed));
}

TEST_CASE("calibration of 2,048 rows takes no more than its store besides the buffers",
          "[memory]") {
  for (const std::string name : {"cifar_resnet18.yaml", "imagenet_resnet50.yaml"}) {
    CAPTURE(name);
    const NetworkPlan plan = PlanOfJob(name);
    for (const int64_t batch_max : {8, 128}) {
      const NetworkMemory memory = MemoryNeeded(plan, batch_max, Precision::kF32, 2048);
      const NetworkMemory more = MemoryNeeded(plan, batch_max, Precision::kF32, 1 << 20);
      const int64_t sums = CalibrationSums(plan) * static_cast<int64_t>(sizeof(double));
      for (const int64_t bytes : {memory.calibration_bytes, memory.evaluation_calibration_bytes,
                                  more.calibration_bytes, more.evaluation_calibration_bytes}) {
        CHECK(bytes <= kCalibrationStoreBytes + sums);
      }
    }
  }
}

}  // namespace tessera
