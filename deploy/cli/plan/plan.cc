#include "deploy/cli/plan/plan.h"

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "common/base/check.h"
#include "common/base/limits.h"
#include "common/config/job_digest.h"
#include "common/config/schema.h"
#include "common/layout/parameters.h"
#include "common/method/recipe.h"
#include "deploy/cli/plan/stanza_models.h"
#include "deploy/simulate/step_share.h"
#include "server/control/job_facts.h"

namespace tessera {
namespace {

// local_steps of a job are no more.
constexpr int64_t kSearchedStepsMax = 1000000;
// The keys that may be open, by their last names.
constexpr char kOpenCut[] = "cut";
constexpr char kOpenCount[] = "linear_workers";

using google::protobuf::FieldDescriptor;
using Certainty = TrafficForecast::Certainty;

// The number of workers that the job is read with: at most as many as a job file may ask for. If there are more,
// their number is set afterwards.
int64_t ReadWorkers(const PlanQuestion& question) {
  return std::min<int64_t>(question.machines.workers, kJobWorkersMax);
}

// What takes the place of the job's workers and servers.
std::vector<std::string> MachinesOverrides(const PlanQuestion& question) {
  std::vector<std::string> overrides = question.overrides;
  overrides.push_back(absl::StrCat("cluster.workers=", ReadWorkers(question)));
  if (question.servers) overrides.push_back(absl::StrCat("cluster.servers=", *question.servers));
  return overrides;
}

// The method with its defaults, as a job has it: "{softsync: {pushes: 4}}". What has no default is a number of
// pushes, half of the workers'.
std::string MethodText(const PlanQuestion& question, const FieldDescriptor& method) {
  std::string keys;
  for (int i = 0; i < method.message_type()->field_count(); ++i) {
    const FieldDescriptor& key = *method.message_type()->field(i);
    if (!KeyOf(key).required()) continue;
    absl::StrAppend(&keys, keys.empty() ? "" : ", ", key.name(), ": ",
                    (ReadWorkers(question) + 1) / 2);
  }
  return absl::StrCat("{", method.name(), ": {", keys, "}}");
}

// Reads the job with another method and other machines in place of its own.
JobReading ReadWith(const PlanQuestion& question, const FieldDescriptor& method, bool is_own,
                    const JobOptions& options) {
  std::vector<std::string> overrides = MachinesOverrides(question);
  if (!is_own) overrides.push_back(absl::StrCat("method=", MethodText(question, method)));
  if (question.local_steps && method.message_type()->FindFieldByName("local_steps") != nullptr) {
    overrides.push_back(
        absl::StrCat("method.", method.name(), ".local_steps=", *question.local_steps));
  }
  JobReading reading = ReadJobFile(question.job_path, overrides, options);
  const absl::StatusOr<Recipe> recipe = RecipeFor(reading.job);
  if (!recipe.ok() || recipe->placement != Placement::kReplicated) return reading;
  // The method wants a server beside every worker.
  overrides.push_back(absl::StrCat("cluster.servers=", ReadWorkers(question)));
  return ReadJobFile(question.job_path, overrides, options);
}

// The words of `error`, for a job that was read with fewer workers than there are.
std::string Refusal(const PlanQuestion& question, const JobError& error) {
  std::string text =
      error.key.empty() ? error.message : absl::StrCat(error.key, ": ", error.message);
  if (question.machines.workers > kJobWorkersMax) {
    const std::string read = absl::StrCat(kJobWorkersMax),
                      wanted = absl::StrCat(question.machines.workers);
    text = absl::StrReplaceAll(
        text, {{absl::StrCat("got ", read, ","), absl::StrCat("got ", wanted, ",")},
               {absl::StrCat("got \"", read, "\","), absl::StrCat("got \"", wanted, "\",")}});
  }
  return text;
}

// Minibatches of a worker from the job's begin to its end; 0: not known.
double StepsOf(const v1::Job& job, int64_t train_rows) {
  if (job.train().length_case() == v1::Train::kSteps) {
    return static_cast<double>(job.train().steps());
  }
  const double batches =
      static_cast<double>(train_rows) / static_cast<double>(job.train().batch_size());
  // Where rows are each worker's own the other workers may have as many.
  const int64_t sharers = job.data().partition() == "local" ? 1 : job.cluster().workers();
  return static_cast<double>(job.train().epochs()) * batches / static_cast<double>(sharers);
}

// The share of the entries that the server with most of them has: its link is the narrow one.
double BusiestShare(const KeySet& keys) {
  int64_t most = 0, all = 0;
  for (const ShardSlices& slices : keys.slices) {
    most = std::max(most, slices.size);
    all += slices.size;
  }
  return all > 0 ? static_cast<double>(most) / static_cast<double>(all) : 1;
}

// The bytes that servers add up of a push: all entries, or those that came where these are a part.
double FoldBytes(const Recipe& recipe, const ModelShape& shape, const TrafficForecast& push) {
  const bool is_part =
      recipe.subnets || (recipe.core && !recipe.core->is_whole()) || recipe.fragments.has_value();
  return is_part ? static_cast<double>(push.bytes) : 4.0 * static_cast<double>(shape.size);
}

// Predicts a job that trains by this one recipe and makes `steps` minibatches.
void Predict(const PlanQuestion& question, const v1::Job& job, const Recipe& recipe,
             const ModelShape& shape, double steps, PlannedMethod* planned) {
  planned->push = PushForecast(job, recipe, shape);
  planned->pull = PullForecast(job, recipe, shape);
  planned->servers = job.cluster().servers().count();
  planned->between_workers = recipe.placement == Placement::kReplicated;
  planned->local_steps = recipe.exchanges_once ? 0 : recipe.local_steps;
  if (planned->push.certainty == Certainty::kUnknown) {
    planned->unknown = "what it sends grows to tau";
  } else if (recipe.subnets && !question.row_entries) {
    planned->unknown = "a subnet's part of a step follows from the rows, which are not here";
  } else if (recipe.exchanges_once && steps == 0) {
    planned->unknown =
        "it exchanges once in a job of so many epochs of data that were not read; give train.steps";
  }
  if (!planned->unknown.empty()) return;

  const KeySet keys = WorkerKeys(job, recipe, shape);
  const double entries = question.row_entries.value_or(0);
  const StepShare share(shape, entries > 0 ? entries : static_cast<double>(shape.inputs()));
  ExchangeWork work;
  work.local_steps =
      recipe.exchanges_once ? std::max(1.0, steps) : static_cast<double>(recipe.local_steps);
  work.step_seconds =
      recipe.subnets ? question.step_seconds_of_subnets * share.Of(keys) : question.step_seconds;
  work.push_bytes = static_cast<double>(planned->push.bytes);
  work.pull_bytes = static_cast<double>(planned->pull.bytes);
  work.fold_bytes = FoldBytes(recipe, shape, planned->push);
  work.busiest_share = BusiestShare(keys);
  work.waits_for_all = recipe.lockstep;
  if (recipe.overlaps) {
    work.overlapped_steps =
        recipe.fragments ? static_cast<double>(recipe.fragments->delay) : work.local_steps;
  }
  work.between_workers = planned->between_workers;
  const CycleTime time = TimeOf(work, question.machines);
  planned->step_bytes =
      (work.push_bytes + (planned->between_workers ? 0 : work.pull_bytes)) / work.local_steps;
  planned->step_seconds = time.seconds / work.local_steps;
  planned->computing = time.computing;
  planned->limit = time.limit;
}

// The work of one worker of a half, from what the half exchanges.
HalfWork WorkOf(const HalfForecast& half, double batch_seconds) {
  int64_t entries = 0;
  for (const ShardSlices& slices : half.keys.slices) entries += slices.size;
  HalfWork work;
  work.batch_seconds = batch_seconds;
  work.push_bytes = static_cast<double>(half.push.bytes);
  work.pull_bytes = static_cast<double>(half.pull.bytes);
  work.fold_bytes = 4.0 * static_cast<double>(entries);
  work.busiest_share = BusiestShare(half.keys);
  return work;
}

// What both halves do and move where the model is cut as `recipe` says.
HalvesWork WorkOf(const PlanQuestion& question, const v1::Job& job, const Recipe& recipe,
                  const ModelShape& shape) {
  const LayerCut& cut = recipe.split->cut;
  const HalfForecast front = ForecastOfHalf(job, recipe, shape, /*is_linear=*/false);
  const HalfForecast linear = ForecastOfHalf(job, recipe, shape, /*is_linear=*/true);
  const ActivationForecast activations = ForecastOfActivations(job, *recipe.split, shape);
  // A model with convolutions has rows of all inputs.
  const StepShare share(shape, static_cast<double>(shape.inputs()));
  HalvesWork work = {WorkOf(front, question.step_seconds * share.Of(cut.front())),
                     WorkOf(linear, question.step_seconds * share.Of(cut.back())),
                     static_cast<double>(activations.there_bytes),
                     static_cast<double>(activations.back_bytes)};
  if (recipe.split->linear_servers > 0) {
    work.linear.servers_beside = recipe.split->linear_servers;
    work.front.servers_beside = job.cluster().servers().count() - recipe.split->linear_servers;
  }
  return work;
}

double RowsPerSecond(const v1::Job& job, const HalvesWork& work, const Machines& machines,
                     int64_t linear_workers) {
  const double rows =
      static_cast<double>((machines.workers - linear_workers) * job.train().batch_size());
  const double seconds = TimeOf(work, machines, linear_workers).seconds;
  return seconds > 0 ? rows / seconds : 0;
}

// The best number of linear workers, or `given` if that is one, for the cut that `recipe` has.
HalvesChoice ChoiceOf(const PlanQuestion& question, const v1::Job& job, const Recipe& recipe,
                      const ModelShape& shape, std::optional<int64_t> given) {
  const HalvesWork work = WorkOf(question, job, recipe, shape);
  HalvesChoice choice;
  choice.cut = shape.layers[static_cast<size_t>(recipe.split->cut.layer)].name;
  choice.linear_workers =
      given.value_or(BestLinearWorkers(work, question.machines, kJobWorkersMax));
  choice.rows_per_second = RowsPerSecond(job, work, question.machines, choice.linear_workers);
  return choice;
}

// What would be best behind each cut that the model has, in the order of its layers.
std::vector<HalvesChoice> ChoicesOf(const PlanQuestion& question, const v1::Job& job, Recipe recipe,
                                    const ModelShape& shape, std::optional<int64_t> given) {
  std::vector<HalvesChoice> choices;
  for (const ModelLayer& layer : shape.layers) {
    const absl::StatusOr<LayerCut> cut = CutBeforeLinear(job.model(), layer.name);
    if (!cut.ok()) continue;
    recipe.split->cut = *cut;
    choices.push_back(ChoiceOf(question, job, recipe, shape, given));
  }
  return choices;
}

bool IsOpen(const Recipe& recipe, absl::string_view key) {
  return std::any_of(recipe.open_keys.begin(), recipe.open_keys.end(), [&](const auto& open) {
    return absl::EndsWith(open, absl::StrCat(".", key));
  });
}

bool TrainsMore(const HalvesChoice& one, const HalvesChoice& other) {
  return one.rows_per_second > other.rows_per_second;
}

std::vector<HalvesChoice> RankChoices(const PlanQuestion& question, const v1::Job& job,
                                      const Recipe& recipe, const ModelShape& shape) {
  // A number that the job gives stays, also where another one would be better: only `auto` asks.
  std::optional<int64_t> given;
  if (!IsOpen(recipe, kOpenCount)) given = recipe.split->linear_workers;
  std::vector<HalvesChoice> choices =
      IsOpen(recipe, kOpenCut) ? ChoicesOf(question, job, recipe, shape, given)
                               : std::vector{ChoiceOf(question, job, recipe, shape, given)};
  // Ways that take the same time stay in the order of their cuts, so that the choice is the same on every run.
  std::stable_sort(choices.begin(), choices.end(), TrainsMore);
  return choices;
}

// Takes the best of what the job leaves open, as whoever starts it does.
void CloseKeys(const PlanQuestion& question, const v1::Job& job, const ModelShape& shape,
               Recipe* recipe) {
  const HalvesChoice best = RankChoices(question, job, *recipe, shape).front();
  const absl::StatusOr<LayerCut> cut = CutBeforeLinear(job.model(), best.cut);
  TESSERA_CHECK(cut.ok());
  recipe->split->cut = *cut;
  recipe->split->linear_workers = static_cast<int>(best.linear_workers);
  recipe->open_keys.clear();
}

// Predicts a job whose layers are dealt to workers. In the job's own row as many workers are linear as it says;
// elsewhere as many as are best.
void PredictHalves(const PlanQuestion& question, const v1::Job& job, Recipe recipe,
                   const ModelShape& shape, PlannedMethod* planned) {
  const Machines& machines = question.machines;
  PlannedHalves halves;
  halves.is_chosen = !recipe.open_keys.empty();
  if (halves.is_chosen) CloseKeys(question, job, shape, &recipe);
  halves.cut = shape.layers[static_cast<size_t>(recipe.split->cut.layer)].name;
  const HalvesWork work = WorkOf(question, job, recipe, shape);
  halves.linear_servers = recipe.split->linear_servers;
  halves.best_linear_workers = BestLinearWorkers(work, machines, kJobWorkersMax);
  halves.linear_workers =
      planned->is_own ? recipe.split->linear_workers : halves.best_linear_workers;
  halves.best_rows_per_second = RowsPerSecond(job, work, machines, halves.best_linear_workers);
  halves.best = ChoiceOf(question, job, recipe, shape, halves.best_linear_workers);
  for (const HalvesChoice& choice : ChoicesOf(question, job, recipe, shape, std::nullopt)) {
    if (TrainsMore(choice, halves.best)) halves.best = choice;
  }

  recipe.split->linear_workers = static_cast<int>(halves.linear_workers);
  recipe.split->front_workers = static_cast<int>(machines.workers - halves.linear_workers);
  planned->push = PushForecast(job, recipe, shape);
  planned->pull = PullForecast(job, recipe, shape);
  planned->servers = job.cluster().servers().count();
  if (planned->push.certainty == Certainty::kUnknown) {
    planned->unknown = "what it sends grows to tau";
    return;
  }
  const auto n_c = static_cast<double>(recipe.split->front_workers);
  const auto n_f = static_cast<double>(recipe.split->linear_workers);
  const double crossing = work.activation_bytes + work.gradient_bytes;
  halves.front_bytes = CrossingBytes(work.front, n_c) + crossing;
  halves.linear_bytes = CrossingBytes(work.linear, n_f) + n_c / n_f * crossing;
  const StanzaQuantities paper = {work.front.batch_seconds,        work.linear.batch_seconds,
                                  work.gradient_bytes / 4,         work.front.fold_bytes / 4,
                                  static_cast<double>(shape.size), machines.bandwidth / 4};
  halves.paper_step_seconds =
      StanzaStepSeconds(paper, recipe.split->front_workers, recipe.split->linear_workers);
  halves.paper_server_step_seconds =
      ServerStepSeconds(paper, recipe.split->front_workers, planned->servers);
  halves.paper_linear_workers = BestLinearByStanza(paper, machines.workers);
  const CycleTime time = TimeOf(work, machines, halves.linear_workers);
  planned->step_bytes = (n_c * halves.front_bytes + n_f * halves.linear_bytes) / (n_c + n_f);
  planned->step_seconds = time.seconds;
  planned->computing = time.computing;
  planned->limit = time.limit;
  planned->rows_per_second = RowsPerSecond(job, work, machines, halves.linear_workers);
  planned->halves = halves;
}

// Adds a job's tail, whose steps are those of another method: all numbers become means over both.
void AddTail(const PlannedMethod& tail, double part, PlannedMethod* planned) {
  const auto mean = [part](double of_most, double of_tail) {
    return (1 - part) * of_most + part * of_tail;
  };
  const double seconds = mean(planned->step_seconds, tail.step_seconds);
  const double computing =
      mean(planned->step_seconds * planned->computing, tail.step_seconds * tail.computing);
  if (part * tail.step_seconds > (1 - part) * planned->step_seconds) planned->limit = tail.limit;
  planned->step_bytes = mean(planned->step_bytes, tail.step_bytes);
  planned->step_seconds = seconds;
  planned->computing = seconds > 0 ? computing / seconds : 1;
  for (auto [most, last] :
       {std::pair(&planned->push, &tail.push), std::pair(&planned->pull, &tail.pull)}) {
    most->bytes = static_cast<int64_t>(
        mean(static_cast<double>(most->bytes), static_cast<double>(last->bytes)));
    most->certainty = Certainty::kAbout;
  }
}

// Fills in what the recipe moves and takes, or why that is not known.
void Predict(const PlanQuestion& question, const v1::Job& job, const Recipe& recipe,
             PlannedMethod* planned) {
  const absl::StatusOr<ModelShape> shape = ExchangedShape(job.model(), recipe);
  if (!shape.ok()) {
    planned->refused = std::string(shape.status().message());
    return;
  }
  const JobFacts facts = FactsOf(job, recipe, *shape, JobDigest(job));
  if (facts.members_max > 0 && question.machines.workers > facts.members_max) {
    planned->refused = absl::StrCat(
        "workers are ", question.machines.workers, ", want at most ", facts.members_max,
        ", the neurons of the least hidden layer, which are dealt to them");
    return;
  }
  if (recipe.split) return PredictHalves(question, job, recipe, *shape, planned);
  const double steps = StepsOf(job, question.train_rows);
  Predict(question, job, recipe, *shape, steps, planned);
  if (recipe.tail_steps > 0 && steps == 0) {
    planned->unknown = "its tail is a part of epochs of data that were not read; give train.steps";
  } else if (recipe.tail_steps > 0 && planned->unknown.empty()) {
    PlannedMethod tail;
    Predict(question, job, TailOf(recipe), *shape, steps, &tail);
    AddTail(tail, std::min(1.0, static_cast<double>(recipe.tail_steps) / steps), planned);
  }
  const double rows = static_cast<double>(question.machines.workers) *
                      static_cast<double>(job.train().batch_size());
  planned->rows_per_second = planned->step_seconds > 0 ? rows / planned->step_seconds : 0;
}

PlannedMethod PlanOne(const PlanQuestion& question, const FieldDescriptor& method, bool is_own) {
  PlannedMethod planned;
  planned.name = method.name();
  planned.is_own = is_own;
  JobReading reading = ReadWith(question, method, is_own, MayBeOpen({false}));
  const absl::StatusOr<Recipe> recipe = RecipeFor(reading.job);
  if (!reading.ok()) {
    planned.refused = Refusal(question, reading.errors.front());
  } else if (!recipe.ok()) {
    planned.refused = std::string(recipe.status().message());
  } else {
    reading.job.mutable_cluster()->set_workers(question.machines.workers);
    Predict(question, reading.job, *recipe, &planned);
  }
  return planned;
}

// The number of fragments that local_steps must be a multiple of.
int64_t FragmentsOf(const v1::Job& job, bool is_own) {
  const absl::StatusOr<Recipe> recipe = RecipeFor(job);
  return is_own && recipe.ok() && recipe->fragments ? recipe->fragments->count : 1;
}

// The least local_steps, a multiple of `unit`, with which the method computes for question.utilisation of the time; 0:
// none up to the most that a job may have, or the method has none.
int64_t UtilisingSteps(const PlanQuestion& question, const FieldDescriptor& method, bool is_own,
                       int64_t unit) {
  if (method.message_type()->FindFieldByName("local_steps") == nullptr) return 0;
  const auto reaches = [&](int64_t multiple) {
    PlanQuestion asked = question;
    asked.local_steps = static_cast<int>(multiple * unit);
    const PlannedMethod planned = PlanOne(asked, method, is_own);
    return planned.refused.empty() && planned.unknown.empty() &&
           planned.computing >= *question.utilisation;
  };
  // The share of computing grows with the steps between two exchanges: doubled until it is enough, then halved.
  int64_t enough = 1;
  while (!reaches(enough)) {
    if (enough * unit * 2 > kSearchedStepsMax) return 0;
    enough *= 2;
  }
  int64_t few = enough / 2;
  while (enough - few > 1) {
    const int64_t middle = few + (enough - few) / 2;
    (reaches(middle) ? enough : few) = middle;
  }
  return enough * unit;
}

}  // namespace

JobReading ReadPlannedJob(const PlanQuestion& question, const JobOptions& options) {
  const JobReading as_it_is = ReadJobFile(question.job_path, question.overrides, options);
  const google::protobuf::Descriptor& methods = *v1::Method::descriptor();
  const FieldDescriptor* const own = methods.FindFieldByNumber(as_it_is.job.method().kind_case());
  JobReading planned =
      own == nullptr ? as_it_is : ReadWith(question, *own, /*is_own=*/true, options);
  // A job that is right on its own machines counts as right, whatever these make of its method.
  return !planned.ok() && as_it_is.ok() ? as_it_is : planned;
}

std::vector<HalvesChoice> RankHalves(const PlanQuestion& question, const v1::Job& job) {
  const absl::StatusOr<Recipe> recipe = RecipeFor(job);
  // Of methods whose workers all have the same layers there is nothing to rank.
  if (!recipe.ok() || !recipe->split) return {};
  const absl::StatusOr<ModelShape> shape = ExchangedShape(job.model(), *recipe);
  if (!shape.ok()) return {};
  return RankChoices(question, job, *recipe, *shape);
}

std::vector<PlannedMethod> PlanMethods(const PlanQuestion& question) {
  const JobReading own = ReadPlannedJob(question, MayBeOpen({false}));
  const google::protobuf::Descriptor& methods = *v1::Method::descriptor();
  std::vector<PlannedMethod> all;
  for (int i = 0; i < methods.field_count(); ++i) {
    const FieldDescriptor& method = *methods.field(i);
    const bool is_own = own.job.method().kind_case() == method.number();
    PlannedMethod planned = PlanOne(question, method, is_own);
    if (question.utilisation && planned.refused.empty()) {
      planned.utilising_steps =
          UtilisingSteps(question, method, is_own, FragmentsOf(own.job, is_own));
    }
    all.push_back(std::move(planned));
  }
  return all;
}

}  // namespace tessera
