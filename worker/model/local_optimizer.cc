#include "worker/model/local_optimizer.h"

#include "common/base/check.h"
#include "common/rule/optimizer.h"

namespace tessera {
namespace {

// No kind has more of them (StateNames).
constexpr size_t kStatesMax = 2;

}  // namespace

absl::StatusOr<std::unique_ptr<LocalOptimizer>> LocalOptimizer::Create(
    const v1::Optimizer& optimizer, Network& network, Backend& backend, bool shows_states) {
  if (optimizer.kind_case() == v1::Optimizer::KIND_NOT_SET) {
    return absl::InvalidArgumentError(
        "train.optimizer: there is none, want sgd, adam, adamw, adagrad, rmsprop or muon");
  }
  // The network moves its first weight in the minibatch's columns alone, which is right only where all others stay.
  TESSERA_CHECK(!network.pass().steps_first_weight() || LeavesZeroGradients(optimizer));
  auto made = std::unique_ptr<LocalOptimizer>(new LocalOptimizer(optimizer, network, backend));
  TESSERA_CHECK(made->state_names_.size() <= kStatesMax);
  if (optimizer.has_muon()) {
    TESSERA_ASSIGN_OR_RETURN(made->muon_, Muon::Create(optimizer.muon(), network.plan(), backend));
  }
  for (size_t i = 0; i < network.shape().parameters.size(); ++i) {
    // Rounded copies lie by parameter, and are written by steps of single parameters.
    made->rounds_ = made->rounds_ || network.pass().rounded(static_cast<int>(i)) != nullptr;
  }
  for (size_t i = 0; i < made->state_names_.size(); ++i) {
    Buffer<float> state;
    TESSERA_ASSIGN_OR_RETURN(
        state, Buffer<float>::Create(backend.memory(), network.plan().parameter_floats));
    // On a device a view costs as much memory on the host as the state itself, so it is made on demand.
    if (shows_states || backend.memory().host_addressable()) {
      TESSERA_ASSIGN_OR_RETURN(
          HostView<float> view,
          HostView<float>::Create(backend.memory(), state.data(), state.size()));
      made->views_.push_back(std::move(view));
    }
    made->state_addresses_.push_back(state.data());
    made->states_.push_back(std::move(state));
  }
  return made;
}

int64_t LocalOptimizer::MemoryNeeded(const v1::Optimizer& optimizer, const NetworkPlan& plan) {
  return static_cast<int64_t>(StateNames(optimizer).size() * sizeof(float)) *
             plan.parameter_floats +
         (optimizer.has_muon() ? Muon::MemoryNeeded(plan) : 0);
}

bool LocalOptimizer::LeavesZeroGradients(const v1::Optimizer& optimizer) {
  return optimizer.has_sgd() && optimizer.sgd().momentum() == 0 &&
         optimizer.sgd().weight_decay() == 0;
}

void LocalOptimizer::Begin(const Update& update) {
  const OptimizerNumbers numbers = NumbersOf(optimizer_, update);
  // Kernels read the step's numbers from the device's memory, so that a repeated sequence of kernels finds new ones.
  backend_.memory().CopyIn(&numbers, sizeof(numbers), network_.pass().optimizer_numbers());
}

void LocalOptimizer::Queue(int i) {
  const int64_t offset = network_.plan().parameter_offsets[i];
  float* states[kStatesMax] = {};
  for (size_t s = 0; s < state_addresses_.size(); ++s) states[s] = state_addresses_[s] + offset;
  kernel_->Step(network_.pass().optimizer_numbers(), network_.shape().parameters[i].size(),
                network_.arrays().device_gradient(i).data(), states,
                network_.arrays().device_parameters() + offset, network_.pass().rounded(i));
}

void LocalOptimizer::StepMatrix(int i, float rate) {
  const int64_t offset = network_.plan().parameter_offsets[i];
  float* const weight = network_.arrays().device_parameters() + offset;
  muon_->Step(i, rate, network_.arrays().GradientAt(i), state_addresses_[0] + offset, weight);
  Bf16* const rounded = network_.pass().rounded(i);
  if (rounded == nullptr) return;
  // Products in bf16 read the copy, and the pass takes it for up to date (TrainingPass).
  backend_.vector().Round(network_.shape().parameters[i].size(), weight, rounded);
}

bool LocalOptimizer::QueueProduct(int i, const WeightProduct& product) {
  return kernel_->StepByProduct(network_.pass().optimizer_numbers(), product.shape, product.x,
                                product.dy, network_.arrays().device_parameter(i).data(),
                                network_.pass().rounded(i));
}

absl::Status LocalOptimizer::Step(const Update& update) {
  Begin(update);
  const NetworkPlan& plan = network_.plan();
  const bool steps_first = network_.pass().steps_first_weight();
  if (steps_first) {
    // Plain sgd: w -= rate * (scale * g).
    // The kernel that steps in columns has no factor of its own.
    TESSERA_CHECK(update.scale == 1);
    network_.pass().StepFirstWeight(-(first_weight_rate_ * update.rate));
  }
  if (rounds_ || muon_ != nullptr) {
    for (int i = steps_first ? 1 : 0; i < static_cast<int>(plan.shape.parameters.size()); ++i) {
      if (muon_ != nullptr && muon_->takes(i)) {
        // Muon has no scale: its step's length does not depend on the gradient's.
        TESSERA_CHECK(update.scale == 1);
        StepMatrix(i, update.rate);
      } else {
        Queue(i);
      }
    }
    return backend_.TakeFailure();
  }
  // Without rounded copies all parameters go in one call, which steps their padding too: it has zero gradients.
  const int64_t first = steps_first ? GradientsBegin(plan, steps_first) : 0;
  kernel_->Step(network_.pass().optimizer_numbers(), plan.parameter_floats - first,
                network_.arrays().device_gradients(), state_addresses_.data(),
                network_.arrays().device_parameters() + first, nullptr);
  return backend_.TakeFailure();
}

absl::Status LocalOptimizer::Reset() {
  for (const Buffer<float>& state : states_) backend_.memory().Zero(state.data(), state.bytes());
  return backend_.TakeFailure();
}

std::vector<absl::Span<float>> LocalOptimizer::states() const {
  std::vector<absl::Span<float>> views;
  for (const HostView<float>& view : views_) views.emplace_back(view.data(), view.size());
  return views;
}

}  // namespace tessera
