#include "deploy/cli/eval_command.h"

#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "common/base/check.h"
#include "common/checkpoint/model_facts.h"
#include "common/config/job_reader.h"
#include "deploy/cli/open_checkpoint.h"
#include "deploy/cli/saved_network.h"
#include "worker/data/dataset.h"
#include "worker/data/order.h"

namespace tessera {
namespace {

struct Evaluated {
  uint64_t step = 0;
  Scores scores;
  // In what the job is not as the model was trained, in lines for people.
  std::vector<std::string> differences;
};

// Scores the test rows in as many parts as the job had members, and adds the sums in their order: floating-point
// sums are then those of the job's own evaluation.
absl::StatusOr<Evaluated> Evaluate(const Checkpoint& checkpoint, SavedNetwork* network,
                                   int64_t test_rows) {
  const int64_t parts =
      std::max<int64_t>(1, static_cast<int64_t>(checkpoint.manifest().members.size()));
  TESSERA_ASSIGN_OR_RETURN(const std::vector<float> constants, network->Constants());
  Evaluated evaluated;
  evaluated.step = checkpoint.manifest().step;
  for (int64_t part = 0; part < parts; ++part) {
    TESSERA_ASSIGN_OR_RETURN(const Scores scores,
                             network->Score(EvaluationRows(test_rows, part, parts), constants));
    evaluated.scores += scores;
  }
  return evaluated;
}

// Scores, and says in what the job differs from the one that was trained.
absl::StatusOr<Evaluated> Evaluate(const v1::Job& job, const Checkpoint& checkpoint,
                                   const std::optional<ModelFacts>& facts, const Datasets& data) {
  TESSERA_ASSIGN_OR_RETURN(const std::unique_ptr<SavedNetwork> network,
                           SavedNetwork::Create(job, checkpoint, facts, data));
  TESSERA_ASSIGN_OR_RETURN(Evaluated evaluated,
                           Evaluate(checkpoint, network.get(), data.test.rows()));
  evaluated.differences = Differences(job, checkpoint, facts, data);
  return evaluated;
}

// `single_labels`: rows have one label each, not sets of them.
void Print(const Evaluated& evaluated, bool single_labels, bool json) {
  for (const std::string& line : evaluated.differences) {
    std::fprintf(stderr, "tessera: eval: %s\n", line.c_str());
  }
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
                           {"top_k_accuracy", {{"1", nullptr}, {"3", nullptr}, {"5", nullptr}}},
                           {"differences", evaluated.differences}};
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
  const absl::StatusOr<std::optional<ModelFacts>> facts = ReadFacts(**checkpoint);
  if (!facts.ok()) return fail(facts.status(), false);
  const absl::StatusOr<Datasets> data = LoadDataOf(reading.job, *facts);
  if (!data.ok()) return fail(data.status(), true);
  for (const std::string& note : data->notes) {
    std::fprintf(stderr, "tessera: note: %s\n", note.c_str());
  }
  const absl::StatusOr<Evaluated> evaluated = Evaluate(reading.job, **checkpoint, *facts, *data);
  if (!evaluated.ok()) return fail(evaluated.status(), false);
  Print(*evaluated, reading.job.model().loss() == "softmax_cross_entropy", options.json);
  return 0;
}

}  // namespace tessera
