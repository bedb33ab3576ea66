#include "worker/checkpoint/worker_saver.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <set>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "absl/time/clock.h"
#include "common/base/check.h"
#include "common/base/limits.h"
#include "common/base/log.h"
#include "common/base/long_wait.h"
#include "common/base/steady_clock.h"
#include "common/checkpoint/checkpoint.h"
#include "common/checkpoint/durable_file.h"
#include "common/checkpoint/safetensors_reader.h"
#include "common/config/job_digest.h"
#include "common/layout/layer_cut.h"
#include "common/rule/optimizer.h"
#include "worker/train/message_coordination.h"

namespace tessera {
namespace {

constexpr absl::string_view kStatePrefix = "state.";
constexpr absl::string_view kResidualPrefix = "residual.";
constexpr absl::string_view kLearned = "codec";
constexpr absl::string_view kStillWriting =
    "the file of an earlier checkpoint is still being written";
constexpr absl::Duration kAskAgain = absl::Milliseconds(20);
// The time after which whoever waits for a file says so, and says it again.
constexpr absl::Duration kTellOfWait = absl::Seconds(2);
constexpr absl::Duration kTellOfWaitAgain = absl::Seconds(30);

bool IsResidual(absl::string_view array) { return absl::StartsWith(array, kResidualPrefix); }

bool IsOfCodec(const PrivateState::Array& array) {
  return IsResidual(array.name) || array.name == kLearned;
}

// Whether the worker's codec keeps residuals.
bool HoldsBack(const PrivateState& state) {
  return std::any_of(state.arrays.begin(), state.arrays.end(),
                     [](const PrivateState::Array& array) { return IsResidual(array.name); });
}

// Whether the file has residuals that are not empty.
bool HoldsBack(const SafetensorsReader& file) {
  return std::any_of(file.tensors().begin(), file.tensors().end(), [](const TensorSpec& tensor) {
    return IsResidual(tensor.name) && tensor.size() > 0;
  });
}

// The sites of the round that was trained before: evaluation multiplies sums over the sites' neurons by 1 over
// this number.
uint32_t SitesOf(const Manifest& manifest) {
  double share = 1;
  for (const CheckpointParameter& parameter : manifest.parameters) {
    if (parameter.export_factor > 0) share = std::min(share, parameter.export_factor);
  }
  return static_cast<uint32_t>(std::lround(std::min(1 / share, 1.0 * kJobWorkersMax)));
}

// The name of the optimizer's state that an array belongs to; empty: it belongs to none.
absl::string_view StateOf(absl::string_view array) {
  return absl::ConsumePrefix(&array, kStatePrefix) ? array.substr(0, array.find('.')) : "";
}

// What a file calls the states that it has, by their names. A file of before it named them has their places
// among `names`, those of the job that it is of.
std::map<std::string, std::string> StatesIn(const SafetensorsReader& file,
                                            const std::vector<std::string>& names) {
  std::map<std::string, std::string> states;
  for (const TensorSpec& tensor : file.tensors()) {
    // The array's name is "state.NAME.PARAMETER".
    const std::string called(StateOf(tensor.name));
    if (called.empty()) continue;
    size_t place = 0;
    // Older builds wrote a state's number, such as "state.0.", in the order of the optimizer's states.
    const bool is_place = absl::SimpleAtoi(called, &place) && place < names.size();
    states[is_place ? names[place] : called] = called;
  }
  return states;
}

// Empty: what `state` has of an optimizer is what was saved. Whoever needs none leaves what there is.
std::string OtherStates(const std::map<std::string, std::string>& saved,
                        const PrivateState& state) {
  std::set<std::string> were, are;
  for (const auto& [name, called] : saved) were.insert(name);
  for (const PrivateState::Array& array : state.arrays) are.emplace(StateOf(array.name));
  are.erase("");
  // A worker whose servers keep the state needs none of the file's.
  if (are.empty() || were == are) return "";
  return absl::StrCat("states of the optimizer were ",
                      were.empty() ? "none" : absl::StrJoin(were, ", "), ", now ",
                      absl::StrJoin(are, ", "));
}

// Gives the arrays of the optimizer's states the names that the file has for them: an older build numbered them.
void NameAsIn(const std::map<std::string, std::string>& saved, PrivateState* state) {
  for (PrivateState::Array& array : state->arrays) {
    const absl::string_view name = StateOf(array.name);
    if (name.empty()) continue;
    array.name = absl::StrCat(kStatePrefix, saved.at(std::string(name)),
                              array.name.substr(kStatePrefix.size() + name.size()));
  }
}

// The halves of the layers of whose gradients a worker's file has something that was held back: both, where it had all
// layers.
struct HeldHalves {
  bool front = false;
  bool linear = false;
};

// Which halves of the layers the file holds residuals of.
HeldHalves HalvesIn(const SafetensorsReader& file, const LayerCut& cut) {
  HeldHalves held;
  for (int p = 0; p < cut.parameters; ++p) {
    const TensorSpec* const tensor = file.Find(absl::StrCat(kResidualPrefix, p));
    // An empty residual is that of layers which another worker had.
    if (tensor != nullptr && tensor->size() > 0) {
      (p < cut.parameter ? held.front : held.linear) = true;
    }
  }
  return held;
}

struct Taken {
  bool residuals = false;
  bool learned = false;
};

// Adds what a codec held back, times `factor`, and if it `learns` takes over what it had learned.
absl::StatusOr<Taken> TakeFrom(const SafetensorsReader& file, float factor, bool learns,
                               const PrivateState& state) {
  Taken taken;
  std::vector<float> held;
  for (const PrivateState::Array& array : state.arrays) {
    const bool is_learned = array.name == kLearned;
    if (is_learned ? !learns : !IsResidual(array.name)) continue;
    const auto size = static_cast<int64_t>(array.values.size());
    const auto tensor = file.Want(array.name, "F32", {size});
    if (!tensor.ok()) continue;  // Another codec than before.
    held.resize(array.values.size());
    TESSERA_RETURN_IF_ERROR(
        file.Read(**tensor, 0, size * static_cast<int64_t>(sizeof(float)), held.data()));
    taken.learned |= is_learned;
    taken.residuals |= !is_learned && size > 0;
    for (int64_t i = 0; i < size; ++i) {
      // A zero keeps its sign, as 0 + -0 would be 0.
      const bool is_first = is_learned || array.values[i] == 0;
      const float value = is_learned ? held[i] : factor * held[i];
      array.values[i] = is_first ? value : array.values[i] + value;
    }
  }
  return taken;
}

}  // namespace

WorkerSaver::WorkerSaver(Options options) : options_(std::move(options)) {
  // Two threads: the coordinator is told of files that are refused while the disk hangs.
  writer_ = std::thread([this] { Write(); });
  teller_ = std::thread([this] { Tell(); });
}

WorkerSaver::~WorkerSaver() {
  // A file under way is finished: the checkpoint may need it.
  AwaitIdle();
  {
    absl::MutexLock lock(&mutex_);
    stopping_ = true;
  }
  writer_.join();
  teller_.join();
}

bool WorkerSaver::IsIdle() {
  absl::MutexLock lock(&mutex_);
  return !task_.has_value() && untold_.empty();
}

void WorkerSaver::AwaitIdle() {
  LongWait wait(SteadyNow(), kTellOfWait, kTellOfWaitAgain);
  while (!IsIdle()) {
    if (told_.WaitUntil(wait.next()) || !wait.IsDue(SteadyNow())) continue;
    Log(LogLevel::kWarning,
        absl::StrCat("checkpoint: waiting until this worker's file is written and told of, for=",
                     wait.SoFar(SteadyNow()),
                     "; the disk of checkpoint.directory may hang; a second signal ends this "
                     "process at once"));
  }
}

void WorkerSaver::Save(uint64_t number, uint64_t folder_step, const WorkerCursor& cursor,
                       const PrivateState& state) {
  {
    absl::MutexLock lock(&mutex_);
    if (task_.has_value()) {
      // The one before may have failed by another's fault, and the next been begun while this disk still hangs.
      Log(LogLevel::kWarning, absl::StrCat("checkpoint: worker file not written number=", number,
                                           " why=\"", kStillWriting, "\""));
      v1::SavedRequest& refused = untold_.emplace_back();
      refused.set_number(number);
      refused.set_error(std::string(kStillWriting));
      // The coordinator gives the checkpoint up at once, rather than wait for a worker that cannot write.
      return;
    }
  }
  // Without the lock: copy_ is the train loop's while no task is set.
  copy_.cursor = cursor;
  copy_.facts = options_.facts;
  copy_.facts.norm_constants = cursor.norm_constants;
  copy_.local_steps = state.local_steps != nullptr ? *state.local_steps : 0;
  copy_.sites = state.sites != nullptr ? *state.sites : 0;
  copy_.arrays.resize(state.arrays.size());
  for (size_t i = 0; i < state.arrays.size(); ++i) {
    copy_.arrays[i].first = state.arrays[i].name;
    copy_.arrays[i].second.assign(state.arrays[i].values.begin(), state.arrays[i].values.end());
  }
  copy_.bytes.clear();
  for (const PrivateState::Bytes& bytes : state.bytes) {
    copy_.bytes.emplace_back(bytes.name, *bytes.content);
  }
  absl::MutexLock lock(&mutex_);
  task_ = Task{number, folder_step};
}

void WorkerSaver::SaveLast(const WorkerCursor& cursor, const PrivateState& state) {
  AwaitIdle();
  // The coordinator may begin a checkpoint while this worker is on its way out.
  uint64_t saved = 0;  // One that fails may be followed by another.
  while (true) {
    v1::SavedRequest question;
    question.set_writes_again(true);
    const absl::StatusOr<v1::SavedReply> reply = options_.tell(question);
    if (!reply.ok()) return;
    if (reply->has_mark() && reply->mark().number() > saved) {
      saved = reply->mark().number();
      Save(saved, reply->mark().folder_step(), cursor, state);
      AwaitIdle();
    } else if (!reply->wait() && !reply->has_mark()) {
      return;
    }
    absl::SleepFor(kAskAgain);
  }
}

void WorkerSaver::Write() {
  while (true) {
    Task task;
    {
      absl::MutexLock lock(&mutex_);
      const auto has_task = [this]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) {
        return stopping_ || task_.has_value();
      };
      // The lock is released while it waits.
      mutex_.Await(absl::Condition(&has_task));
      if (!task_.has_value()) return;
      task = *task_;
    }
    // copy_ is this thread's until the task is reset.
    v1::SavedRequest request;
    request.set_number(task.number);
    *request.mutable_progress() = ToProto(copy_.cursor.progress);
    request.set_evaluation_due(copy_.cursor.evaluation_due);
    request.set_sites(static_cast<uint64_t>(copy_.sites));
    const absl::StatusOr<CheckpointFile> file =
        options_.parts == nullptr
            ? absl::FailedPreconditionError("checkpoint.directory is not set here")
            : WriteWorkerFile(options_.parts, task.folder_step, options_.rank, copy_);
    if (file.ok()) {
      request.mutable_file()->set_name(file->name);
      request.mutable_file()->set_bytes(static_cast<uint64_t>(file->bytes));
      request.mutable_file()->set_sum(file->sum);
    } else {
      request.set_error(std::string(file.status().message()));
      Log(LogLevel::kWarning, absl::StrCat("checkpoint: worker file not written number=",
                                           task.number, " why=\"", request.error(), "\""));
    }
    // Told first, and then free for the next: in this order IsIdle is true only when all is done.
    absl::MutexLock lock(&mutex_);
    untold_.push_back(std::move(request));
    task_.reset();
  }
}

