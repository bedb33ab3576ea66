#include "deploy/cli/eval_command.h"

#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/check.h"
#include "common/config/job_reader.h"
#include "common/layout/parameters.h"
#include "common/method/recipe.h"
#include "deploy/cli/counted.h"
#include "deploy/cli/open_checkpoint.h"
#include "kernels/devices.h"
#include "worker/data/dataset.h"
#include "worker/data/order.h"
#include "worker/model/network.h"
#include "worker/replica/batch_rows.h"

namespace tessera {
namespace {

struct Evaluated {
  uint64_t step = 0;
  Scores scores;
};

// The model's parameters, as an export has them.
absl::Status Load(const Checkpoint& checkpoint, Network* network) {
  const Manifest& manifest = checkpoint.manifest();
  const std::vector<ParameterSpec>& specs = network->shape().parameters;
  if (manifest.model_parameters != static_cast<int64_t>(specs.size())) {
    return absl::FailedPreconditionError(
        absl::StrCat("eval: the checkpoint has ", Counted(manifest.model_parameters, "tensor"),
                     ", and the job's model ", specs.size(),
                     ": it is of another model; name the job that wrote it"));
  }
  for (size_t p = 0; p < specs.size(); ++p) {
    const CheckpointParameter& saved = manifest.parameters[p];
    const ParameterSpec& spec = specs[p];
    const CheckpointParameter wanted{spec.name,      spec.rows, spec.columns,
                                     spec.is_vector, 1,         spec.columns_are};
    if (saved.name != spec.name || saved.Extents() != wanted.Extents()) {
      return absl::FailedPreconditionError(
          absl::StrCat("eval: the checkpoint has tensor \"", saved.name, "\" [",
                       absl::StrJoin(saved.Extents(), ", "), "], and the job's model \"", spec.name,
                       "\" [", absl::StrJoin(wanted.Extents(), ", "),
                       "]: it is of another model; name the job that wrote it"));
    }
    const absl::Span<float> values = network->parameter(static_cast<int>(p));
    TESSERA_RETURN_IF_ERROR(
        checkpoint.ReadRows(static_cast<int64_t>(p), /*state=*/-1, 0, spec.rows, values.data()));
    if (saved.export_factor == 1) continue;
    const float factor = static_cast<float>(saved.export_factor);
    for (float& value : values) value *= factor;
  }
  network->SendParameters();
  return absl::OkStatus();
}

absl::StatusOr<Datasets> LoadData(const v1::Job& job) {
  TESSERA_ASSIGN_OR_RETURN(const ModelShape shape, ShapeOf(job.model()));
  return LoadDatasets(job, EndsOf(job.model(), shape));
}

absl::StatusOr<Evaluated> Evaluate(const v1::Job& job, const Checkpoint& checkpoint,
                                   const Datasets& data) {
  TESSERA_ASSIGN_OR_RETURN(const Recipe recipe, RecipeFor(job));
  TESSERA_ASSIGN_OR_RETURN(
      const std::unique_ptr<Backend> backend,
      CreateBackend(job.cluster().device(), job.cluster().threads(), {job.cluster().cudnn()}));
  const InputRows input = InputRowsOf(job.model(), data);
  Network::Options network_options;
  network_options.batch_max = BatchRowsMax(job);
  network_options.sparse_input = input.sparse;
  network_options.evaluates_only = true;
  if (!recipe.subnets) {
    TESSERA_ASSIGN_OR_RETURN(network_options.precision, PrecisionOf(job.train().precision()));
  }
  TESSERA_ASSIGN_OR_RETURN(const std::unique_ptr<Network> network,
                           Network::Create(job.model(), network_options, *backend));
  TESSERA_RETURN_IF_ERROR(Load(checkpoint, network.get()));
  const int64_t parts =
      std::max<int64_t>(1, static_cast<int64_t>(checkpoint.manifest().members.size()));
  // Who has no data has no part of them.
  const auto has_data = [&recipe](const CheckpointMember& member) {
    return !recipe.split || !recipe.split->is_linear(Rank(member.rank));
  };
  const auto& members = checkpoint.manifest().members;
  const int64_t with_data = std::count_if(members.begin(), members.end(), has_data);
  const int64_t calibration_parts =
      job.data().partition() == "shard" ? std::max<int64_t>(1, with_data) : 1;
  BatchRows rows(job, input);
  TESSERA_ASSIGN_OR_RETURN(
      const std::vector<float> constants,
      rows.Calibrate(network.get(), data.train,
                     CalibrationRows(job.seed(), data.train.rows(), 0, calibration_parts)));
  Evaluated evaluated;
  evaluated.step = checkpoint.manifest().step;
  for (int64_t part = 0; part < parts; ++part) {
    const std::vector<uint32_t> own = EvaluationRows(data.test.rows(), part, parts);
    TESSERA_ASSIGN_OR_RETURN(const Scores scores,
                             rows.Score(network.get(), data.test, own, constants));
    evaluated.scores.loss_sum += scores.loss_sum;
    evaluated.scores.correct += scores.correct;
    evaluated.scores.rows += scores.rows;
    for (int i = 0; i < 3; ++i) evaluated.scores.precision_hits[i] += scores.precision_hits[i];
  }
  return evaluated;
}

// `single_labels`: rows have one label each, not sets of them.
void Print(const Evaluated& evaluated, bool single_labels, bool json) {
  const Scores& scores = evaluated.scores;
  const double rows = static_cast<double>(scores.rows);
  const double loss = scores.loss_sum / rows, accuracy = static_cast<double>(scores.correct) / rows;
  const double at[3] = {scores.precision_hits[0] / rows, scores.precision_hits[1] / (3 * rows),
                        scores.precision_hits[2] / (5 * rows)};
  const double first[3] = {scores.precision_hits[0] / rows, scores.precision_hits[1] / rows,
                           scores.precision_hits[2] / rows};
  if (json) {
    nlohmann::json text = {{"step", evaluated.step},
                           {"test_rows", scores.rows},
                           {"test_loss", loss},
                           {"test_accuracy", accuracy},
                           {"precision_at", {{"1", at[0]}, {"3", at[1]}, {"5", at[2]}}},
                           {"top_k_accuracy", {{"1", nullptr}, {"3", nullptr}, {"5", nullptr}}}};
    if (single_labels) {
      text["top_k_accuracy"] = {{"1", first[0]}, {"3", first[1]}, {"5", first[2]}};
    }
    std::printf("%s\n", text.dump().c_str());
    return;
  }
  const double(&shown)[3] = single_labels ? first : at;
  std::printf("step %" PRIu64 ", %" PRIu64
              " test rows: loss %.4f, accuracy %.4f, %s %.4f, %.4f, %.4f\n",
              evaluated.step, static_cast<uint64_t>(scores.rows), loss, accuracy,
              single_labels ? "top-1, 3, 5 accuracy" : "precision at 1, 3, 5", shown[0], shown[1],
              shown[2]);
}

}  // namespace

int EvaluateCheckpoint(const EvalOptions& options) {
  const JobReading reading = ReadJobFile(options.job_path, options.overrides, kDataFilesAlone);
  if (!reading.ok()) {
    std::fputs(FormatJobErrors(reading.errors).c_str(), stderr);
    return 2;
  }
  const auto fail = [](const absl::Status& status, bool is_wrongly_asked) {
    std::fprintf(stderr, "tessera: %s\n", std::string(status.message()).c_str());
    const bool is_not_there = absl::IsNotFound(status) || absl::IsFailedPrecondition(status);
    return is_wrongly_asked || is_not_there ? 2 : 1;
  };
  const absl::StatusOr<std::unique_ptr<Checkpoint>> checkpoint =
      OpenNamedCheckpoint(options.checkpoint);
  if (!checkpoint.ok()) return fail(checkpoint.status(), false);
  const absl::StatusOr<Datasets> data = LoadData(reading.job);
  if (!data.ok()) return fail(data.status(), true);
  for (const std::string& note : data->notes) {
    std::fprintf(stderr, "tessera: note: %s\n", note.c_str());
  }
  const absl::StatusOr<Evaluated> evaluated = Evaluate(reading.job, **checkpoint, *data);
  if (!evaluated.ok()) return fail(evaluated.status(), false);
  Print(*evaluated, reading.job.model().loss() == "softmax_cross_entropy", options.json);
  return 0;
}

}  // namespace tessera
