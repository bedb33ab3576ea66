#include "worker/checkpoint/worker_saver.h"

#include <algorithm>
#include <map>
#include <memory>
#include <set>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "absl/time/clock.h"
#include "common/base/check.h"
#include "common/base/log.h"
#include "common/checkpoint/checkpoint.h"
#include "common/checkpoint/safetensors_reader.h"
#include "common/checkpoint/safetensors_writer.h"
#include "common/config/job_digest.h"
#include "common/layout/layer_cut.h"
#include "common/rule/optimizer.h"
#include "worker/train/message_coordination.h"

namespace tessera {
namespace {

constexpr absl::string_view kStatePrefix = "state.";
constexpr absl::string_view kResidualPrefix = "residual.";
constexpr absl::string_view kLearned = "codec";
constexpr absl::Duration kAskAgain = absl::Milliseconds(20);

std::string Text(double value) { return absl::StrFormat("%.17g", value); }

// Metadata that must be there.
class Facts {
 public:
  Facts(const SafetensorsReader& file) : file_(file) {}

  void Get(const char* key, uint64_t* value) {
    const std::string text = Find(key);
    if (!absl::SimpleAtoi(text, value)) Wrong(key, text);
  }
  void Get(const char* key, double* value) {
    const std::string text = Find(key);
    if (!absl::SimpleAtod(text, value)) Wrong(key, text);
  }
  // Not one that must be there.
  bool Is(const char* key, absl::string_view text) const { return Find(key) == text; }
  const absl::Status& status() const { return status_; }

 private:
  std::string Find(const char* key) const {
    const auto found = file_.metadata().find(key);
    return found == file_.metadata().end() ? "" : found->second;
  }
  void Wrong(const char* key, const std::string& text) {
    if (!status_.ok()) return;
    status_ = absl::InvalidArgumentError(
        absl::StrCat("\"", file_.path(), "\": ", key, " is \"", text, "\", want a number"));
  }

