#include "worker/client/caller_learner.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/layout/layers/layer_kinds.h"
#include "common/layout/shard_map.h"

namespace tessera {
namespace {

// PyTorch's clip_grad_norm_ adds as much to the norm, which may be 0.
constexpr float kClipEpsilon = 1e-6f;

bool KeepsState(const v1::Job& job) {
  return !job.checkpoint().directory().empty() || !job.checkpoint().restore().empty();
}

}  // namespace

absl::Status CheckCallersJob(const v1::Job& job, const Recipe& recipe) {
  if (Calibrates(job.model())) {
    return absl::UnimplementedError(
        "model.layers: has a batch norm, whose running statistics are no tensors of the job; have "
        "tessera-worker train it, or make the model one of tensors (model.tensors)");
  }
  if (job.train().clip_norm() > 0 && recipe.payload != PayloadKind::kGradient) {
    return absl::UnimplementedError(absl::StrCat(
        "train.clip_norm: is ", job.train().clip_norm(), ", but method ", recipe.name,
        " pushes no gradients, and the library never sees those that this program's optimizer "
        "takes; set it to 0 and clip in the program, in front of the optimizer's step "
        "(torch.nn.utils.clip_grad_norm_), or have tessera-worker train the job"));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<CallerLearner>> CallerLearner::Create(Options options,
                                                                     Backend* backend, Turns* turns,
                                                                     CallerExchange* exchange) {
  const Recipe& recipe = options.recipe;
  TESSERA_CHECK(!recipe.subnets);
  if (recipe.split) {
    return absl::UnimplementedError(absl::StrCat(
        "method: ", recipe.name,
        " gives each worker some of the layers, which a program of one's own cannot be given; use "
        "a method whose workers train the whole model, or subnets of it"));
  }
  TESSERA_RETURN_IF_ERROR(CheckCallersJob(options.job, recipe));
  std::unique_ptr<CallerLearner> learner(
      new CallerLearner(std::move(options), backend, turns, exchange));
  TESSERA_RETURN_IF_ERROR(learner->Allocate());
  return learner;
}

absl::Status CallerLearner::Allocate() {
  const Recipe& recipe = options_.recipe;
  const int servers = static_cast<int>(options_.job.cluster().servers().count());
  keys_ = DenseKeys(options_.exchanged, ShardCount(recipe.placement, servers));
  if (recipe.core) {
    core_ = std::make_unique<ExchangeKeys>(
        ExchangeKeys::Options{options_.exchanged, servers, *recipe.core, options_.job.seed(),
                              options_.rank, options_.first, recipe.lockstep});
  }
  if (recipe.fragments) {
    fragments_ = std::make_unique<FragmentKeys>(options_.exchanged, servers, *recipe.fragments,
                                                options_.first);
  }
  if (pushes_gradient() && clips()) {
    int64_t floats = 0;
    for (size_t i = 0; i < count(); ++i) floats += size(i);
    TESSERA_ASSIGN_OR_RETURN(clipped_, Buffer<float>::Create(backend_.memory(), floats));
    TESSERA_ASSIGN_OR_RETURN(clip_factor_, Buffer<float>::Create(backend_.memory(), 1));
  }
  // Gradients go from the caller's arrays and values come into them: there is nothing to keep.
  if (pushes_gradient()) return absl::OkStatus();
  const int bases = overlaps() && fragments_ == nullptr ? 2 : 1;
  for (int b = 0; b < bases; ++b) {
    for (size_t i = 0; i < count(); ++i) {
      TESSERA_ASSIGN_OR_RETURN(Buffer<float> base,
                               Buffer<float>::Create(backend_.memory(), size(i)));
      updates_[b].push_back(absl::MakeConstSpan(base.data(), size(i)));
      bases_[b].push_back(std::move(base));
    }
  }
  for (size_t i = 0; receives_apart() && i < count(); ++i) {
    TESSERA_ASSIGN_OR_RETURN(Buffer<float> incoming,
                             Buffer<float>::Create(backend_.memory(), size(i)));
    values_.push_back(absl::MakeSpan(incoming.data(), size(i)));
    incoming_.push_back(std::move(incoming));
  }
  for (size_t i = 0; keeps_begun() && i < count(); ++i) {
    TESSERA_ASSIGN_OR_RETURN(Buffer<float> begun,
                             Buffer<float>::Create(backend_.memory(), size(i)));
    begun_.push_back(std::move(begun));
  }
  return absl::OkStatus();
}

absl::Status CallerLearner::AwaitMemory() {
  TESSERA_RETURN_IF_ERROR(turns_.Ask(Want::kValues));
  exchange_.state.clear();
  exchange_.loaded_state.clear();
  TakeMemory();
  return absl::OkStatus();
}

bool CallerLearner::keeps_begun() const {
  return fragments_ != nullptr && overlaps() && KeepsState(options_.job);
}

void CallerLearner::TakeMemory() {
  if (receives_apart()) return;
  values_.clear();
  for (size_t i = 0; i < count(); ++i) values_.push_back(absl::MakeSpan(held(i), size(i)));
}

absl::StatusOr<Losses> CallerLearner::Train(const Dataset& data, absl::Span<const uint32_t> rows,
                                            const TrainPoint& point) {
  // Both are read by the caller while it has its turn, and by nobody else.
  exchange_.point = point;
  exchange_.rows.assign(rows.begin(), rows.end());
  TESSERA_RETURN_IF_ERROR(turns_.Ask(Want::kMinibatch));
  return Losses{exchange_.loss};
}

absl::Status CallerLearner::FormUpdate() {
  TESSERA_RETURN_IF_ERROR(turns_.Ask(Want::kExchange));
  TakeMemory();
  if (pushes_gradient()) return TakeGradients();
  // In place: the base of the last pull is of no more use, and becomes the change since then.
  for (size_t i = 0; i < count(); ++i) {
    float* const base = bases_[base_][i].data();
    const FragmentKeys::Run all = {i, 0, size(i)};
    for (const FragmentKeys::Run& run :
         fragments_ != nullptr ? fragments_->PushedOf(i) : absl::MakeConstSpan(&all, 1)) {
      backend_.vector().Subtract(run.size, held(i) + run.offset, base + run.offset,
                                 base + run.offset);
    }
  }
  return backend_.Finish();
}

absl::Status CallerLearner::TakeGradients() {
  updates_[0].clear();
  if (!clips()) {
    for (size_t i = 0; i < count(); ++i) {
      updates_[0].push_back(absl::MakeConstSpan(exchange_.gradients[i], size(i)));
    }
    return absl::OkStatus();
  }
  // The caller may look at its gradients afterwards, or add to them, and so a copy is clipped.
  int64_t floats = 0;
  for (size_t i = 0; i < count(); ++i) {
    float* const place = clipped_.data() + floats;
    backend_.memory().Copy(exchange_.gradients[i], size(i) * static_cast<int64_t>(sizeof(float)),
                           place);
    updates_[0].push_back(absl::MakeConstSpan(place, size(i)));
    floats += size(i);
  }
  // The norm is over all parameters at once, as tessera-worker's GradientClip has it, with the same constant
  // added to it.
  const auto clip_norm = static_cast<float>(options_.job.train().clip_norm());
  backend_.vector().NormFactor(floats, clipped_.data(), {clip_norm, kClipEpsilon, 1},
                               clip_factor_.data());
  backend_.vector().ScaleBy(floats, clip_factor_.data(), clipped_.data());
  return backend_.Finish();
}

absl::Status CallerLearner::AdoptValues() {
  ahead_ = false;
  if (fragments_ != nullptr && fragments_->has_values()) {
    TakeUp(fragments_->End());
    CopyHeld(&begun_);
    return backend_.Finish();
  }
  if (fragments_ != nullptr) fragments_->TakeAll();
  if (receives_apart()) CopyToHeld(incoming_);
  KeepBase();
  CopyHeld(&begun_);
  return backend_.Finish();
}

void CallerLearner::TakeUp(absl::Span<const FragmentKeys::Run> runs) {
  for (const FragmentKeys::Run& run : runs) {
    const size_t i = run.parameter;
    fragments_->TakeUp(run.size, incoming_[i].data() + run.offset, held(i) + run.offset,
                       bases_[0][i].data() + run.offset, &backend_.memory(), &backend_.vector());
    // A checkpoint is of the time when the exchange began, as if what that has brought had been there at once.
    if (begun_.empty()) continue;
    fragments_->TakeUp(run.size, incoming_[i].data() + run.offset, begun_[i].data() + run.offset,
                       bases_[0][i].data() + run.offset, &backend_.memory(), &backend_.vector());
  }
}

void CallerLearner::CopyHeld(std::vector<Buffer<float>>* to) {
  for (size_t i = 0; i < to->size(); ++i) {
    backend_.memory().Copy(held(i), size(i) * static_cast<int64_t>(sizeof(float)), (*to)[i].data());
  }
}

void CallerLearner::CopyToHeld(const std::vector<Buffer<float>>& from) {
  for (size_t i = 0; i < from.size(); ++i) {
    backend_.memory().Copy(from[i].data(), size(i) * static_cast<int64_t>(sizeof(float)), held(i));
  }
}

absl::Status CallerLearner::AdoptEarlierValues() {
  if (fragments_ != nullptr) {
    // Between two exchanges, when the caller has trained on: what it holds is asked for anew.
    TESSERA_RETURN_IF_ERROR(turns_.Ask(Want::kExchange));
    TakeUp(fragments_->EndBegun());
    return backend_.Finish();
  }
  // What was trained beside the exchange comes on top of what it brought.
  for (size_t i = 0; i < count(); ++i) {
    backend_.vector().Add(size(i), incoming_[i].data(), bases_[base_][i].data(), held(i));
  }
  return backend_.Finish();
}

absl::Status CallerLearner::TrainOn() {
  if (fragments_ != nullptr) {
    fragments_->Begin();
    CopyHeld(&begun_);
  } else {
    base_ = 1 - base_;
    KeepBase();
  }
  ahead_ = true;
  TESSERA_RETURN_IF_ERROR(backend_.Finish());
  // The checkpoint of this exchange is written at the end of the next, when the caller has trained on.
  return KeepsState(options_.job) ? AskForState() : absl::OkStatus();
}

void CallerLearner::KeepBase() {
  if (pushes_gradient()) return;
  CopyHeld(&bases_[base_]);
}

absl::Status CallerLearner::Recut(const SubnetPlace&) {
  TESSERA_CHECK(false);  // Create refuses methods of subnets.
  return absl::OkStatus();
}

absl::Status CallerLearner::BeginTail() {
  TESSERA_CHECK(false);  // Exchanges are of the whole model already.
  return absl::OkStatus();
}

absl::Status CallerLearner::AskForState() {
  exchange_.state.clear();
  return turns_.Ask(Want::kState);
}

absl::Status CallerLearner::PrepareToSave() {
  // It was asked for when the exchange began that has brought the checkpoint's number.
  return ahead_ ? absl::OkStatus() : AskForState();
}

absl::StatusOr<PrivateState> CallerLearner::private_state() {
  PrivateState state;
  state.bytes.push_back({kCallerState, &exchange_.state});
  // What exchanges have not moved is this worker's own.
  for (size_t i = 0; keeps_values() && i < count(); ++i) {
    state.arrays.push_back({absl::StrCat("replica.", options_.exchanged.parameters[i].name),
                            absl::MakeSpan(begun_.empty() ? held(i) : begun_[i].data(), size(i))});
  }
  return state;
}

absl::Status CallerLearner::AdoptPrivateState() {
  exchange_.loaded_state = std::move(exchange_.state);
  exchange_.state.clear();
  if (core_ != nullptr) KeepBase();
  CopyToHeld(begun_);
  return backend_.Finish();
}

absl::StatusOr<ExchangeResult> CallerLearner::BeginEvaluation(ParameterClient* servers,
                                                              Exchange after, IdleNotice word) {
  // The caller scores what lies in its own memory, also where exchanges overlap and values come elsewhere.
  if (fragments_ != nullptr) CopyHeld(&incoming_);
  ParameterArrays shown;
  for (size_t i = 0; i < count(); ++i) shown.push_back(absl::MakeSpan(held(i), size(i)));
  TESSERA_ASSIGN_OR_RETURN(const ExchangeResult read, servers->Read(after, word, shown));
  // Where exchanges move a core, what was trained here and not sent stays in the base meanwhile.
  if (!keeps_values()) KeepBase();
  TESSERA_RETURN_IF_ERROR(backend_.Finish());
  return read;
}

absl::StatusOr<bool> CallerLearner::EndEvaluation() {
  if (keeps_values()) CopyToHeld(fragments_ != nullptr ? incoming_ : bases_[0]);
  TESSERA_RETURN_IF_ERROR(backend_.Finish());
  return false;
}

absl::StatusOr<std::vector<float>> CallerLearner::Calibrate(const Dataset&,
                                                            absl::Span<const uint32_t>) {
  return std::vector<float>();
}

absl::StatusOr<Scores> CallerLearner::Score(const Dataset&, absl::Span<const uint32_t>,
                                            absl::Span<const float>) {
  TESSERA_RETURN_IF_ERROR(turns_.Ask(Want::kScores));
  return exchange_.scores;
}

}  // namespace tessera
