// From which checkpoint a job goes on whose servers have disks of their own.
#ifndef TESSERA_SERVER_CHECKPOINT_CHECKPOINT_CHOICE_H_
#define TESSERA_SERVER_CHECKPOINT_CHECKPOINT_CHOICE_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/checkpoint_store.pb.h"

namespace tessera {

// What one server said that it holds.
struct ServerHolding {
  uint64_t server = 0;
  v1::ListCheckpointsReply list;
};

struct CheckpointChoice {
  uint64_t step = 0;
  uint64_t manifest_sum = 0;
  // Later ones that were passed over, and copies that are broken, in words.
  std::vector<std::string> passed_over;
};

// The newest checkpoint of which every file is whole on some server's disk; of `step` alone, where that is set.
// `copies` is checkpoint.copies, for words alone.
//   kNotFound  there is none; the message names the newest, what it lacks, and who should have had that
absl::StatusOr<CheckpointChoice> ChooseCheckpoint(const std::vector<ServerHolding>& holdings,
                                                  std::optional<uint64_t> step, int64_t copies);

}  // namespace tessera

#endif  // TESSERA_SERVER_CHECKPOINT_CHECKPOINT_CHOICE_H_
