#include "deploy/doctor/limits_check.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "deploy/cli/run/run_needs.h"
#include "server/server_needs.h"
#include "worker/worker_needs.h"

namespace tessera {

Findings CheckLimits(const v1::Job& job, bool has_workers,
                     const std::function<absl::Status(const ProcessNeeds&)>& check) {
  // Without addresses one process starts all the others, and holds what it takes to watch them.
  const bool is_run = job.cluster().servers().addresses().empty();
  const absl::Status status = check(is_run        ? RunNeeds(job)
                                    : has_workers ? WorkerNeeds(job)
                                                  : ServerNeeds(job));
  if (status.ok()) return {};
  const char* const who = is_run ? "`tessera run`" : has_workers ? "a worker" : "a server";
  return {{Finding::Kind::kProblem, std::string(status.message()),
           absl::StrCat(who, " will not start here before that")}};
}

}  // namespace tessera
