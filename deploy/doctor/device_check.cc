#include "deploy/doctor/device_check.h"

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/check.h"
#include "worker/model/network_memory.h"
#include "worker/model/plan.h"

namespace tessera {
namespace {

constexpr const char* kNoWorkerHere = "workers need it; where no worker runs, use --no-data";

// Whether the device has the job's precision.
absl::Status CheckPrecision(const v1::Job& job, Backend& backend) {
  TESSERA_ASSIGN_OR_RETURN(const Precision precision, PrecisionOf(job.train().precision()));
  if (precision == Precision::kTf32) return backend.linear_tf32().status();
  if (precision == Precision::kBf16) return backend.linear_bf16().status();
  return absl::OkStatus();
}

// A device looks for its library of convolutions when it is asked for the room of those that are the library's, which
// they may be in one precision alone.
absl::Status AskForConvolutions(const v1::Job& job, Backend& backend) {
  TESSERA_ASSIGN_OR_RETURN(const NetworkPlan plan, PlanOf(job.model()));
  TESSERA_ASSIGN_OR_RETURN(const Precision precision, PrecisionOf(job.train().precision()));
  return DeviceScratchBytes(plan, /*rows=*/1, precision, backend).status();
}

}  // namespace

Findings CheckDevice(const v1::Job& job, const MakeBackend& make_backend, int64_t cores) {
  const auto problem = [](const absl::Status& status, std::string advice) -> Findings {
    return {{Finding::Kind::kProblem, std::string(status.message()), std::move(advice)}};
  };
  const v1::Cluster& cluster = job.cluster();
  const absl::StatusOr<std::unique_ptr<Backend>> made =
      make_backend(cluster.device(), static_cast<int>(cluster.threads()), {cluster.cudnn()});
  // On a machine of servers alone the device is of no use, and need not be there.
  if (!made.ok()) return problem(made.status(), kNoWorkerHere);
  Backend& backend = **made;
  if (const absl::Status status = CheckPrecision(job, backend); !status.ok()) {
    return problem(status, "set train.precision to f32, or compute on another device");
  }
  if (const absl::Status status = AskForConvolutions(job, backend); !status.ok()) {
    return problem(status, "correct the model");
  }
  std::string what = absl::StrCat("device: ", backend.description());
  // Memory of a GPU is what others on it have left now.
  if (!backend.memory().host_addressable()) {
    absl::StrAppendFormat(&what, ", %d MiB free", backend.memory().available() >> 20);
  }
  Findings findings = {{Finding::Kind::kGood, std::move(what), ""}};
  if (cluster.device() == "cpu" && cores > 0 && cluster.threads() > cores) {
    findings.push_back(
        {Finding::Kind::kNote,
         absl::StrCat("cluster.threads: is ", cluster.threads(), ", and this machine has ", cores,
                      cores == 1 ? " core" : " cores", ": threads would wait for each other"),
         "set it to the cores divided by the workers on this machine"});
  }
  return findings;
}

}  // namespace tessera
