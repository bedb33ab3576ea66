#include "deploy/cli/sample/saved_text_model.h"

#include <google/protobuf/message.h>

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "deploy/cli/saved_parameters.h"
#include "kernels/devices.h"

namespace tessera {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;

// Whether a layer of `message`, at whatever depth of blocks, is attention in which places see those behind them.
bool SeesBehind(const Message& message) {
  if (message.GetDescriptor() == v1::Attention::descriptor()) {
    return !static_cast<const v1::Attention&>(message).causal();
  }
  const google::protobuf::Reflection& reflection = *message.GetReflection();
  std::vector<const FieldDescriptor*> fields;
  reflection.ListFields(message, &fields);
  for (const FieldDescriptor* field : fields) {
    if (field->cpp_type() != FieldDescriptor::CPPTYPE_MESSAGE) continue;
    const int count = field->is_repeated() ? reflection.FieldSize(message, field) : 1;
    for (int i = 0; i < count; ++i) {
      if (SeesBehind(field->is_repeated() ? reflection.GetRepeatedMessage(message, field, i)
                                          : reflection.GetMessage(message, field))) {
        return true;
      }
    }
  }
  return false;
}

}  // namespace

absl::Status CheckWrites(const v1::Model& model) {
  if (!model.has_tokens()) {
    return absl::FailedPreconditionError(
        "the checkpoint's model has no tokens, want one whose model.input is tokens: it writes no "
        "text");
  }
  if (!SeesBehind(model)) return absl::OkStatus();
  return absl::FailedPreconditionError(
      "the checkpoint's model has attention with causal: false, want true: its places see the "
      "tokens behind them, which are not written yet");
}

absl::StatusOr<std::unique_ptr<Spelling>> SpellingOf(const v1::Job& saved,
                                                     const ModelFacts& facts) {
  if (saved.data().format() != "text") {
    return SpellNumbers(saved.model().tokens().vocabulary());
  }
  if (saved.data().tokenizer() == "bytes") return SpellBytes();
  if (!facts.characters.empty()) return SpellCharacters(facts.characters);
  return absl::FailedPreconditionError(
      "the checkpoint has no characters, want those that its model was trained on; is there a "
      "whole checkpoint of a worker with data?");
}

absl::StatusOr<std::unique_ptr<SavedTextModel>> SavedTextModel::Create(const v1::Job& job,
                                                                       const Checkpoint& checkpoint,
                                                                       const ModelFacts& facts,
                                                                       const std::string& device,
                                                                       int threads) {
  std::unique_ptr<SavedTextModel> made(new SavedTextModel(job.model()));
  TESSERA_ASSIGN_OR_RETURN(made->backend_, CreateBackend(device, threads));
  Network::Options options;
  options.batch_max = 1;
  options.evaluates_only = true;
  TESSERA_ASSIGN_OR_RETURN(made->network_, Network::Create(job.model(), options, *made->backend_));
  TESSERA_RETURN_IF_ERROR(LoadSavedParameters("sample", checkpoint, made->network_.get()));
  const int64_t constants = made->network_->plan().constants;
  if (static_cast<int64_t>(facts.norm_constants.size()) != constants && constants > 0) {
    return absl::FailedPreconditionError(absl::StrCat(
        "sample: the checkpoint of step ", checkpoint.manifest().step,
        " has no constants of its batch norms, as the job made no evaluation there; name a "
        "checkpoint at an evaluation or at the job's end"));
  }
  if (constants > 0) made->constants_ = facts.norm_constants;
  made->row_.resize(static_cast<size_t>(made->context_));
  made->scores_.resize(static_cast<size_t>(made->network_->shape().widths.back()));
  TESSERA_CHECK(made->network_->shape().inputs() == made->context_ &&
                made->network_->shape().widths.back() == made->context_ * made->vocabulary_);
  return made;
}

absl::StatusOr<absl::Span<const float>> SavedTextModel::Scores(absl::Span<const int32_t> tokens) {
  TESSERA_CHECK(!tokens.empty());
  const auto context = static_cast<size_t>(context_);
  if (tokens.size() > context) tokens.remove_prefix(tokens.size() - context);
  // What stands behind the last token is not seen from there.
  std::fill(std::copy(tokens.begin(), tokens.end(), row_.begin()), row_.end(), 0.0f);
  Batch batch;
  batch.rows = 1;
  batch.inputs = row_.data();
  TESSERA_RETURN_IF_ERROR(
      network_->evaluation().Predict(batch, constants_, absl::MakeSpan(scores_)));
  const auto vocabulary = static_cast<size_t>(vocabulary_);
  return absl::MakeConstSpan(scores_).subspan((tokens.size() - 1) * vocabulary, vocabulary);
}

}  // namespace tessera
