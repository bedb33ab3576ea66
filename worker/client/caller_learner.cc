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
  if (pushes_gradient() && clips()) {
    int64_t floats = 0;
    for (size_t i = 0; i < count(); ++i) floats += size(i);
    TESSERA_ASSIGN_OR_RETURN(clipped_, Buffer<float>::Create(backend_.memory(), floats));
    TESSERA_ASSIGN_OR_RETURN(clip_factor_, Buffer<float>::Create(backend_.memory(), 1));
  }
  // Gradients go from the caller's arrays and values come into them: there is nothing to keep.
  if (pushes_gradient()) return absl::OkStatus();
  for (int b = 0; b < (overlaps() ? 2 : 1); ++b) {
    for (size_t i = 0; i < count(); ++i) {
      TESSERA_ASSIGN_OR_RETURN(Buffer<float> base,
                               Buffer<float>::Create(backend_.memory(), size(i)));
      updates_[b].push_back(absl::MakeConstSpan(base.data(), size(i)));
      bases_[b].push_back(std::move(base));
    }
  }
  for (size_t i = 0; overlaps() && i < count(); ++i) {
    TESSERA_ASSIGN_OR_RETURN(Buffer<float> incoming,
                             Buffer<float>::Create(backend_.memory(), size(i)));
    values_.push_back(absl::MakeSpan(incoming.data(), size(i)));
    incoming_.push_back(std::move(incoming));
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

void CallerLearner::TakeMemory() {
  if (overlaps()) return;
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
    backend_.vector().Subtract(size(i), held(i), base, base);
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
  for (size_t i = 0; overlaps() && i < count(); ++i) {
    backend_.memory().Copy(incoming_[i].data(), size(i) * static_cast<int64_t>(sizeof(float)),
                           held(i));
  }
  KeepBase();
  return backend_.Finish();
}

absl::Status CallerLearner::AdoptEarlierValues() {
  // What was trained beside the exchange comes on top of what it brought.
  for (size_t i = 0; i < count(); ++i) {
    backend_.vector().Add(size(i), incoming_[i].data(), bases_[base_][i].data(), held(i));
  }
  return backend_.Finish();
}

absl::Status CallerLearner::TrainOn() {
  base_ = 1 - base_;
  KeepBase();
  TESSERA_RETURN_IF_ERROR(backend_.Finish());
  // The checkpoint of this exchange is written at the end of the next, when the caller has trained on.
  return KeepsState(options_.job) ? AskForState() : absl::OkStatus();
}

void CallerLearner::KeepBase() {
  if (pushes_gradient()) return;
  for (size_t i = 0; i < count(); ++i) {
    backend_.memory().Copy(held(i), size(i) * static_cast<int64_t>(sizeof(float)),
                           bases_[base_][i].data());
  }
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
  return overlaps() ? absl::OkStatus() : AskForState();
}

absl::StatusOr<PrivateState> CallerLearner::private_state() {
  PrivateState state;
  state.bytes.push_back({kCallerState, &exchange_.state});
  // What exchanges have not moved is this worker's own.
  for (size_t i = 0; core_ != nullptr && i < count(); ++i) {
    state.arrays.push_back({absl::StrCat("replica.", options_.exchanged.parameters[i].name),
                            absl::MakeSpan(held(i), size(i))});
  }
  return state;
}

absl::Status CallerLearner::AdoptPrivateState() {
  exchange_.loaded_state = std::move(exchange_.state);
  exchange_.state.clear();
  if (core_ != nullptr) KeepBase();
  return backend_.Finish();
}

absl::StatusOr<ExchangeResult> CallerLearner::BeginEvaluation(ParameterClient* servers,
                                                              Exchange after, IdleNotice word) {
  // The caller scores what lies in its own memory, also where exchanges overlap and values come elsewhere.
  ParameterArrays shown;
  for (size_t i = 0; i < count(); ++i) shown.push_back(absl::MakeSpan(held(i), size(i)));
  TESSERA_ASSIGN_OR_RETURN(const ExchangeResult read, servers->Read(after, word, shown));
  // Where exchanges move a core, what was trained here and not sent stays in the base meanwhile.
  if (core_ == nullptr) KeepBase();
  TESSERA_RETURN_IF_ERROR(backend_.Finish());
  return read;
}

absl::StatusOr<bool> CallerLearner::EndEvaluation() {
  for (size_t i = 0; core_ != nullptr && i < count(); ++i) {
    backend_.memory().Copy(bases_[0][i].data(), size(i) * static_cast<int64_t>(sizeof(float)),
                           held(i));
  }
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