void WorkerSaver::Tell() {
  while (true) {
    v1::SavedRequest request;
    {
      absl::MutexLock lock(&mutex_);
      const auto has_news = [this]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) {
        return stopping_ || !untold_.empty();
      };
      mutex_.Await(absl::Condition(&has_news));
      if (untold_.empty()) return;
      // It stays in the list until it is told, so that IsIdle sees it.
      request = untold_.front();
    }
    const uint64_t number = request.number();
    if (const auto told = options_.tell(std::move(request)); !told.ok()) {
      Log(LogLevel::kWarning, absl::StrCat("checkpoint: worker file not told of number=", number,
                                           " why=\"", told.status().message(), "\""));
    }
    {
      absl::MutexLock lock(&mutex_);
      untold_.pop_front();
    }
    told_.Notify();
  }
}

std::string WorkerSaver::OtherWorkers(const Manifest& manifest) const {
  // Ranks 0 to workers - 1, all of them.
  if (manifest.HasRanks(static_cast<uint64_t>(options_.workers))) return "";
  const auto saved = static_cast<int64_t>(manifest.members.size());
  if (saved != options_.workers) {
    return absl::StrCat("workers were ", saved, ", now ", options_.workers);
  }
  std::set<uint32_t> ranks;
  for (const CheckpointMember& member : manifest.members) ranks.insert(member.rank);
  return absl::StrCat("workers had the ranks ", absl::StrJoin(ranks, ", "), ", now 0 to ",
                      options_.workers - 1);
}

