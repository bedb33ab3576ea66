#include "deploy/simulate/step_time.h"

#include <algorithm>
#include <chrono>
#include <memory>
#include <numeric>
#include <thread>
#include <vector>

#include "common/base/check.h"
#include "common/method/recipe.h"
#include "deploy/simulate/step_share.h"
#include "kernels/devices.h"
#include "worker/replica/batch_rows.h"
#include "worker/replica/make_replica.h"

namespace tessera {
namespace {

constexpr int kWarmSteps = 3;
constexpr int kStepsMin = 5;
constexpr int kStepsMax = 200;
constexpr double kSecondsMax = 1;

double Now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// Seconds of each counted step of one worker, as if on the whole model.
absl::StatusOr<std::vector<double>> TimeSteps(const v1::Job& job, const Datasets& data,
                                              int worker) {
  TESSERA_ASSIGN_OR_RETURN(const Recipe recipe, RecipeFor(job));
  if (recipe.split) {
    v1::Job whole = job;
    whole.mutable_method()->mutable_data_parallel();
    return TimeSteps(whole, data, worker);
  }
  TESSERA_ASSIGN_OR_RETURN(
      const std::unique_ptr<Backend> backend,
      CreateBackend(job.cluster().device(), job.cluster().threads(), {job.cluster().cudnn()}));
  const InputRows input = InputRowsOf(job.model(), data);
  TESSERA_ASSIGN_OR_RETURN(
      const std::unique_ptr<Learner> learner,
      MakeReplica(job, recipe, Rank(worker), Exchange(1), backend.get(), input));
  TESSERA_RETURN_IF_ERROR(learner->AdoptValues());
  TESSERA_ASSIGN_OR_RETURN(const ModelShape shape, ExchangedShape(job.model(), recipe));
  const double share = StepShareOf(shape, data.train, input).Of(learner->update_keys());
  std::vector<uint32_t> rows(std::min(job.train().batch_size(), data.train.rows()));
  std::iota(rows.begin(), rows.end(), 0);
  std::vector<double> seconds;
  const double begin = Now();
  for (int step = 0; step < kStepsMax; ++step) {
    const double start = Now();
    if (step >= kWarmSteps + kStepsMin && start - begin > kSecondsMax) break;
    TESSERA_RETURN_IF_ERROR(
        learner->Train(data.train, rows, {static_cast<uint64_t>(step), 1.0f}).status());
    if (step >= kWarmSteps) seconds.push_back((Now() - start) / share);
  }
  return seconds;
}

}  // namespace

absl::StatusOr<SimNanos> MeasureStepTime(const v1::Job& job, const Datasets& data, int busy) {
  std::vector<absl::StatusOr<std::vector<double>>> timed(busy);
  std::vector<std::thread> threads;
  for (int k = 0; k < busy; ++k) {
    threads.emplace_back([&, k] { timed[k] = TimeSteps(job, data, k); });
  }
  for (std::thread& thread : threads) thread.join();
  std::vector<double> seconds;
  for (const absl::StatusOr<std::vector<double>>& one : timed) {
    if (!one.ok()) return one.status();
    seconds.insert(seconds.end(), one->begin(), one->end());
  }
  std::nth_element(seconds.begin(), seconds.begin() + seconds.size() / 2, seconds.end());
  return static_cast<SimNanos>(seconds[seconds.size() / 2] * kNanosPerSecond);
}

}  // namespace tessera
