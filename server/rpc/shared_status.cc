#include "server/rpc/shared_status.h"

#include <algorithm>

namespace tessera {

std::shared_ptr<const StatusText> SharedStatus::Get(absl::Duration age_max) {
  absl::MutexLock lock(&mutex_);
  const absl::Time now = clock_();
  // A status that takes long to build is shared for longer, so that readers cannot load the coordinator with it.
  if (last_ != nullptr && now - built_at_ < std::max(age_max, kSharedPerCost * cost_)) return last_;
  const v1::JobStatus status = build_();
  auto text = std::make_shared<StatusText>();
  text->bytes = status.SerializeAsString();
  text->is_last = status.state() == "done";
  last_ = std::move(text);
  built_at_ = now;
  cost_ = clock_() - now;
  return last_;
}

}  // namespace tessera