float WorkerSaver::FactorFrom(const Manifest& manifest, int64_t in_mean, int64_t takers) const {
  const v1::Job job = JobOfText(manifest.job_text);
  const absl::StatusOr<Recipe> recipe = RecipeFor(job);
  // The job file of the checkpoint says what a push weighed then.
  // A job that this build does not know is taken for one whose pushes weigh as this one's.
  const PushWeight weight = recipe.ok() ? recipe->push_weight : options_.push_weight;
  const int64_t pushes = recipe.ok() ? recipe->pushes : options_.pushes;
  const int64_t before = PushesInMean(weight, pushes, in_mean, job.cluster().workers());
  const int64_t now = PushesInMean(options_.push_weight, options_.pushes, takers, options_.workers);
  return before > 0 ? static_cast<float>(now) / static_cast<float>(before) : 1;
}

absl::StatusOr<bool> WorkerSaver::WasHalf(const Manifest& manifest,
                                          const PrivateState& state) const {
  const CheckpointFile* const listed = manifest.FindFile(WorkerFileName(options_.rank.value()));
  if (listed == nullptr) return false;
  TESSERA_ASSIGN_OR_RETURN(const std::unique_ptr<SafetensorsReader> file, OpenSaved(*listed));
  return std::any_of(state.arrays.begin(), state.arrays.end(),
                     [&file](const PrivateState::Array& array) {
                       if (!IsResidual(array.name) || array.values.empty()) return false;
                       const TensorSpec* const tensor = file->Find(array.name);
                       // The parameter was in a file of one half without entries.
                       return tensor != nullptr && tensor->size() == 0;
                     });
}

