// Where the stages of a network find what they read in a forward pass, and where their outputs go.
#ifndef TESSERA_WORKER_MODEL_ACTIVATION_ADDRESSES_H_
#define TESSERA_WORKER_MODEL_ACTIVATION_ADDRESSES_H_

#include <utility>
#include <vector>

#include "worker/model/buffer_plan.h"
#include "worker/model/stage.h"
#include "worker/model/stage_plan.h"

namespace tessera {

class ActivationAddresses {
 public:
  // `outputs`, by stage: the address of its output, null where the output is the network's input.
  ActivationAddresses(const std::vector<StagePlan>& stages, std::vector<float*> outputs)
      : outputs_(std::move(outputs)) {
    for (const StagePlan& stage : stages) {
      reads_.push_back(stage.reads);
      inputs_.emplace_back(stage.reads.size(), nullptr);
    }
  }

  // What stage i reads, where the network's input is at `input`. Valid until the stage is asked for again.
  StageInputs inputs(int i, const float* input) {
    for (size_t k = 0; k < reads_[i].size(); ++k) {
      const int read = reads_[i][k];
      const float* const written = read == kNetworkInput ? nullptr : outputs_[read];
      inputs_[i][k] = written == nullptr ? input : written;
    }
    return inputs_[i];
  }
  float* output(int i) const { return outputs_[i]; }

 private:
  std::vector<float*> outputs_;
  std::vector<std::vector<int>> reads_;
  std::vector<std::vector<const float*>> inputs_;
};

}  // namespace tessera

#endif  // TESSERA_WORKER_MODEL_ACTIVATION_ADDRESSES_H_
