#include "deploy/cli/check_command.h"

#include <cinttypes>
#include <cstdint>
#include <cstdio>
#include <optional>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/codec/codec.h"
#include "common/checkpoint/initial_file.h"
#include "common/config/job_digest.h"
#include "common/config/job_print.h"
#include "common/config/job_reader.h"
#include "common/layout/parameters.h"
#include "common/layout/tensor_layout.h"
#include "common/method/recipe.h"
#include "deploy/cli/check_notes.h"
#include "deploy/cli/counted.h"
#include "deploy/cli/length_notes.h"
#include "deploy/cli/plan/traffic.h"
#include "deploy/cli/start_notes.h"
#include "worker/data/dataset.h"
#include "worker/data/load_datasets.h"

namespace tessera {

namespace {

// Prints the traffic of both kinds of worker, which differ where layers are dealt to workers.
void PrintHalves(const v1::Job& job, const Recipe& recipe, const ModelShape& shape) {
  const LayerSplit& split = *recipe.split;
  const ActivationForecast activations = ForecastOfActivations(job, split, shape);
  for (const bool is_linear : {false, true}) {
    const HalfForecast half = ForecastOfHalf(job, recipe, shape, is_linear);
    const int workers = is_linear ? split.linear_workers : split.front_workers;
    const std::string crossing =
        is_linear
            ? ""
            : absl::StrCat(", and exchanges ", activations.there_bytes + activations.back_bytes,
                           " bytes of activations and their gradient");
    std::printf("# traffic     %s%s %s pushes %s and pulls %s every step%s\n",
                workers > 1 ? "each of " : "", Counted(workers, "worker").c_str(),
                is_linear ? "with the linear layers" : "with data", Describe(half.push).c_str(),
                Describe(half.pull).c_str(), crossing.c_str());
  }
}

// Prints what a worker moves, as far as the job alone says it; a model that cannot be exchanged is refused
// elsewhere.
void PrintTraffic(const v1::Job& job, const Recipe& recipe) {
  const absl::StatusOr<ModelShape> shape = ExchangedShape(job.model(), recipe);
  if (!shape.ok()) return;
  if (recipe.split) return PrintHalves(job, recipe, *shape);
  const std::string interval = recipe.exchanges_once ? "job"
                               : recipe.local_steps == 1
                                   ? "step"
                                   : absl::StrCat(recipe.local_steps, " steps");
  std::printf("# traffic     each worker pushes %s and pulls %s every %s\n",
              Describe(PushForecast(job, recipe, *shape)).c_str(),
              Describe(PullForecast(job, recipe, *shape)).c_str(), interval.c_str());
}

// The number of training rows where a note depends on it: reading data may take a while.
std::optional<int64_t> RowsOf(const v1::Job& job, const ModelShape& shape) {
  if (!WantsRows(job)) return std::nullopt;
  const absl::StatusOr<Datasets> data = LoadDatasets(job, EndsOf(job.model(), shape));
  if (!data.ok()) return std::nullopt;  // Whether data are right is for doctor.
  return data->train.rows();
}

}  // namespace

std::vector<std::string> NotesOfCheck(const v1::Job& job) {
  const absl::StatusOr<ModelShape> shape = ShapeOf(job.model());
  const absl::StatusOr<Recipe> recipe = RecipeFor(job);
  // A job whose shape or recipe is wrong has no notes: whoever needs these says what is wrong.
  if (!shape.ok() || !recipe.ok()) return {};
  return NotesOn(job, *recipe, RowsOf(job, *shape));
}

int CheckJobFile(const CheckOptions& options) {
  const JobReading reading = ReadJobFile(options.job_path, options.overrides, JobOptions{});
  if (!reading.ok()) {
    std::fputs(FormatJobErrors(reading.errors).c_str(), stderr);
    return 2;
  }
  const absl::StatusOr<ModelShape> shape = ShapeOf(reading.job.model());
  const absl::StatusOr<Recipe> recipe = RecipeFor(reading.job);
  for (const absl::Status& status : {shape.status(), recipe.status()}) {
    if (status.ok()) continue;
    std::fprintf(stderr, "%s: %s\n", options.job_path.c_str(),
                 std::string(status.message()).c_str());
    return 2;
  }
  std::printf("# %s is right.\n", options.job_path.c_str());
  std::printf("# digest      %s\n", JobDigest(reading.job).c_str());
  const std::string tensors =
      IsOfTensors(reading.job.model())
          ? absl::StrCat(" in ", Counted(static_cast<int64_t>(shape->parameters.size()), "tensor"))
          : "";
  std::printf("# parameters  %" PRId64 "%s (%s as f32)\n", shape->size, tensors.c_str(),
              Bytes(static_cast<double>(shape->size) * sizeof(float)).c_str());
  std::printf("# method      %s\n", recipe->description.c_str());
  // The codecs in force are printed, as the keys do not tell of those that the method has where the job names
  // none.
  std::printf("# codec       %s\n", Describe(recipe->codecs).c_str());
  PrintTraffic(reading.job, *recipe);
  for (const std::string& note : NotesOfCheck(reading.job)) {
    std::printf("# note        %s\n", note.c_str());
  }
  for (const std::string& note : StartNotesOn(reading.job, *recipe)) {
    std::printf("# note        %s\n", note.c_str());
  }
  // Servers read it, which may be on other machines.
  const absl::Status initial = OpenInitialFile(reading.job.model()).status();
  if (!initial.ok()) std::printf("# note        %s\n", std::string(initial.message()).c_str());
  std::fputs(PrintJob(reading.job).c_str(), stdout);
  return 0;
}

}  // namespace tessera