absl::StatusOr<WorkerSaver::Deal> WorkerSaver::DealAmongAll(const Manifest& manifest,
                                                            const PrivateState& state) const {
  Deal deal;
  deal.why = OtherWorkers(manifest);
  if (deal.why.empty()) {
    bool was_half = false;
    if (HoldsBack(state)) {
      TESSERA_ASSIGN_OR_RETURN(was_half, WasHalf(manifest, state));
    }
    if (!was_half) return deal;
    deal.why = "workers had halves of the layers";
  }
  // A mean was over those that had the first parameter: all, or those in front of a cut.
  int64_t in_mean = 0;
  for (const CheckpointMember& member : manifest.members) {
    const CheckpointFile* const listed = manifest.FindFile(WorkerFileName(member.rank));
    in_mean += 1;
    if (listed == nullptr) continue;
    // Rank r of now takes the files of ranks r, r + workers and so on of then.
    if (member.rank % options_.workers == options_.rank.value()) deal.files.push_back(listed);
    if (!HoldsBack(state)) continue;
    TESSERA_ASSIGN_OR_RETURN(const std::unique_ptr<SafetensorsReader> file, OpenSaved(*listed));
    const TensorSpec* const first = file->Find(absl::StrCat(kResidualPrefix, 0));
    // A worker of the linear layers alone was not in the mean of the first parameter.
    in_mean -= first != nullptr && first->size() == 0;
  }
  deal.factor = FactorFrom(manifest, in_mean, options_.workers);
  return deal;
}

