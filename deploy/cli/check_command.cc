#include "deploy/cli/check_command.h"

#include <cinttypes>
#include <cstdint>
#include <cstdio>
#include <optional>
#include <string>
#include <utility>

#include <google/protobuf/util/json_util.h>

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
#include "deploy/cli/fetch_advice.h"
#include "deploy/cli/length_notes.h"
#include "deploy/cli/plan/traffic.h"
#include "deploy/cli/start_notes.h"
#include "nlohmann/json.hpp"
#include "worker/data/dataset.h"
#include "worker/data/load_datasets.h"

namespace tessera {

namespace {

using Lines = std::vector<std::string>;
using Json = nlohmann::ordered_json;

// The traffic of both kinds of worker, which differ where layers are dealt to workers.
Lines TrafficOfHalves(const v1::Job& job, const Recipe& recipe, const ModelShape& shape) {
  Lines lines;
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
    lines.push_back(absl::StrCat(workers > 1 ? "each of " : "", Counted(workers, "worker"),
                                 is_linear ? " with the linear layers" : " with data", " pushes ",
                                 Describe(half.push), " and pulls ", Describe(half.pull),
                                 " every step", crossing));
  }
  if (split.linear_servers > 0) {
    const auto servers = static_cast<int>(job.cluster().servers().count());
    const int first = servers - split.linear_servers;
    const std::string who = split.linear_servers > 1
                                ? absl::StrCat("servers ", first, " to ", servers - 1, " have")
                                : absl::StrCat("server ", first, " has");
    lines.push_back(absl::StrCat(who,
                                 " the linear layers' parameters alone: beside the linear workers "
                                 "they cross no link"));
  }
  return lines;
}

// What a worker moves, as far as the job alone says it; a model that cannot be exchanged is refused elsewhere.
Lines TrafficLines(const v1::Job& job, const Recipe& recipe) {
  const absl::StatusOr<ModelShape> shape = ExchangedShape(job.model(), recipe);
  if (!shape.ok()) return {};
  if (recipe.split) return TrafficOfHalves(job, recipe, *shape);
  const std::string interval = recipe.exchanges_once ? "job"
                               : recipe.local_steps == 1
                                   ? "step"
                                   : absl::StrCat(recipe.local_steps, " steps");
  return {absl::StrCat("each worker pushes ", Describe(PushForecast(job, recipe, *shape)),
                       " and pulls ", Describe(PullForecast(job, recipe, *shape)), " every ",
                       interval)};
}

// The number of training rows where a note depends on it: reading data may take a while.
std::optional<int64_t> RowsOf(const v1::Job& job, const ModelShape& shape) {
  if (!WantsRows(job)) return std::nullopt;
  const absl::StatusOr<Datasets> data = LoadDatasets(job, EndsOf(job.model(), shape));
  if (!data.ok()) return std::nullopt;  // Whether data are right is for doctor.
  return data->train.rows();
}

// What is said of a job that is right.
struct Checked {
  std::string digest;
  int64_t parameters = 0;
  // In a job of tensors, how many these are.
  int64_t tensors = 0;
  std::string method;
  // The codecs in force, as the keys do not tell of those that the method has where the job names none.
  std::string codec;
  Lines traffic;
  Lines notes;
};

Checked Examine(const v1::Job& job, const Recipe& recipe, const ModelShape& shape) {
  Checked checked;
  checked.digest = JobDigest(job);
  checked.parameters = shape.size;
  if (IsOfTensors(job.model())) checked.tensors = static_cast<int64_t>(shape.parameters.size());
  checked.method = recipe.description;
  checked.codec = Describe(recipe.codecs);
  checked.traffic = TrafficLines(job, recipe);
  checked.notes = NotesOfCheck(job);
  for (std::string& note : StartNotesOn(job, recipe)) checked.notes.push_back(std::move(note));
  // Servers read it, which may be on other machines.
  const absl::Status initial = OpenInitialFile(job.model()).status();
  if (!initial.ok()) checked.notes.emplace_back(initial.message());
  return checked;
}

// The resolved job with the keys of a job file, as proto3 JSON has it.
Json KeysJson(const v1::Job& job) {
  std::string text;
  google::protobuf::util::JsonPrintOptions print;
  print.preserve_proto_field_names = true;
  if (!google::protobuf::util::MessageToJsonString(job, &text, print).ok()) return nullptr;
  return Json::parse(text, nullptr, /*allow_exceptions=*/false);
}

std::string Dump(const Json& json) {
  return json.dump(2, ' ', false, Json::error_handler_t::replace);
}

std::string CheckedJson(const CheckOptions& options, const v1::Job& job, const Checked& checked) {
  Json json = {{"file", options.job_path},   {"right", true},
               {"digest", checked.digest},   {"parameters", checked.parameters},
               {"method", checked.method},   {"codec", checked.codec},
               {"traffic", checked.traffic}, {"notes", checked.notes},
               {"job", KeysJson(job)}};
  return Dump(json);
}

// Prints what is wrong, as JSON. `advice` says how to get data that is missing; empty: nothing to say.
void PrintErrors(const CheckOptions& options, const std::vector<JobError>& errors,
                 const std::string& advice) {
  Json list = Json::array();
  for (const JobError& error : errors) {
    list.push_back({{"file", error.file},
                    {"line", error.line},
                    {"column", error.column},
                    {"key", error.key},
                    {"message", error.message}});
  }
  const Json json = {
      {"file", options.job_path}, {"right", false}, {"errors", list}, {"advice", advice}};
  std::printf("%s\n", Dump(json).c_str());
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
  const JobReading reading = ReadJobFile(options.job_path, options.overrides, MayBeOpen({}));
  if (!reading.ok()) {
    if (options.json) {
      PrintErrors(options, reading.errors, FetchAdvice(reading.job));
    } else {
      TellJobErrors(reading);
    }
    return 2;
  }
  const absl::StatusOr<ModelShape> shape = ShapeOf(reading.job.model());
  const absl::StatusOr<Recipe> recipe = RecipeFor(reading.job);
  for (const absl::Status& status : {shape.status(), recipe.status()}) {
    if (status.ok()) continue;
    const std::string message(status.message());
    if (options.json) {
      PrintErrors(options, {{options.job_path, 0, 0, "", message}}, "");
    } else {
      std::fprintf(stderr, "%s: %s\n", options.job_path.c_str(), message.c_str());
    }
    return 2;
  }
  const Checked checked = Examine(reading.job, *recipe, *shape);
  if (options.json) {
    std::printf("%s\n", CheckedJson(options, reading.job, checked).c_str());
    return 0;
  }
  std::printf("# %s is right.\n", options.job_path.c_str());
  std::printf("# digest      %s\n", checked.digest.c_str());
  const std::string tensors =
      checked.tensors > 0 ? absl::StrCat(" in ", Counted(checked.tensors, "tensor")) : "";
  std::printf("# parameters  %" PRId64 "%s (%s as f32)\n", checked.parameters, tensors.c_str(),
              Bytes(static_cast<double>(checked.parameters) * sizeof(float)).c_str());
  std::printf("# method      %s\n", checked.method.c_str());
  std::printf("# codec       %s\n", checked.codec.c_str());
  for (const std::string& line : checked.traffic) std::printf("# traffic     %s\n", line.c_str());
  for (const std::string& note : checked.notes) std::printf("# note        %s\n", note.c_str());
  std::fputs(PrintJob(reading.job).c_str(), stdout);
  return 0;
}

}  // namespace tessera
