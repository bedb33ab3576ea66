#include "worker/model/network.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/layout/layers/layer_kinds.h"
#include "worker/model/model_loss.h"

namespace tessera {

absl::StatusOr<std::unique_ptr<Network>> Network::Create(const v1::Model& model,
                                                         const Options& options, Backend& backend) {
  if (options.batch_max < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("network: batch_max is ", options.batch_max, ", want at least 1"));
  }
  TESSERA_RETURN_IF_ERROR(CheckLoss(model));
  TESSERA_ASSIGN_OR_RETURN(NetworkPlan plan, PlanOf(model));
  if (options.sparse_input && !ReadsSparse(model)) {
    return absl::InvalidArgumentError(
        "model.layers: the first is no linear layer, want one: no other reads sparse rows");
  }
  // The whole plan is made and checked first, as a half follows from it.
  if (options.layers.has_value()) {
    TESSERA_ASSIGN_OR_RETURN(plan, HalfOf(plan, *options.layers));
    const bool is_half = plan.part != ModelPart::kWhole;
    if (is_half && (options.sparse_input || options.evaluates_only)) {
      return absl::InvalidArgumentError(absl::StrCat(
          "network: a half of a model has ",
          options.sparse_input ? "sparse_input, want dense" : "evaluates_only, want it to train"));
    }
  }
  auto network = std::unique_ptr<Network>(new Network(model, options, std::move(plan), backend));
  TESSERA_RETURN_IF_ERROR(network->Allocate(options, backend));
  return network;
}

// The plan is moved before input_ refers to it: members are made in the order in which the class declares them.
Network::Network(const v1::Model& model, const Options& options, NetworkPlan plan, Backend& backend)
    : model_(model),
      plan_(std::move(plan)),
      input_(plan_, model.loss(), options, backend.memory()) {}

absl::Status Network::Allocate(const Options& options, Backend& backend) {
  TESSERA_ASSIGN_OR_RETURN(arrays_, NetworkArrays::Create(plan_, options, backend.memory()));
  TESSERA_ASSIGN_OR_RETURN(stages_, NetworkStages::Create(plan_, options, *arrays_, backend));
  if (options.trains()) {
    TESSERA_ASSIGN_OR_RETURN(
        pass_, TrainingPass::Create(model_, plan_, options, *stages_, *arrays_, backend));
    steps_ = std::make_unique<TrainingSteps>(plan_, input_, *pass_, *stages_, backend);
    TESSERA_ASSIGN_OR_RETURN(front_, FrontHalf::Create(plan_, options, input_, *pass_, backend));
    TESSERA_ASSIGN_OR_RETURN(back_, BackHalf::Create(plan_, options, *pass_, backend));
  }
  TESSERA_ASSIGN_OR_RETURN(evaluation_, NetworkEvaluation::Create(model_, plan_, options, input_,
                                                                  *stages_, steps_.get(), backend));
  return absl::OkStatus();
}

}  // namespace tessera
