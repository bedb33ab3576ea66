#include "server/rpc/reply_pace.h"

#include <algorithm>

namespace tessera {
namespace {

// The number of hosts that are remembered before those that owe nothing are forgotten.
constexpr size_t kHostsRemembered = 1024;

}  // namespace

absl::Duration ReplyPace::Take(uint64_t host, int64_t bytes, absl::Time now,
                               absl::Duration patience) {
  const auto time_of = [this](int64_t taken) {
    return absl::Seconds(static_cast<double>(taken) / options_.bytes_per_second);
  };
  absl::MutexLock lock(&mutex_);
  // Hosts that owe nothing are forgotten, so that strangers cannot grow this table for ever.
  if (paid_.size() >= kHostsRemembered) {
    for (auto each = paid_.begin(); each != paid_.end();) {
      each = each->second <= now ? paid_.erase(each) : std::next(each);
    }
  }
  const absl::Time paid = std::max(paid_.emplace(host, now).first->second, now);
  // A host pays by time: what it was sent is paid until then, of which so many bytes are credited.
  const absl::Duration wait =
      std::max(absl::ZeroDuration(), paid - now - time_of(options_.bytes_at_once));
  // It is not worth waiting: the caller is refused, and owes nothing for it.
  if (wait > patience) return absl::InfiniteDuration();
  paid_[host] = paid + time_of(bytes + kCallBytes);
  return wait;
}

}  // namespace tessera
