#include "deploy/cli/saved_network.h"

#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "common/base/check.h"
#include "common/config/job_digest.h"
#include "common/layout/parameters.h"
#include "common/method/recipe.h"
#include "deploy/cli/batch_norms.h"
#include "deploy/cli/saved_parameters.h"
#include "kernels/devices.h"
#include "worker/data/load_datasets.h"
#include "worker/data/order.h"

namespace tessera {
namespace {

// The lines of a job's text that say what its model answers. Dropout is for training alone.
std::set<std::string> ModelLines(const v1::Job& job) {
  const std::string text = CanonicalJobText(job);
  std::set<std::string> lines;
  for (const absl::string_view line : absl::StrSplit(text, '\n')) {
    if (!absl::StartsWith(line, "model.") || absl::StrContains(line, ".dropout.")) continue;
    lines.insert(std::string(line));
  }
  return lines;
}

// The keys of the model in which two jobs differ, in one line; empty: in none.
std::string DifferingKeys(const v1::Job& job, const v1::Job& saved) {
  const std::set<std::string> now = ModelLines(job), before = ModelLines(saved);
  std::vector<std::string> lines;
  std::set_symmetric_difference(now.begin(), now.end(), before.begin(), before.end(),
                                std::back_inserter(lines));
  std::set<std::string> keys;
  for (const std::string& line : lines) keys.insert(line.substr(0, line.find('=')));
  return absl::StrJoin(keys, ", ");
}

}  // namespace

absl::StatusOr<Datasets> LoadDataOf(const v1::Job& job, const std::optional<ModelFacts>& facts) {
  TESSERA_ASSIGN_OR_RETURN(const ModelShape shape, ShapeOf(job.model()));
  TESSERA_ASSIGN_OR_RETURN(
      Datasets data, LoadDatasets(job, EndsOf(job.model(), shape), facts ? &*facts : nullptr));
  data.facts.train_sum = data.train.Sum();
  return data;
}

std::vector<std::string> Differences(const v1::Job& job, const Checkpoint& checkpoint,
                                     const std::optional<ModelFacts>& facts, const Datasets& data) {
  std::vector<std::string> lines;
  const v1::Job saved = JobOfText(checkpoint.manifest().job_text);
  if (const std::string keys = DifferingKeys(job, saved); !keys.empty()) {
    lines.push_back(
        absl::StrCat("the model is not the one that was trained, which has another ", keys));
  }
  if (!facts) {
    lines.push_back(
        "an older build wrote the checkpoint, which kept neither labels nor normalisation nor "
        "batch "
        "norms: they are taken from the training rows that the job names");
    return lines;
  }
  if (NormalizesOtherwise(job, *facts)) {
    lines.push_back(
        "data.normalize is not what the checkpoint was trained with; its normalisation is used");
  }
  // Each worker's rows were others where they are local.
  if (saved.data().partition() != "local" && facts->train_sum != data.facts.train_sum) {
    lines.push_back(
        "data.train: the rows are not those that the checkpoint was trained on; its labels and its "
        "normalisation are used");
  }
  return lines;
}

SavedNetwork::SavedNetwork(const v1::Job& job, const Checkpoint& checkpoint,
                           const std::optional<ModelFacts>& facts, const Datasets& data)
    : job_(job),
      checkpoint_(checkpoint),
      saved_job_(JobOfText(checkpoint.manifest().job_text)),
      facts_(facts),
      data_(data),
      input_(InputRowsOf(job.model(), data)),
      rows_(job, input_) {}

absl::StatusOr<std::unique_ptr<SavedNetwork>> SavedNetwork::Create(
    const v1::Job& job, const Checkpoint& checkpoint, const std::optional<ModelFacts>& facts,
    const Datasets& data) {
  std::unique_ptr<SavedNetwork> made(new SavedNetwork(job, checkpoint, facts, data));
  TESSERA_RETURN_IF_ERROR(made->Init());
  return made;
}

absl::Status SavedNetwork::Init() {
  TESSERA_ASSIGN_OR_RETURN(const Recipe recipe, RecipeFor(job_));
  TESSERA_ASSIGN_OR_RETURN(
      backend_,
      CreateBackend(job_.cluster().device(), job_.cluster().threads(), {job_.cluster().cudnn()}));
  Network::Options options;
  options.batch_max = BatchRowsMax(job_);
  options.sparse_input = input_.sparse;
  options.evaluates_only = true;
  if (!recipe.subnets) {
    TESSERA_ASSIGN_OR_RETURN(options.precision, PrecisionOf(job_.train().precision()));
  }
  TESSERA_ASSIGN_OR_RETURN(network_, Network::Create(job_.model(), options, *backend_));
  return LoadSavedParameters("eval", checkpoint_, network_.get());
}

absl::StatusOr<std::vector<float>> SavedNetwork::Constants() {
  if (network_->plan().constants == 0) return std::vector<float>();
  if (facts_ && !facts_->norm_constants.empty()) return SavedConstants();
  if (facts_ && facts_->train_sum != data_.facts.train_sum) {
    return absl::FailedPreconditionError(absl::StrCat(
        "data.train: the rows are not those that the checkpoint was trained on, and the checkpoint "
        "of step ",
        checkpoint_.manifest().step,
        " has no constants of its batch norms, as the job made no evaluation there; name the rows "
        "that it was trained on, or a checkpoint at an evaluation or at the job's end"));
  }
  return Calibrate();
}

absl::StatusOr<std::vector<float>> SavedNetwork::SavedConstants() const {
  TESSERA_ASSIGN_OR_RETURN(const std::vector<BatchNormLayer> now, BatchNormsOf(job_.model()));
  TESSERA_ASSIGN_OR_RETURN(const std::vector<BatchNormLayer> before,
                           BatchNormsOf(saved_job_.model()));
  std::vector<float> constants = facts_->norm_constants;
  const auto count = static_cast<int64_t>(constants.size());
  if (ConstantsOf(now) != count || ConstantsOf(before) != count || now.size() != before.size()) {
    return absl::FailedPreconditionError(
        absl::StrCat("checkpoint: its batch norms have ", count, " constants, and the job's model ",
                     ConstantsOf(now), ": it is of another model; name the job that wrote it"));
  }
  float* at = constants.data();
  for (size_t i = 0; i < now.size(); ++i) {
    float* const inverse_sigma = at + now[i].channels;
    at = inverse_sigma + now[i].channels;
    if (now[i].epsilon == before[i].epsilon) continue;
    for (float* sigma = inverse_sigma; sigma != at; ++sigma) {
      *sigma = InverseSigmaOf(VarianceOf(*sigma, before[i].epsilon), now[i].epsilon);
    }
  }
  return constants;
}

absl::StatusOr<std::vector<float>> SavedNetwork::Calibrate() {
  const absl::StatusOr<Recipe> recipe = RecipeFor(saved_job_);
  const auto& members = checkpoint_.manifest().members;
  // A worker without data has no part of the training rows.
  const int64_t with_data =
      std::count_if(members.begin(), members.end(), [&recipe](const CheckpointMember& member) {
        return !recipe.ok() || !recipe->split || !recipe->split->is_linear(Rank(member.rank));
      });
  const int64_t parts =
      saved_job_.data().partition() == "shard" ? std::max<int64_t>(1, with_data) : 1;
  return rows_.Calibrate(network_.get(), data_.train,
                         CalibrationRows(saved_job_.seed(), data_.train.rows(), 0, parts));
}

absl::StatusOr<Scores> SavedNetwork::Score(absl::Span<const uint32_t> rows,
                                           absl::Span<const float> constants) {
  return rows_.Score(network_.get(), data_.test, rows, constants);
}

}  // namespace tessera
