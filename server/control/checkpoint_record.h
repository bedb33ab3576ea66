// What became of the checkpoints of a job, for people: the last whole one, and those that failed.
#ifndef TESSERA_SERVER_CONTROL_CHECKPOINT_RECORD_H_
#define TESSERA_SERVER_CONTROL_CHECKPOINT_RECORD_H_

#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/checkpoint/manifest.h"
#include "proto/coordinator_state.pb.h"
#include "proto/status.pb.h"

namespace tessera {

class CheckpointRecord {
 public:
  // Numbers of this run's last whole checkpoint, and of the last that failed since; 0: none.
  uint64_t whole_number() const { return whole_number_; }
  uint64_t failed_number() const { return failed_number_; }

  // Checkpoint `number` is whole; its values are of `copied_at`.
  void OnWhole(uint64_t number, const Manifest& manifest, absl::Time copied_at, absl::Time now);
  void OnFailed(uint64_t number, absl::string_view why);

  void Fill(absl::Time now, v1::CheckpointStatus* status) const;
  void Save(v1::CheckpointsState* state) const;
  void Load(const v1::CheckpointsState& state);

 private:
  uint64_t whole_number_ = 0;
  uint64_t whole_step_ = 0;
  uint64_t whole_bytes_ = 0;
  absl::Duration whole_taken_;
  absl::Time whole_at_;
  uint64_t count_ = 0;
  uint64_t failed_number_ = 0;
  uint64_t failed_count_ = 0;
  std::string failure_;
};

}  // namespace tessera

#endif  // TESSERA_SERVER_CONTROL_CHECKPOINT_RECORD_H_
