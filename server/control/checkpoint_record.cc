#include "server/control/checkpoint_record.h"

#include "absl/strings/str_cat.h"
#include "common/base/log.h"

namespace tessera {

void CheckpointRecord::OnWhole(uint64_t number, const Manifest& manifest, absl::Time copied_at,
                               absl::Time now) {
  whole_number_ = number;
  whole_step_ = manifest.step;
  whole_bytes_ = 0;
  for (const CheckpointFile& file : manifest.files) whole_bytes_ += file.bytes;
  whole_taken_ = now - copied_at;
  whole_at_ = now;
  ++count_;
  failed_number_ = 0;
  failure_.clear();
  Log(LogLevel::kInfo,
      absl::StrCat("checkpoint: whole number=", number, " step=", whole_step_,
                   " bytes=", whole_bytes_, " ms=", absl::ToInt64Milliseconds(whole_taken_)));
}

void CheckpointRecord::OnFailed(uint64_t number, absl::string_view why) {
  failed_number_ = number;
  ++failed_count_;
  failure_ = std::string(why);
}

void CheckpointRecord::Fill(absl::Time now, v1::CheckpointStatus* status) const {
  status->set_number(whole_number_);
  status->set_step(whole_step_);
  status->set_bytes(whole_bytes_);
  status->set_count(count_);
  if (count_ > 0) {
    status->set_write_seconds(absl::ToDoubleSeconds(whole_taken_));
    status->set_age_seconds(absl::ToDoubleSeconds(now - whole_at_));
  }
  status->set_failed_number(failed_number_);
  status->set_failed_count(failed_count_);
  status->set_failure(failure_);
}

void CheckpointRecord::Save(v1::CheckpointsState* state) const {
  state->set_whole_number(whole_number_);
  state->set_whole_step(whole_step_);
  state->set_whole_bytes(whole_bytes_);
  state->set_whole_taken(absl::ToInt64Nanoseconds(whole_taken_));
  state->set_whole_at(absl::ToUnixNanos(whole_at_));
  state->set_count(count_);
  state->set_failed_number(failed_number_);
  state->set_failed_count(failed_count_);
  state->set_failure(failure_);
}

void CheckpointRecord::Load(const v1::CheckpointsState& state) {
  whole_number_ = state.whole_number();
  whole_step_ = state.whole_step();
  whole_bytes_ = state.whole_bytes();
  whole_taken_ = absl::Nanoseconds(state.whole_taken());
  whole_at_ = absl::FromUnixNanos(state.whole_at());
  count_ = state.count();
  failed_number_ = state.failed_number();
  failed_count_ = state.failed_count();
  failure_ = state.failure();
}

}  // namespace tessera
