#include "deploy/cli/plan.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/config/job_digest.h"
#include "common/config/job_reader.h"
#include "common/config/schema.h"
#include "common/layout/parameters.h"
#include "common/method/recipe.h"
#include "deploy/simulate/step_share.h"
#include "server/control/job_facts.h"

namespace tessera {
namespace {

using google::protobuf::FieldDescriptor;

// The most that the schema allows; with more the job is read and its number is set afterwards.
constexpr int64_t kJobWorkersMax = 1024;

// The options that make a job one of that method, with what has no default.
std::vector<std::string> OverridesFor(const PlanQuestion& question, const FieldDescriptor& method, bool is_own) {
  std::vector<std::string> overrides = question.overrides;
  const int64_t workers = std::min(question.machines.workers, kJobWorkersMax);
  overrides.push_back(absl::StrCat("cluster.workers=", workers));
  if (method.name() == "decentralized") {
    overrides.push_back(absl::StrCat("cluster.servers=", workers));
  } else if (question.servers) {
    overrides.push_back(absl::StrCat("cluster.servers=", *question.servers));
  }
  if (!is_own) {
    const std::string keys = method.name() == "softsync" ? absl::StrCat("pushes: ", (workers + 1) / 2) : "";
    overrides.push_back(absl::StrCat("method={", method.name(), ": {", keys, "}}"));
  }
  if (question.local_steps && method.message_type()->FindFieldByName("local_steps") != nullptr) {
    overrides.push_back(absl::StrCat("method.", method.name(), ".local_steps=", *question.local_steps));
  }
  return overrides;
}

// Minibatches of a worker from the job's begin to its end.
double StepsOf(const v1::Job& job, int64_t train_rows) {
  if (job.train().length_case() == v1::Train::kSteps) return static_cast<double>(job.train().steps());
  // An exchange that comes once in a job of unknown length costs next to nothing.
  if (train_rows == 0) return 1e12;
  const double batches = static_cast<double>(train_rows) / static_cast<double>(job.train().batch_size());
  return std::max(1.0, static_cast<double>(job.train().epochs()) * batches / job.cluster().workers());
}

double BusiestShare(const KeySet& keys) {
  int64_t most = 0, all = 0;
  for (const ShardSlices& slices : keys.slices) {
    most = std::max(most, slices.size);
    all += slices.size;
  }
  return all > 0 ? static_cast<double>(most) / static_cast<double>(all) : 1;
}

// What a server adds up of a push: all of its own entries, or those that came where these are a part.
double FoldBytes(const v1::Job& job, const Recipe& recipe, const ModelShape& shape, const TrafficForecast& push) {
  if (recipe.placement == Placement::kReplicated) {
    return static_cast<double>(push.bytes) / std::max<double>(1, job.cluster().servers().count() - 1);
  }
  if (recipe.subnets || (recipe.core && !recipe.core->is_whole())) return static_cast<double>(push.bytes);
  return 4.0 * static_cast<double>(shape.size);
}

void Predict(const PlanQuestion& question, const v1::Job& job, const Recipe& recipe, PlannedMethod* planned) {
  const absl::StatusOr<ModelShape> shape = ExchangedShape(job.model(), recipe);
  if (!shape.ok()) {
    planned->refused = std::string(shape.status().message());
    return;
  }
  const JobFacts facts = FactsOf(job, recipe, *shape, JobDigest(job));
  if (facts.members_max > 0 && question.machines.workers > facts.members_max) {
    planned->refused = absl::StrCat("workers are ", question.machines.workers, ", want at most ", facts.members_max,
                                    ", the neurons of the least hidden layer, which are dealt to them");
    return;
  }
  const KeySet keys = WorkerKeys(job, recipe, *shape);
  const double inputs = question.row_entries > 0 ? question.row_entries : static_cast<double>(shape->inputs());
  planned->push = PushForecast(job, recipe, *shape);
  planned->pull = PullForecast(job, recipe, *shape);
  planned->servers = job.cluster().servers().count();
  planned->local_steps = recipe.closed_to_joiners ? 0 : recipe.local_steps;

  ExchangeWork work;
  work.local_steps = recipe.closed_to_joiners ? StepsOf(job, question.train_rows)
                                              : static_cast<double>(recipe.local_steps);
  work.step_seconds = question.step_seconds * StepShare(*shape, inputs).Of(keys);
  work.push_bytes = static_cast<double>(planned->push.bytes);
  work.pull_bytes = static_cast<double>(planned->pull.bytes);
  work.fold_bytes = FoldBytes(job, recipe, *shape, planned->push);
  work.busiest_share = BusiestShare(keys);
  work.waits_for_all = recipe.lockstep;
  work.overlaps = recipe.overlaps;
  work.between_workers = recipe.placement == Placement::kReplicated;
  const CycleTime time = TimeOf(work, question.machines);
  planned->step_seconds = time.seconds / work.local_steps;
  planned->computing = time.computing;
  planned->limit = time.limit;
  const double rows = static_cast<double>(question.machines.workers) * static_cast<double>(job.train().batch_size());
  planned->rows_per_second = planned->step_seconds > 0 ? rows / planned->step_seconds : 0;
}

}  // namespace

double PlannedMethod::BytesPerStep() const {
  // Once in a whole job is about never.
  return local_steps == 0 ? 0 : static_cast<double>(push.bytes + pull.bytes) / static_cast<double>(local_steps);
}

std::vector<PlannedMethod> PlanMethods(const PlanQuestion& question) {
  const JobReading own = ReadJobFile(question.job_path, question.overrides, JobOptions{false});
  const google::protobuf::Descriptor& methods = *v1::Method::descriptor();
  std::vector<PlannedMethod> all;
  for (int i = 0; i < methods.field_count(); ++i) {
    const FieldDescriptor& method = *methods.field(i);
    if (!KeyOf(method).later().empty()) continue;
    PlannedMethod planned;
    planned.name = method.name();
    planned.is_own = own.job.method().kind_case() == method.number();
    JobReading reading =
        ReadJobFile(question.job_path, OverridesFor(question, method, planned.is_own), JobOptions{false});
    const absl::StatusOr<Recipe> recipe = RecipeFor(reading.job);
    if (!reading.ok()) {
      const JobError& error = reading.errors.front();
      planned.refused = error.key.empty() ? error.message : absl::StrCat(error.key, ": ", error.message);
    } else if (!recipe.ok()) {
      planned.refused = std::string(recipe.status().message());
    } else {
      reading.job.mutable_cluster()->set_workers(question.machines.workers);
      Predict(question, reading.job, *recipe, &planned);
    }
    all.push_back(std::move(planned));
  }
  return all;
}

}  // namespace tessera
