// What a worker's checkpoint file keeps of what it trains.
#ifndef TESSERA_WORKER_TRAIN_PRIVATE_STATE_H_
#define TESSERA_WORKER_TRAIN_PRIVATE_STATE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace tessera {

// What a learner keeps from one exchange to the next that no server has: its optimizer's state.
struct PrivateState {
  struct Array {
    std::string name;
    absl::Span<float> values;
    // A file without it is one of before there was such: it stays as it is.
    bool may_lack = false;
  };
  // What is of no fixed size; empty where a file does not have it.
  struct Bytes {
    std::string name;
    std::string* content = nullptr;
  };
  std::vector<Array> arrays;
  std::vector<Bytes> bytes;
  // Of the optimizer, where it counts its own.
  uint64_t* local_steps = nullptr;
  // Of the last round trained, where subnets are; nullptr: all trained the whole model.
  uint32_t* sites = nullptr;
};

// One thread, the train loop's.
class PrivateStateOwner {
 public:
  virtual ~PrivateStateOwner() = default;

  // private_state() is about to be copied into a checkpoint, as of now or, where exchanges overlap, of TrainOn.
  virtual absl::Status PrepareToSave() { return absl::OkStatus(); }
  // After AdoptValues, or EndEvaluation, until the next call of a method: views of what a checkpoint must
  // keep. They may be written, and AdoptPrivateState goes on from there. Most learners keep nothing. An error
  // is the device's.
  virtual absl::StatusOr<PrivateState> private_state() { return PrivateState(); }
  virtual absl::Status AdoptPrivateState() { return absl::OkStatus(); }
};

}  // namespace tessera

#endif  // TESSERA_WORKER_TRAIN_PRIVATE_STATE_H_