  const SafetensorsReader& file_;
  absl::Status status_;
};

// A file of a checkpoint, whose sum is that of the manifest.
absl::StatusOr<std::unique_ptr<SafetensorsReader>> OpenListed(const std::string& path,
                                                              const CheckpointFile& listed) {
  TESSERA_ASSIGN_OR_RETURN(const uint64_t sum, SumOfFile(path, listed.bytes));
  if (sum != listed.sum) {
    return absl::InvalidArgumentError(absl::StrCat(
        "\"", path, "\": sum is not the manifest's; its bytes are not the ones that were written"));
  }
  return SafetensorsReader::Open(path);
}

bool HoldsBack(const PrivateState& state) {
  return std::any_of(state.arrays.begin(), state.arrays.end(),
                     [](const PrivateState::Array& array) {
                       return absl::StartsWith(array.name, kResidualPrefix);
                     });
}

// Of the optimizer's state that an array is of; empty: it is of none.
absl::string_view StateOf(absl::string_view array) {
  return absl::ConsumePrefix(&array, kStatePrefix) ? array.substr(0, array.find('.')) : "";
}

// What a file calls the states that it has, by their names. A file of before it named them has their places
// among `names`, those of the job that it is of.
std::map<std::string, std::string> StatesIn(const SafetensorsReader& file,
                                            const std::vector<std::string>& names) {
  std::map<std::string, std::string> states;
  for (const TensorSpec& tensor : file.tensors()) {
    const std::string called(StateOf(tensor.name));
    if (called.empty()) continue;
    size_t place = 0;
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
  if (are.empty() || were == are) return "";
  return absl::StrCat("states of the optimizer were ",
                      were.empty() ? "none" : absl::StrJoin(were, ", "), ", now ",
                      absl::StrJoin(are, ", "));
}

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

HeldHalves HalvesIn(const SafetensorsReader& file, const LayerCut& cut) {
  HeldHalves held;
  for (int p = 0; p < cut.parameters; ++p) {
    const TensorSpec* const tensor = file.Find(absl::StrCat(kResidualPrefix, p));
    if (tensor != nullptr && tensor->size() > 0) {
      (p < cut.parameter ? held.front : held.linear) = true;
    }
  }
  return held;
}

}  // namespace

absl::StatusOr<CheckpointFile> WriteWorkerFile(const std::string& folder, Rank rank,
                                               const WorkerCopy& copy) {
  std::vector<TensorSpec> tensors;
  for (const auto& [name, values] : copy.arrays) {
    TensorSpec tensor;
    tensor.name = name;
    tensor.dtype = "F32";
    tensor.shape = {static_cast<int64_t>(values.size())};
    tensors.push_back(std::move(tensor));
  }
  const TrainProgress& progress = copy.cursor.progress;
  const TensorMetadata metadata = {{"step", absl::StrCat(progress.step)},
                                   {"exchange", absl::StrCat(progress.exchange)},
                                   {"epoch", absl::StrCat(progress.epoch)},
                                   {"examples", absl::StrCat(progress.examples)},
                                   {"train_loss", Text(progress.train_loss)},
                                   {"loss_sum", Text(copy.cursor.loss_sum)},
                                   {"loss_count", absl::StrCat(copy.cursor.loss_count)},
                                   {"evaluation_due", copy.cursor.evaluation_due ? "1" : "0"},
                                   {"local_steps", absl::StrCat(copy.local_steps)}};
  TESSERA_ASSIGN_OR_RETURN(
      std::unique_ptr<SafetensorsWriter> writer,
      SafetensorsWriter::CreatePart(folder, WorkerFileName(rank.value()), tensors, metadata));
  for (const auto& [name, values] : copy.arrays) {
    const int64_t bytes = static_cast<int64_t>(values.size() * sizeof(float));
    TESSERA_RETURN_IF_ERROR(writer->Append(values.data(), bytes));
  }
  return writer->Finish();
}

absl::StatusOr<WorkerCursor> ReadWorkerFile(const std::string& path, const PrivateState& state) {
  TESSERA_ASSIGN_OR_RETURN(const std::unique_ptr<SafetensorsReader> file,
                           SafetensorsReader::Open(path));
  WorkerCursor cursor;
  uint64_t local_steps = 0;
  Facts facts(*file);
  facts.Get("step", &cursor.progress.step);
  facts.Get("exchange", &cursor.progress.exchange);
  facts.Get("epoch", &cursor.progress.epoch);
  facts.Get("examples", &cursor.progress.examples);
  facts.Get("train_loss", &cursor.progress.train_loss);
  facts.Get("loss_sum", &cursor.loss_sum);
  facts.Get("loss_count", &cursor.loss_count);
  facts.Get("local_steps", &local_steps);
  // A file of before it said so leaves it to the job.
  cursor.evaluation_due = !facts.Is("evaluation_due", "0");
  TESSERA_RETURN_IF_ERROR(facts.status());
  for (const PrivateState::Array& array : state.arrays) {
    const int64_t size = static_cast<int64_t>(array.values.size());
    if (array.may_lack && file->Find(array.name) == nullptr) continue;
    TESSERA_ASSIGN_OR_RETURN(const TensorSpec* tensor, file->Want(array.name, "F32", {size}));
    TESSERA_RETURN_IF_ERROR(
        file->Read(*tensor, 0, size * static_cast<int64_t>(sizeof(float)), array.values.data()));
  }
  if (state.local_steps != nullptr) *state.local_steps = local_steps;
  return cursor;
}

WorkerSaver::WorkerSaver(Options options) : options_(std::move(options)) {
  thread_ = std::thread([this] { Run(); });
}

WorkerSaver::~WorkerSaver() {
  {
    absl::MutexLock lock(&mutex_);
    stopping_ = true;
  }
  thread_.join();
}

void WorkerSaver::AwaitIdle() {
  absl::MutexLock lock(&mutex_);
  const auto is_idle = [this]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) { return !task_.has_value(); };
  mutex_.Await(absl::Condition(&is_idle));
}

void WorkerSaver::Save(uint64_t number, uint64_t folder_step, const WorkerCursor& cursor,
                       const PrivateState& state) {
  AwaitIdle();  // The coordinator begins none before the one before it is over, one way or another.
  copy_.cursor = cursor;
  copy_.local_steps = state.local_steps != nullptr ? *state.local_steps : 0;
  copy_.sites = state.sites;
  copy_.arrays.resize(state.arrays.size());
  for (size_t i = 0; i < state.arrays.size(); ++i) {
    copy_.arrays[i].first = state.arrays[i].name;
    copy_.arrays[i].second.assign(state.arrays[i].values.begin(), state.arrays[i].values.end());
  }
  absl::MutexLock lock(&mutex_);
  task_ = Task{number, folder_step};
}

void WorkerSaver::SaveLast(const WorkerCursor& cursor, const PrivateState& state) {
  AwaitIdle();
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

void WorkerSaver::Run() {
  while (true) {
    Task task;
    {
      absl::MutexLock lock(&mutex_);
      const auto has_task = [this]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) {
        return stopping_ || task_.has_value();
      };
      mutex_.Await(absl::Condition(&has_task));
      if (!task_.has_value()) return;
      task = *task_;
    }
    v1::SavedRequest request;
    request.set_number(task.number);
    *request.mutable_progress() = ToProto(copy_.cursor.progress);
    request.set_evaluation_due(copy_.cursor.evaluation_due);
    request.set_sites(static_cast<uint64_t>(copy_.sites));
    const absl::StatusOr<CheckpointFile> file =
        options_.directory.empty()
            ? absl::FailedPreconditionError("checkpoint.directory is not set here")
            : WriteWorkerFile(
                  absl::StrCat(options_.directory, "/", PartialFolderName(task.folder_step)),
                  options_.rank, copy_);
    if (file.ok()) {
      request.mutable_file()->set_name(file->name);
      request.mutable_file()->set_bytes(static_cast<uint64_t>(file->bytes));
      request.mutable_file()->set_sum(file->sum);
    } else {
      request.set_error(std::string(file.status().message()));
      Log(LogLevel::kWarning, absl::StrCat("checkpoint: worker file not written number=",
                                           task.number, " why=\"", request.error(), "\""));
    }
    if (const auto told = options_.tell(std::move(request)); !told.ok()) {
      Log(LogLevel::kWarning, absl::StrCat("checkpoint: worker file not told of number=",
                                           task.number, " why=\"", told.status().message(), "\""));
    }
    absl::MutexLock lock(&mutex_);
    task_.reset();
  }
}

std::string WorkerSaver::OtherNumber(const Manifest& manifest) const {
  const auto saved = static_cast<int64_t>(manifest.members.size());
  if (saved == options_.workers) return "";
  return absl::StrCat("workers were ", saved, ", now ", options_.workers);
}

absl::StatusOr<bool> WorkerSaver::WasHalf(const Manifest& manifest,
                                          const PrivateState& state) const {
  const CheckpointFile* const listed = manifest.FindFile(WorkerFileName(options_.rank.value()));
  if (listed == nullptr) return false;
  TESSERA_ASSIGN_OR_RETURN(
      const std::unique_ptr<SafetensorsReader> file,
      SafetensorsReader::Open(absl::StrCat(options_.restored, "/", listed->name)));
  return std::any_of(state.arrays.begin(), state.arrays.end(),
                     [&file](const PrivateState::Array& array) {
                       if (!absl::StartsWith(array.name, kResidualPrefix) || array.values.empty()) {
                         return false;
                       }
                       const TensorSpec* const tensor = file->Find(array.name);
                       return tensor != nullptr && tensor->size() == 0;
                     });
}

absl::StatusOr<WorkerSaver::Deal> WorkerSaver::DealAmongAll(const Manifest& manifest,
                                                            const PrivateState& state) const {
  Deal deal;
  deal.why = OtherNumber(manifest);
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
    if (member.rank % options_.workers == options_.rank.value()) deal.files.push_back(listed);
    if (!HoldsBack(state)) continue;
    TESSERA_ASSIGN_OR_RETURN(
        const std::unique_ptr<SafetensorsReader> file,
        SafetensorsReader::Open(absl::StrCat(options_.restored, "/", listed->name)));
    const TensorSpec* const first = file->Find(absl::StrCat(kResidualPrefix, 0));
    in_mean -= first != nullptr && first->size() == 0;
  }
  if (!options_.counts_by_itself && in_mean > 0) {
    deal.factor = static_cast<float>(options_.workers) / static_cast<float>(in_mean);
  }
  return deal;
}

