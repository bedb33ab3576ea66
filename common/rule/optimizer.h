// The optimizers that a job may name, as rules: of a shard that is fed gradients, and of a worker
// that takes local steps. One arithmetic for both (PyTorch's torch.optim, 1.13).
#ifndef TESSERA_COMMON_RULE_OPTIMIZER_H_
#define TESSERA_COMMON_RULE_OPTIMIZER_H_

#include <memory>
#include <string>
#include <vector>

#include "common/rule/rule.h"
#include "proto/job.pb.h"

namespace tessera {

// `optimizer` names one of its kinds (the job reader sees to that).
std::unique_ptr<UpdateRule> MakeOptimizer(const v1::Optimizer& optimizer);

// Of the rule's state arrays, in their order: "momentum"; "squares"; "mean", "squares".
std::vector<std::string> StateNames(const v1::Optimizer& optimizer);

}  // namespace tessera

#endif  // TESSERA_COMMON_RULE_OPTIMIZER_H_
