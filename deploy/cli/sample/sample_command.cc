#include "deploy/cli/sample/sample_command.h"

#include <cstdio>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/base/check.h"
#include "common/checkpoint/model_facts.h"
#include "common/config/job_digest.h"
#include "deploy/cli/flag_reader.h"
#include "deploy/cli/open_checkpoint.h"
#include "deploy/cli/sample/sampler.h"
#include "deploy/cli/sample/saved_text_model.h"
#include "deploy/cli/sample/spelling.h"
#include "deploy/cli/sample/written_text.h"
#include "deploy/cli/tensor_refusal.h"

namespace tessera {
namespace {

constexpr int kTokensMax = 1000000;
constexpr double kTemperatureMax = 1000;
constexpr int kThreadsMax = 1024;

// Everything that is wrong with the flags, a line each.
std::string FlagErrors(const SampleOptions& options) {
  FlagReader flags("tessera sample");
  flags.Between("tokens", options.tokens, 1, kTokensMax);
  flags.Number("temperature", options.temperature, 0, kTemperatureMax);
  flags.Between("threads", options.threads, 1, kThreadsMax);
  return flags.errors();
}

// Whether stdout has taken it.
bool Print(absl::string_view text) {
  const bool is_taken = std::fwrite(text.data(), 1, text.size(), stdout) == text.size();
  return std::fflush(stdout) == 0 && is_taken;
}

// A text of `checkpoint`, on stdout. Where it was wrongly asked for, nothing was written.
absl::Status Write(const SampleOptions& options, const Checkpoint& checkpoint,
                   const ModelFacts& facts) {
  const v1::Job job = JobOfText(checkpoint.manifest().job_text);
  TESSERA_RETURN_IF_ERROR(
      RefuseTensors("sample", job.model(), "export the checkpoint and sample there"));
  TESSERA_RETURN_IF_ERROR(CheckWrites(job.model()));
  TESSERA_ASSIGN_OR_RETURN(const std::unique_ptr<Spelling> spelling, SpellingOf(job, facts));
  const absl::StatusOr<std::vector<int32_t>> prompt = spelling->Read(options.prompt);
  if (!prompt.ok()) {
    return absl::InvalidArgumentError(absl::StrCat("--prompt: ", prompt.status().message()));
  }
  TESSERA_ASSIGN_OR_RETURN(
      const std::unique_ptr<SavedTextModel> model,
      SavedTextModel::Create(job, checkpoint, facts, options.device, options.threads));
  Sampler sampler(options.temperature, options.seed);
  const absl::Status written =
      WriteText(*prompt, options.tokens, model.get(), &sampler, spelling.get(), Print);
  Print("\n");
  if (written.ok()) return written;
  // Not what was asked for is wrong.
  return absl::DataLossError(absl::StrCat("sample: ", written.message()));
}

}  // namespace

int WriteSample(const SampleOptions& options) {
  if (const std::string errors = FlagErrors(options); !errors.empty()) {
    std::fputs(errors.c_str(), stderr);
    return 2;
  }
  const auto fail = [](const absl::Status& status) {
    std::fprintf(stderr, "tessera: %s\n", std::string(status.message()).c_str());
    const bool is_wrongly_asked = absl::IsNotFound(status) || absl::IsFailedPrecondition(status) ||
                                  absl::IsInvalidArgument(status);
    return is_wrongly_asked ? 2 : 1;
  };
  const absl::StatusOr<std::unique_ptr<Checkpoint>> checkpoint =
      OpenNamedCheckpoint(options.checkpoint);
  if (!checkpoint.ok()) {
    std::fprintf(stderr, "tessera: %s\n", std::string(checkpoint.status().message()).c_str());
    return absl::IsNotFound(checkpoint.status()) ? 2 : 1;
  }
  const absl::StatusOr<std::optional<ModelFacts>> facts = ReadFacts(**checkpoint);
  if (!facts.ok()) {
    std::fprintf(stderr, "tessera: %s\n", std::string(facts.status().message()).c_str());
    return 1;
  }
  const absl::Status written = Write(options, **checkpoint, facts->value_or(ModelFacts()));
  return written.ok() ? 0 : fail(written);
}

}  // namespace tessera