absl::StatusOr<WorkerSaver::Deal> WorkerSaver::DealInHalves(const Checkpoint& checkpoint) const {
  const Manifest& manifest = checkpoint.manifest();
  const LayerSplit& split = *options_.split;
  const bool is_linear = split.is_linear(options_.rank);
  const auto takers = static_cast<size_t>(is_linear ? split.linear_workers : split.front_workers);
  const size_t place = options_.rank.value() - (is_linear ? split.front_workers : 0);
  Deal deal;
  deal.why = OtherWorkers(manifest);
  size_t saved = 0, saved_front = 0;
  for (const CheckpointMember& member : manifest.members) {
    const CheckpointFile* const listed = manifest.FindFile(WorkerFileName(member.rank));
    if (listed == nullptr) continue;
    TESSERA_ASSIGN_OR_RETURN(const std::unique_ptr<SafetensorsReader> file, OpenSaved(*listed));
    const HeldHalves held = HalvesIn(*file, split.cut);
    saved_front += held.front;
    if (is_linear ? held.linear : held.front) {
      // The j-th file that has something of this half goes to the one in place j modulo the takers.
      if (saved++ % takers == place) deal.files.push_back(listed);
    }
    // Whoever takes up the file of its rank would leave this.
    const bool is_left = split.is_linear(Rank(member.rank)) ? held.front : held.linear;
    if (is_left && deal.why.empty()) deal.why = "ranks train other layers than they did";
  }
  deal.factor = FactorFrom(manifest, static_cast<int64_t>(saved_front), split.front_workers);
  return deal;
}

absl::StatusOr<int> WorkerSaver::TakeResiduals(const Deal& deal, const PrivateState& state) const {
  int taken = 0;
  bool has_learned = false;
  for (const CheckpointFile* const listed : deal.files) {
    TESSERA_RETURN_IF_ERROR(Bring(*listed));
    TESSERA_ASSIGN_OR_RETURN(const std::unique_ptr<SafetensorsReader> file,
                             OpenListed(PathOf(*listed), *listed));
    // One of them has learned for all; the first one's is taken.
    TESSERA_ASSIGN_OR_RETURN(const Taken from, TakeFrom(*file, deal.factor, !has_learned, state));
    has_learned |= from.learned;
    taken += from.residuals;
  }
  return taken;
}

std::optional<WorkerCursor> WorkerSaver::Drop(const Manifest& manifest, absl::string_view why,
                                              int residuals_of) const {
  Log(LogLevel::kWarning,
      absl::StrCat("checkpoint: worker state dropped rank=", options_.rank.value(),
                   " step=", manifest.step, " residuals_of=", residuals_of, " why=\"", why, "\""));
  return std::nullopt;
}

absl::StatusOr<std::optional<WorkerCursor>> WorkerSaver::TakeUp(const Manifest& manifest,
                                                                const CheckpointFile& listed,
                                                                const PrivateState& state) const {
  const std::string path = PathOf(listed);
  TESSERA_RETURN_IF_ERROR(Bring(listed));
  TESSERA_ASSIGN_OR_RETURN(const std::unique_ptr<SafetensorsReader> file, OpenListed(path, listed));
  // Residuals are cleared even where the rest is dropped: each worker does so, for its own.
  for (const PrivateState::Array& array : state.arrays) {
    if (IsResidual(array.name)) std::fill(array.values.begin(), array.values.end(), 0.0f);
  }
  const auto members = static_cast<int64_t>(manifest.members.size());
  // Under its own ranks the job goes on as it was, and pushes weigh what they weighed.
  const float factor = options_.goes_back ? 1 : FactorFrom(manifest, members, options_.workers);
  TESSERA_ASSIGN_OR_RETURN(const Taken taken, TakeFrom(*file, factor, /*learns=*/true, state));
  const std::map<std::string, std::string> saved =
      StatesIn(*file, StateNames(JobOfText(manifest.job_text).train().optimizer()));
  if (const std::string other = OtherStates(saved, state); !other.empty()) {
    return Drop(manifest, other, taken.residuals);
  }
  PrivateState rest = state;
  rest.arrays.erase(std::remove_if(rest.arrays.begin(), rest.arrays.end(), IsOfCodec),
                    rest.arrays.end());
  NameAsIn(saved, &rest);
  // All tensors are wanted before any is read, so that a file that does not fit changes nothing.
  for (const PrivateState::Array& array : rest.arrays) {
    if (array.may_lack && file->Find(array.name) == nullptr) continue;
    const auto size = static_cast<int64_t>(array.values.size());
    const auto wanted = file->Want(array.name, "F32", {size});
    if (!wanted.ok()) return Drop(manifest, wanted.status().message(), taken.residuals);
  }
  // A codec that keeps nothing has no place for it.
  if (!taken.residuals && HoldsBack(*file)) {
    Log(LogLevel::kWarning,
        absl::StrCat("checkpoint: what was held back is dropped rank=", options_.rank.value(),
                     " step=", manifest.step, " why=\"another codec than before\""));
  }
  TESSERA_ASSIGN_OR_RETURN(WorkerCursor cursor, ReadWorkerFile(path, rest));
  return std::optional<WorkerCursor>(std::move(cursor));
}

