#include "server/rpc/shared_status.h"

#include <algorithm>

namespace tessera {

namespace {

std::shared_ptr<const StatusText> TextOf(const v1::JobStatus& status) {
  auto text = std::make_shared<StatusText>();
  text->bytes = status.SerializeAsString();
  text->is_last = status.state() == "done";
  return text;
}

}  // namespace

std::shared_ptr<const StatusText> SharedStatus::Get(absl::Duration age_max, HistoryWanted history) {
  absl::MutexLock lock(&mutex_);
  const absl::Time now = clock_();
  const auto wanted = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return history == HistoryWanted::kAll ? last_ : last_recent_;
  };
  // A status that costs much to build is shared for longer, so that readers cannot load the coordinator with it.
  if (last_ != nullptr && now - built_at_ < std::max(age_max, kSharedPerCost * cost_)) {
    return wanted();
  }
  const absl::Duration begin = cpu_clock_();
  v1::JobStatus status = build_();
  last_ = last_recent_ = TextOf(status);
  if (status.history_size() > kRecentHistory) {
    status.mutable_history()->DeleteSubrange(0, status.history_size() - kRecentHistory);
    last_recent_ = TextOf(status);
  }
  built_at_ = now;
  cost_ = cpu_clock_() - begin;
  return wanted();
}

}  // namespace tessera