absl::StatusOr<WorkerSaver::Deal> WorkerSaver::DealInHalves(const Checkpoint& checkpoint) const {
  const Manifest& manifest = checkpoint.manifest();
  const LayerSplit& split = *options_.split;
  const bool is_linear = split.is_linear(options_.rank);
  const auto takers = static_cast<size_t>(is_linear ? split.linear_workers : split.front_workers);
  const size_t place = options_.rank.value() - (is_linear ? split.front_workers : 0);
  Deal deal;
  deal.why = OtherNumber(manifest);
  size_t saved = 0, saved_front = 0;
  for (const CheckpointMember& member : manifest.members) {
    const CheckpointFile* const listed = manifest.FindFile(WorkerFileName(member.rank));
    if (listed == nullptr) continue;
    TESSERA_ASSIGN_OR_RETURN(
        const std::unique_ptr<SafetensorsReader> file,
        SafetensorsReader::Open(absl::StrCat(options_.restored, "/", listed->name)));
    const HeldHalves held = HalvesIn(*file, split.cut);
    saved_front += held.front;
    if (is_linear ? held.linear : held.front) {
      if (saved++ % takers == place) deal.files.push_back(listed);
    }
    // Whoever takes up the file of its rank would leave this.
    const bool is_left = split.is_linear(Rank(member.rank)) ? held.front : held.linear;
    if (is_left && deal.why.empty()) deal.why = "ranks train other layers than they did";
  }
  deal.factor = 1;
  if (!options_.counts_by_itself && saved_front > 0) {
    deal.factor = static_cast<float>(split.front_workers) / static_cast<float>(saved_front);
  }
  return deal;
}

