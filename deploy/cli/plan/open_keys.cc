#include "deploy/cli/plan/open_keys.h"

#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/time/time.h"
#include "common/base/check.h"
#include "common/method/recipe.h"
#include "deploy/cli/plan/measure_step.h"
#include "deploy/cli/plan/plan.h"
#include "worker/worker_memory.h"

namespace tessera {
namespace {

// What `choice` is, key by key.
std::vector<std::string> OverridesOf(const Recipe& recipe, const HalvesChoice& choice) {
  std::vector<std::string> overrides;
  for (const std::string& key : recipe.open_keys) {
    const bool is_cut = absl::EndsWith(key, ".cut");
    overrides.push_back(
        absl::StrCat(key, "=", is_cut ? choice.cut : absl::StrCat(choice.linear_workers)));
  }
  return overrides;
}

// Whether the workers of either half of `job`, which leaves nothing open, fit its limit.
absl::StatusOr<bool> Fits(const v1::Job& job, const Datasets& data) {
  const int64_t limit = job.cluster().memory_limit();
  if (limit == 0) return true;
  TESSERA_ASSIGN_OR_RETURN(const Recipe recipe, RecipeFor(job));
  TESSERA_ASSIGN_OR_RETURN(const ModelShape shape, ExchangedShape(job.model(), recipe));
  TESSERA_ASSIGN_OR_RETURN(const WorkerMemory memory,
                           PlanWorkerMemory(job, recipe, shape, data, limit));
  return memory.total() <= limit;
}

}  // namespace

// The rates are those that `tessera plan` supposes by itself: of memory, in which all payloads go, and of a server that
// adds them up.
Machines OneMachine() {
  Machines machines;
  machines.bandwidth = machines.memory_rate = 1e9;
  machines.fold_rate = 4e9;
  return machines;
}

absl::StatusOr<std::string> CloseOpenKeys(Machines machines, const std::string& job_path,
                                          const JobOptions& options,
                                          std::vector<std::string>* overrides,
                                          JobReading* reading) {
  TESSERA_ASSIGN_OR_RETURN(const Recipe recipe, RecipeFor(reading->job));
  if (recipe.open_keys.empty()) return "";
  PlanQuestion question;
  question.machines = machines;
  question.machines.workers = reading->job.cluster().workers();
  // The data are read twice, here and by the workers: a step of rows that are not these, sparse ones above all, would
  // say nothing of how long theirs takes.
  const absl::StatusOr<Datasets> data = LoadForPlan(reading->job, &question);
  absl::Status timed = data.status();
  if (timed.ok()) timed = MeasureWholeStep(reading->job, *data, &question);
  if (!timed.ok()) {
    return absl::FailedPreconditionError(absl::StrCat(
        recipe.open_keys[0], ": got auto, for which a step has to be timed here: ", timed.message(),
        "; want what tessera plan --step-time says is best"));
  }
  for (const HalvesChoice& choice : RankHalves(question, reading->job)) {
    const std::vector<std::string> chosen = OverridesOf(recipe, choice);
    std::vector<std::string> all = *overrides;
    all.insert(all.end(), chosen.begin(), chosen.end());
    // The way from text to job is that of every process, so that they all read the same.
    JobReading closed = ReadJobFile(job_path, all, options);
    // What is wrong with one way, such as too many linear workers, is not with another.
    if (!closed.ok()) continue;
    TESSERA_ASSIGN_OR_RETURN(const bool fits, Fits(closed.job, *data));
    // A slower way is better than workers that refuse to start.
    if (!fits) continue;
    *overrides = std::move(all);
    *reading = std::move(closed);
    return absl::StrCat("of what the job leaves open, ", absl::StrJoin(chosen, " and "),
                        " would train most rows: ", absl::StrFormat("%.0f", choice.rows_per_second),
                        " a second, as a step here takes ",
                        absl::FormatDuration(absl::Microseconds(1e6 * question.step_seconds)));
  }
  return absl::InvalidArgumentError(absl::StrCat(
      recipe.open_keys[0], ": got auto, and the workers of no way to cut the model fit ",
      "cluster.memory_limit, ", reading->job.cluster().memory_limit(), " bytes; raise it"));
}

}  // namespace tessera
