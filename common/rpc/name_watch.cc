#include "common/rpc/name_watch.h"

#include <algorithm>
#include <thread>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/match.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/strip.h"
#include "absl/synchronization/mutex.h"
#include "common/base/host_port.h"

namespace tessera {

// Shared with the thread that asks, which may outlive the watch.
struct NameWatch::Answer {
  absl::Mutex mutex;
  bool is_asking ABSL_GUARDED_BY(mutex) = false;
  std::vector<std::string> addresses ABSL_GUARDED_BY(mutex);  // empty: not known
};

NameWatch::NameWatch(const std::string& address, Resolve resolve)
    : resolve_(std::move(resolve)),
      next_(absl::InfinitePast()),
      answer_(std::make_shared<Answer>()) {
  if (HasName(address)) host_ = ParseHostPort(address)->host;
}

NameWatch::~NameWatch() = default;

bool NameWatch::HasLeft(const std::string& peer, absl::Time now) {
  const std::string at = HostOfPeer(peer);
  if (host_.empty() || at.empty()) return false;
  bool has_left = false, asks = false;
  {
    Answer& answer = *answer_;
    absl::MutexLock lock(&answer.mutex);
    has_left =
        !answer.addresses.empty() &&
        std::find(answer.addresses.begin(), answer.addresses.end(), at) == answer.addresses.end();
    // One thread asks at a time: a name server that hangs would collect threads.
    asks = !answer.is_asking && now >= next_;
    answer.is_asking = answer.is_asking || asks;
  }
  if (!asks) return has_left;
  next_ = now + kNameAskInterval;
  std::thread([answer = answer_, resolve = resolve_, host = host_] {
    absl::StatusOr<std::vector<std::string>> found = resolve(host);
    absl::MutexLock lock(&answer->mutex);
    answer->is_asking = false;
    // A name that cannot be resolved for the moment says nothing, so nobody has left.
    answer->addresses = found.ok() ? *std::move(found) : std::vector<std::string>();
  }).detach();
  return has_left;
}

std::string HostOfPeer(const std::string& peer) {
  absl::string_view rest = peer;
  if (!absl::ConsumePrefix(&rest, "ipv4:") && !absl::ConsumePrefix(&rest, "ipv6:")) return "";
  const absl::optional<HostPort> parsed =
      ParseHostPort(absl::StrReplaceAll(rest, {{"%5B", "["}, {"%5D", "]"}, {"%25", "%"}}));
  return parsed.has_value() ? parsed->host : "";
}

}  // namespace tessera
