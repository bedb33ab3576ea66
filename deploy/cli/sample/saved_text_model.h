// The model of tokens that a checkpoint has.
#ifndef TESSERA_DEPLOY_CLI_SAMPLE_SAVED_TEXT_MODEL_H_
#define TESSERA_DEPLOY_CLI_SAMPLE_SAVED_TEXT_MODEL_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/checkpoint/checkpoint.h"
#include "common/checkpoint/model_facts.h"
#include "deploy/cli/sample/next_token.h"
#include "deploy/cli/sample/spelling.h"
#include "kernels/backend.h"
#include "proto/job.pb.h"
#include "worker/model/network.h"

namespace tessera {

// Whether texts can be written by `model`: it reads tokens, and no place sees those behind it. Otherwise
// kFailedPrecondition, with why not.
absl::Status CheckWrites(const v1::Model& model);

// How the tokens of a model are written that the job `saved` has trained. kFailedPrecondition: the checkpoint lacks
// the characters.
absl::StatusOr<std::unique_ptr<Spelling>> SpellingOf(const v1::Job& saved, const ModelFacts& facts);

// Owns the whole network.
class SavedTextModel final : public NextToken {
 public:
  // `job` is the one that wrote the checkpoint, whose model CheckWrites is content with.
  //   kInvalidArgument     no such device, or no such number of threads
  //   kFailedPrecondition  the device is not here, or the checkpoint lacks what the model's batch norms need
  static absl::StatusOr<std::unique_ptr<SavedTextModel>> Create(const v1::Job& job,
                                                                const Checkpoint& checkpoint,
                                                                const ModelFacts& facts,
                                                                const std::string& device,
                                                                int threads);

  absl::StatusOr<absl::Span<const float>> Scores(absl::Span<const int32_t> tokens) override;

 private:
  explicit SavedTextModel(const v1::Model& model)
      : context_(model.tokens().context()), vocabulary_(model.tokens().vocabulary()) {}

  const int64_t context_;
  const int64_t vocabulary_;
  std::unique_ptr<Backend> backend_;
  std::unique_ptr<Network> network_;
  // What batch norms normalise with.
  std::vector<float> constants_;
  // A row of tokens, and what the model makes of it, [context, vocabulary].
  std::vector<float> row_;
  std::vector<float> scores_;
};

}  // namespace tessera

#endif  // TESSERA_DEPLOY_CLI_SAMPLE_SAVED_TEXT_MODEL_H_