absl::StatusOr<int> WorkerSaver::TakeResiduals(const Deal& deal, const PrivateState& state) const {
  std::vector<float> held;
  int taken = 0;
  bool has_learned = false;
  for (const CheckpointFile* const listed : deal.files) {
    TESSERA_ASSIGN_OR_RETURN(
        const std::unique_ptr<SafetensorsReader> file,
        OpenListed(absl::StrCat(options_.restored, "/", listed->name), *listed));
    bool has_residuals = false;
    for (const PrivateState::Array& array : state.arrays) {
      const bool is_learned = array.name == kLearned;
      if (is_learned ? has_learned : !absl::StartsWith(array.name, kResidualPrefix)) continue;
      const int64_t size = static_cast<int64_t>(array.values.size());
      const auto tensor = file->Want(array.name, "F32", {size});
      if (!tensor.ok()) continue;  // Another codec than before.
      held.resize(size);
      TESSERA_RETURN_IF_ERROR(
          file->Read(**tensor, 0, size * static_cast<int64_t>(sizeof(float)), held.data()));
      has_learned |= is_learned;
      has_residuals |= !is_learned && size > 0;
      for (int64_t i = 0; i < size; ++i) {
        array.values[i] = is_learned ? held[i] : array.values[i] + deal.factor * held[i];
      }
    }
    taken += has_residuals;
  }
  return taken;
}

absl::StatusOr<std::optional<WorkerCursor>> WorkerSaver::Load(const PrivateState& state) {
  if (options_.restored.empty()) return std::optional<WorkerCursor>();
  TESSERA_ASSIGN_OR_RETURN(const std::unique_ptr<Checkpoint> checkpoint,
                           Checkpoint::Open(options_.restored));
  const Manifest& manifest = checkpoint->manifest();
  TESSERA_RETURN_IF_ERROR(CheckSum(manifest, options_.restored_sum, options_.restored));
  // `residuals`: the files of which it has taken up what was held back.
  const auto drop = [&](absl::string_view why, int residuals = 0) {
    Log(LogLevel::kWarning,
        absl::StrCat("checkpoint: worker state dropped rank=", options_.rank.value(),
                     " step=", manifest.step, " residuals_of=", residuals, " why=\"", why, "\""));
    return std::optional<WorkerCursor>();
  };
  if (const auto recipe = RecipeFor(JobOfText(manifest.job_text));
      HoldsBack(state) && recipe.ok() && recipe->payload != options_.payload) {
    return drop("what was held back is of gradients in the one method, of changes in the other");
  }
  if (!options_.goes_back) {
    Deal deal;
    // Where nothing is held back the other files are nothing to this worker.
    if (options_.split && HoldsBack(state)) {
      TESSERA_ASSIGN_OR_RETURN(deal, DealInHalves(*checkpoint));
    } else {
      TESSERA_ASSIGN_OR_RETURN(deal, DealAmongAll(manifest, state));
    }
    if (!deal.why.empty()) {
      TESSERA_ASSIGN_OR_RETURN(const int taken, TakeResiduals(deal, state));
      return drop(deal.why, taken);
    }
  }
  const CheckpointFile* const listed = manifest.FindFile(WorkerFileName(options_.rank.value()));
  if (listed == nullptr) return drop("there is none of this rank");
  const std::string path = absl::StrCat(options_.restored, "/", listed->name);
  PrivateState named = state;
  {
    TESSERA_ASSIGN_OR_RETURN(const std::unique_ptr<SafetensorsReader> file,
                             OpenListed(path, *listed));
    const std::map<std::string, std::string> saved =
        StatesIn(*file, StateNames(JobOfText(manifest.job_text).train().optimizer()));
    if (const std::string other = OtherStates(saved, state); !other.empty()) return drop(other);
    NameAsIn(saved, &named);
    for (const PrivateState::Array& array : named.arrays) {
      if (array.may_lack && file->Find(array.name) == nullptr) continue;
      const auto wanted =
          file->Want(array.name, "F32", {static_cast<int64_t>(array.values.size())});
      // Another codec than before.
      if (!wanted.ok()) return drop(wanted.status().message());
    }
  }
  TESSERA_ASSIGN_OR_RETURN(WorkerCursor cursor, ReadWorkerFile(path, named));
  return std::optional<WorkerCursor>(std::move(cursor));
}

}  // namespace tessera
