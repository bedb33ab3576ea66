// The optimizers that a job may name, as rules: of a shard that is fed gradients, and of a worker
// that takes local steps. One arithmetic for both (PyTorch's torch.optim, 1.13).
#ifndef TESSERA_COMMON_RULE_OPTIMIZER_H_
#define TESSERA_COMMON_RULE_OPTIMIZER_H_

#include <memory>
#include <string>
#include <vector>

#include "common/rule/adagrad.h"
#include "common/rule/adam.h"
#include "common/rule/rmsprop.h"
#include "common/rule/rule.h"
#include "common/rule/sgd.h"
#include "proto/job.pb.h"

namespace tessera {

// `optimizer` names one of its kinds (the job reader sees to that), and not muon: what that does with an entry depends
// on its whole matrix, so that it is no rule (IsRule).
std::unique_ptr<UpdateRule> MakeOptimizer(const v1::Optimizer& optimizer);

// Whether entries know nothing of each other, so that a server may apply it to the rows that it has.
inline bool IsRule(const v1::Optimizer& optimizer) { return !optimizer.has_muon(); }

// Muon's optimizer of what is no matrix.
v1::Optimizer AdamWOf(const v1::Muon& keys);

// The rules' options, for kernels that do what these rules do on other devices. AdamOptionsOf takes Adam's or
// AdamW's.
SgdOptions SgdOptionsOf(const v1::Sgd& keys);
AdagradOptions AdagradOptionsOf(const v1::Adagrad& keys);
RmsPropOptions RmsPropOptionsOf(const v1::RmsProp& keys);
AdamOptions AdamOptionsOf(const v1::Optimizer& optimizer);

// The names of the rule's state arrays, in their order: "momentum"; "squares"; "mean", "squares"; "mean_squares",
// "momentum". None where `optimizer` names no kind. Muon has "momentum", which is AdamW's mean where AdamW is at work,
// and "squares", which stay 0 for matrices.
std::vector<std::string> StateNames(const v1::Optimizer& optimizer);

}  // namespace tessera

#endif  // TESSERA_COMMON_RULE_OPTIMIZER_H_
