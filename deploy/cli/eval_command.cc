#include "deploy/cli/eval_command.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/types/span.h"
#include "common/base/check.h"
#include "common/checkpoint/model_facts.h"
#include "common/config/job_reader.h"
#include "common/layout/losses.h"
#include "deploy/cli/fetch_advice.h"
#include "deploy/cli/open_checkpoint.h"
#include "deploy/cli/saved_network.h"
#include "deploy/cli/tensor_refusal.h"
#include "kernels/loss.h"
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

// The accuracy, and the shares of hits at several depths; null or left out where there are none.
//   single labels   a label that is among the first 1, 3, 5 predictions, and 10 where there are more outputs
//   sets of labels  hits among so many first predictions over their number
//   numbers         nothing
void Print(const Evaluated& evaluated, const v1::Model& model, int64_t outputs, bool json) {
  const bool single_labels = HasSingleLabels(model, outputs);
  const bool has_classes = !LearnsNumbers(model, outputs);
  for (const std::string& line : evaluated.differences) {
    std::fprintf(stderr, "tessera: eval: %s\n", line.c_str());
  }
  const Scores& scores = evaluated.scores;
  // Each place of a row of tokens is scored.
  const int64_t places = model.has_tokens() ? model.tokens().context() : 1;
  const double rows = static_cast<double>(scores.rows);
  const double loss = scores.loss_sum / rows, accuracy = static_cast<double>(scores.correct) / rows;
  const double at[3] = {scores.precision_hits[0] / rows, scores.precision_hits[1] / (3 * rows),
                        scores.precision_hits[2] / (5 * rows)};
  std::vector<double> first;
  for (const int64_t hits : scores.precision_hits) first.push_back(hits / rows);
  if (outputs > kTopDepth) first.push_back(scores.top_hits / rows);
  if (json) {
    nlohmann::json text = {{"step", evaluated.step},
                           {"test_rows", scores.rows / places},
                           {"test_loss", loss},
                           {"test_accuracy", nullptr},
                           {"differences", evaluated.differences}};
    if (has_classes) text["test_accuracy"] = accuracy;
    if (model.has_tokens()) text["perplexity"] = std::exp(loss);
    int i = 0;
    for (const char* const depth : {"1", "3", "5", "10"}) {
      nlohmann::json& top = text["top_k_accuracy"][depth] = nullptr;
      if (single_labels && i < static_cast<int>(first.size())) top = first[i];
      if (i < 3) {
        nlohmann::json& precision = text["precision_at"][depth] = nullptr;
        if (has_classes) precision = at[i];
      }
      ++i;
    }
    std::printf("%s\n", text.dump().c_str());
    return;
  }
  const auto shown = single_labels ? absl::MakeConstSpan(first) : absl::MakeConstSpan(at);
  std::string text = absl::StrFormat("step %d, %d test %s: loss %.4f", evaluated.step, scores.rows,
                                     model.has_tokens() ? "tokens" : "rows", loss);
  if (model.has_tokens()) absl::StrAppendFormat(&text, ", perplexity %.3f", std::exp(loss));
  if (has_classes) {
    absl::StrAppendFormat(&text, ", accuracy %.4f, %s %s", accuracy,
                          !single_labels      ? "precision at 1, 3, 5"
                          : first.size() == 3 ? "top-1, 3, 5 accuracy"
                                              : "top-1, 3, 5, 10 accuracy",
                          absl::StrJoin(shown, ", ", [](std::string* out, double share) {
                            absl::StrAppendFormat(out, "%.4f", share);
                          }));
  }
  std::printf("%s\n", text.c_str());
}

}  // namespace

int EvaluateCheckpoint(const EvalOptions& options) {
  const JobReading reading = ReadJobFile(options.job_path, options.overrides, kDataFilesAlone);
  if (!reading.ok()) {
    TellJobErrors(reading);
    return 2;
  }
  const auto fail = [](const absl::Status& status, bool is_wrongly_asked) {
    std::fprintf(stderr, "tessera: %s\n", std::string(status.message()).c_str());
    const bool is_not_there = absl::IsNotFound(status) || absl::IsFailedPrecondition(status);
    return is_wrongly_asked || is_not_there ? 2 : 1;
  };
  const absl::Status has_layers = RefuseTensors(
      "eval", reading.job.model(), "evaluate there, or export the checkpoint and read that");
  if (!has_layers.ok()) return fail(has_layers, true);
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
  Print(*evaluated, reading.job.model(), data->test.outputs(), options.json);
  return 0;
}

}  // namespace tessera
