#include "deploy/cli/length_notes.h"

#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/string_view.h"
#include "common/codec/selective_codec.h"
#include "common/layout/tensor_layout.h"
#include "common/method/catalog.h"
#include "common/method/train_rows.h"
#include "deploy/cli/counted.h"

namespace tessera {
namespace {

constexpr int64_t kExamplesMax = int64_t{1} << 62;

// A job's length, as far as it is known.
struct Length {
  // Minibatches of each worker.
  std::optional<int64_t> steps;
  // Epochs that are begun.
  std::optional<int64_t> epochs;
  // Examples that the job learns from, of all workers together.
  std::optional<int64_t> examples;
};

Length LengthOf(const v1::Job& job, const Recipe& recipe, std::optional<int64_t> rows) {
  Length length;
  if (job.train().steps() > 0) length.steps = job.train().steps();
  if (job.train().epochs() > 0) length.epochs = job.train().epochs();
  // How many rows a minibatch has is the workers' own business.
  if (IsOfTensors(job.model())) {
    const int64_t of_epoch = job.train().steps_per_epoch();
    length.epochs = of_epoch > 0 ? (job.train().steps() - 1) / of_epoch + 1 : 1;
    return length;
  }
  const int64_t with_data = recipe.split ? recipe.split->front_workers : job.cluster().workers();
  if (rows) {
    const absl::StatusOr<int64_t> of_epoch =
        EpochSteps(job.data().partition() == "local" ? with_data * *rows : *rows, with_data,
                   job.train().batch_size());
    const absl::StatusOr<int64_t> steps = JobSteps(job, *rows);
    if (steps.ok()) length.steps = *steps;
    if (of_epoch.ok() && steps.ok()) length.epochs = (*steps - 1) / *of_epoch + 1;
  }
  const int64_t at_once = with_data * job.train().batch_size();
  // The number of examples is only needed while a key can be beyond it.
  if (length.steps && *length.steps <= kExamplesMax / at_once) {
    length.examples = *length.steps * at_once;
  }
  return length;
}

// The number of steps in words, with how it follows from the epochs.
std::string StepsIn(const v1::Job& job, const Length& length) {
  const std::string steps = absl::StrCat("the job has ", Counted(*length.steps, "step"));
  if (job.train().steps() > 0) return steps;
  return absl::StrCat(steps, " of each worker in its ", Counted(job.train().epochs(), "epoch"));
}

class Notes {
 public:
  void Add(absl::string_view key, int64_t value, const std::string& length, absl::string_view so) {
    notes_.push_back(absl::StrCat(key, ": is ", value, ", and ", length, ": ", so));
  }
  void Say(absl::string_view key, absl::string_view what) {
    notes_.push_back(absl::StrCat(key, ": ", what));
  }
  std::vector<std::string> Take() { return std::move(notes_); }

 private:
  std::vector<std::string> notes_;
};

// Notes that most entries are never sent: each push has room for few, and there are few pushes.
void OnLargest(const Recipe& recipe, int64_t steps, Notes* notes) {
  const SelectiveCodec* const selective = recipe.codecs.push->selective();
  if (selective == nullptr || selective->largest_of_chunk() == 0) return;
  const int64_t pushes = recipe.exchanges_once ? 1 : (steps - 1) / recipe.local_steps + 1;
  const double sent = *selective->sent_share() * static_cast<double>(pushes);
  if (sent >= 1) return;
  notes->Say("codec.push",
             absl::StrCat(recipe.codecs.push->name(), ": ", Counted(pushes, "exchange"),
                          " have room for ", absl::StrFormat("%.0f", 100 * sent),
                          "% of a worker's entries, and the others are never sent; for more of "
                          "them give more exchanges or a larger k"));
}

// Notes what never comes because the job has too few steps: a warm-up, a tail, an exchange, a checkpoint.
void OnSteps(const v1::Job& job, const Recipe& recipe, const Length& length, Notes* notes) {
  const int64_t steps = *length.steps;
  const std::string in = StepsIn(job, length);
  const Method& method = *MethodOf(job);
  if (method.length_notes != nullptr) {
    for (const LengthNote& note : method.length_notes(job, steps)) {
      notes->Add(note.key, note.value, note.length.empty() ? in : note.length, note.consequence);
    }
  }
  if (!recipe.exchanges_once && recipe.local_steps > steps) {
    notes->Add(absl::StrCat("method.", recipe.name, ".local_steps"), recipe.local_steps, in,
               "workers exchange once, at the end");
  }
  OnLargest(recipe, steps, notes);
  const int64_t saved = job.checkpoint().every_steps();
  if (saved > steps && !recipe.exchanges_once) {
    notes->Add("checkpoint.every_steps", saved, in, "the only checkpoint is that of the end");
  }
}

// Notes that only the evaluation of the end comes.
void OnEvaluations(const v1::Job& job, const Recipe& recipe, const Length& length, Notes* notes) {
  const int64_t every = job.train().evaluate_every();
  const bool is_beyond = length.epochs && every > *length.epochs;
  if (is_beyond) {
    notes->Add("train.evaluate_every", every,
               absl::StrCat("the job has ", Counted(*length.epochs, "epoch")),
               "the model is evaluated at the end alone");
  }
  if (job.train().target_accuracy() == 0 || recipe.exchanges_once || (every > 0 && !is_beyond)) {
    return;
  }
  notes->Say("train.target_accuracy",
             "ends nothing early, as the model is evaluated at the end alone");
}

// Notes that a warm-up or a decay goes on beyond the job's end.
void OnRates(const v1::Job& job, const Length& length, Notes* notes) {
  const v1::Schedule& schedule = job.train().schedule();
  const std::string in = absl::StrCat("the job learns from ", *length.examples, " examples");
  if (schedule.warmup() > *length.examples) {
    notes->Add("train.schedule.warmup", schedule.warmup(), in,
               "the learning rate never becomes what is set");
  }
  if (schedule.decay().step().every() > *length.examples) {
    notes->Add("train.schedule.decay.step.every", schedule.decay().step().every(), in,
               "the learning rate never drops");
  }
  for (const int64_t at : schedule.decay().milestones().at()) {
    if (at <= *length.examples) continue;
    notes->Add("train.schedule.decay.milestones.at", at, in, "the learning rate never drops there");
  }
}

}  // namespace

bool WantsRows(const v1::Job& job) {
  if (job.train().epochs() == 0) return false;
  const Method* const method = MethodOf(job);
  return method != nullptr && method->counts_steps != nullptr && method->counts_steps(job);
}

std::vector<std::string> LengthNotesOn(const v1::Job& job, const Recipe& recipe,
                                       std::optional<int64_t> rows) {
  Notes notes;
  const Length length = LengthOf(job, recipe, rows);
  if (length.steps) OnSteps(job, recipe, length, &notes);
  OnEvaluations(job, recipe, length, &notes);
  if (length.examples) OnRates(job, length, &notes);
  return notes.Take();
}

}  // namespace tessera
