// Those who ask for the status: they share its bytes, at a pace, and what they have yet to read is bounded.
#ifndef TESSERA_SERVER_RPC_STATUS_READERS_H_
#define TESSERA_SERVER_RPC_STATUS_READERS_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/base/log_throttle.h"
#include "common/rpc/call_limit.h"
#include "proto/status.pb.h"
#include "server/rpc/message_limits.h"
#include "server/rpc/reply_pace.h"
#include "server/rpc/shared_status.h"
#include "server/rpc/unread_replies.h"

namespace tessera {

// How long a call waits for its turn.
constexpr absl::Duration kStatusPatience = absl::Seconds(2);

// What readers may take.
struct StatusLimits {
  // What those of one host have of statuses each second, and at once after a pause.
  int64_t bytes_per_second = int64_t{16} << 20;
  int64_t bytes_at_once = int64_t{16} << 20;
  // What those of one host, and all, have been sent and have not read yet.
  int64_t unread_bytes_per_host = int64_t{64} << 20;
  int64_t unread_bytes = int64_t{128} << 20;
};

// Any thread.
class StatusReaders {
 public:
  explicit StatusReaders(std::function<v1::JobStatus()> now, StatusLimits limits = {});

  // How long a reader at `host` (NumberOfHost) waits for its next status; infinite: longer than kStatusPatience.
  absl::Duration Wait(uint64_t host, HistoryWanted history);
  // A status that is younger than `age_max`, or shared for longer as it is large (SharedStatus). It counts as unread
  // until Taken.
  std::shared_ptr<const StatusText> Send(uint64_t host, const std::shared_ptr<LimitedCall>& call,
                                         absl::Duration age_max, HistoryWanted history);
  // Counts another reply to a reader in a status's place, until Taken.
  void Count(uint64_t host, const std::shared_ptr<LimitedCall>& call,
             const std::shared_ptr<const StatusText>& text) {
    unread_.Add(host, call, static_cast<int64_t>(text->bytes.size()), text);
  }
  void Taken(const LimitedCall* call) { unread_.Remove(call); }
  // A call of `peer` ends, as it did not read.
  void TellSlow(absl::string_view peer);

  const UnreadReplies& unread() const { return unread_; }
  const StatusLimits& limits() const { return limits_; }

 private:
  // The bytes of the last status with such a history.
  std::atomic<int64_t>& last_bytes(HistoryWanted history) {
    return history == HistoryWanted::kAll ? last_bytes_ : last_recent_bytes_;
  }

  const StatusLimits limits_;
  SharedStatus shared_;
  UnreadReplies unread_;
  ReplyPace pace_;
  LogThrottle slow_{kRefusalsLogged, kRefusalsInterval};
  std::atomic<int64_t> last_bytes_{0};
  std::atomic<int64_t> last_recent_bytes_{0};
};

}  // namespace tessera

#endif  // TESSERA_SERVER_RPC_STATUS_READERS_H_