std::string WorkerSaver::PathOf(const CheckpointFile& listed) const {
  return absl::StrCat(options_.restored, "/", listed.name);
}

absl::Status WorkerSaver::Bring(const CheckpointFile& listed) const {
  return options_.bring == nullptr ? absl::OkStatus() : options_.bring(listed, nullptr);
}

absl::StatusOr<std::unique_ptr<SafetensorsReader>> WorkerSaver::OpenSaved(
    const CheckpointFile& listed) const {
  TESSERA_RETURN_IF_ERROR(Bring(listed));
  return SafetensorsReader::Open(PathOf(listed));
}

absl::StatusOr<std::optional<WorkerCursor>> WorkerSaver::Load(const PrivateState& state) {
  if (options_.restored.empty()) return std::optional<WorkerCursor>();
  if (options_.bring == nullptr) {
    TESSERA_ASSIGN_OR_RETURN(const std::unique_ptr<Checkpoint> checkpoint,
                             Checkpoint::Open(options_.restored));
    return LoadFrom(*checkpoint, state);
  }
  TESSERA_ASSIGN_OR_RETURN(const std::unique_ptr<Checkpoint> checkpoint,
                           Checkpoint::OpenParts(options_.restored, options_.bring));
  absl::StatusOr<std::optional<WorkerCursor>> cursor = LoadFrom(*checkpoint, state);
  if (const absl::Status removed = RemoveFolder(options_.restored); !removed.ok()) {
    Log(LogLevel::kWarning,
        absl::StrCat("checkpoint: what was fetched stays why=\"", removed.message(), "\""));
  }
  return cursor;
}

absl::StatusOr<std::optional<WorkerCursor>> WorkerSaver::LoadFrom(const Checkpoint& checkpoint,
                                                                  const PrivateState& state) {
  const Manifest& manifest = checkpoint.manifest();
  // The folder might have been replaced by another job's since the coordinator read it.
  TESSERA_RETURN_IF_ERROR(CheckSum(manifest, options_.restored_sum, options_.restored));
  // An evaluation before the first round is one of what the saved job had trained.
  if (state.sites != nullptr) *state.sites = SitesOf(manifest);
  if (const auto recipe = RecipeFor(JobOfText(manifest.job_text));
      HoldsBack(state) && recipe.ok() && recipe->payload != options_.payload) {
    return Drop(manifest,
                "what was held back is of gradients in the one method, of changes in the other", 0);
  }
  // In going back all ranks are those that were saved.
  if (!options_.goes_back) {
    Deal deal;
    // Where nothing is held back the other workers' files are nothing to this worker.
    if (options_.split && HoldsBack(state)) {
      TESSERA_ASSIGN_OR_RETURN(deal, DealInHalves(checkpoint));
    } else {
      TESSERA_ASSIGN_OR_RETURN(deal, DealAmongAll(manifest, state));
    }
    if (!deal.why.empty()) {
      TESSERA_ASSIGN_OR_RETURN(const int taken, TakeResiduals(deal, state));
      return Drop(manifest, deal.why, taken);
    }
  }
  const CheckpointFile* const listed = manifest.FindFile(WorkerFileName(options_.rank.value()));
  if (listed == nullptr) return Drop(manifest, "there is none of this rank", 0);
  return TakeUp(manifest, *listed, state);
}

}  // namespace tessera
