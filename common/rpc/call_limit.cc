#include "common/rpc/call_limit.h"

#include <algorithm>

#include "absl/hash/hash.h"

namespace tessera {

uint64_t NumberOfHost(absl::string_view peer) {
  // The port is another one for each connection; the host is what is limited.
  return absl::Hash<absl::string_view>()(peer.substr(0, peer.rfind(':')));
}

void CallLimit::Add(uint64_t owner, const std::shared_ptr<LimitedCall>& call) {
  std::shared_ptr<LimitedCall> oldest;
  {
    absl::MutexLock lock(&mutex_);
    std::deque<Open>& calls = open_[owner];
    calls.push_back({call.get(), call});
    if (calls.size() > most_) {
      // A call that ends at this moment may be gone: then its place is free already.
      oldest = calls.front().alive.lock();
      calls.pop_front();
      ++given_way_;
    }
  }
  // The call may remove itself from the list while it gives way.
  if (oldest != nullptr) oldest->GiveWay();
}

void CallLimit::Remove(uint64_t owner, const LimitedCall* call) {
  absl::MutexLock lock(&mutex_);
  const auto found = open_.find(owner);
  if (found == open_.end()) return;
  std::deque<Open>& calls = found->second;
  calls.erase(std::remove_if(calls.begin(), calls.end(),
                             [call](const Open& open) { return open.call == call; }),
              calls.end());
  if (calls.empty()) open_.erase(found);
}

size_t CallLimit::open(uint64_t owner) const {
  absl::MutexLock lock(&mutex_);
  const auto found = open_.find(owner);
  return found == open_.end() ? 0 : found->second.size();
}

uint64_t CallLimit::given_way() const {
  absl::MutexLock lock(&mutex_);
  return given_way_;
}

}  // namespace tessera
