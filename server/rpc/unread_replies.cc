#include "server/rpc/unread_replies.h"

#include <algorithm>
#include <utility>

namespace tessera {

void UnreadReplies::Holdings::Add(const Sent& sent) {
  bytes += kCallBytes;
  // A reply that several calls share is counted once per holder, as its memory is shared.
  const bool is_first = sent.reply == nullptr || ++replies[sent.reply.get()] == 1;
  if (is_first) bytes += sent.bytes;
}

void UnreadReplies::Holdings::Remove(const Sent& sent) {
  bytes -= kCallBytes;
  if (sent.reply != nullptr) {
    const auto found = replies.find(sent.reply.get());
    if (--found->second > 0) return;
    replies.erase(found);
  }
  bytes -= sent.bytes;
}

void UnreadReplies::Add(uint64_t host, const std::shared_ptr<LimitedCall>& call, int64_t bytes,
                        std::shared_ptr<const void> reply) {
  std::vector<std::shared_ptr<LimitedCall>> excess;
  // What gave way is dropped without the mutex.
  std::vector<std::shared_ptr<const void>> dropped;
  {
    absl::MutexLock lock(&mutex_);
    // A call that sends another reply has taken its last one.
    if (const auto found = calls_.find(call.get()); found != calls_.end()) {
      dropped.push_back(found->second->reply);
      Erase(found->second);
    }
    sent_.push_back({host, call.get(), call, bytes, std::move(reply)});
    const Sent& newest = sent_.back();
    all_.Add(newest);
    hosts_[host].Add(newest);
    calls_[call.get()] = std::prev(sent_.end());
    // The oldest of a host over its limit gives way; where all together are too much, of the host that holds most.
    for (auto oldest = Excess(newest); oldest != sent_.end(); oldest = Excess(newest)) {
      excess.push_back(oldest->alive.lock());
      dropped.push_back(oldest->reply);
      ++given_way_;
      Erase(oldest);
    }
  }
  // Without the lock, as a call that gives way removes itself.
  for (const std::shared_ptr<LimitedCall>& each : excess) {
    if (each != nullptr) each->GiveWay();
  }
}

std::list<UnreadReplies::Sent>::iterator UnreadReplies::Excess(const Sent& newest) {
  uint64_t host = newest.host;
  if (hosts_[host].bytes <= options_.host_bytes_max) {
    if (all_.bytes <= options_.bytes_max) return sent_.end();
    host = std::max_element(hosts_.begin(), hosts_.end(), [](const auto& a, const auto& b) {
             return a.second.bytes < b.second.bytes;
           })->first;
  }
  const auto oldest = std::find_if(sent_.begin(), sent_.end(),
                                   [host](const Sent& sent) { return sent.host == host; });
  // The newest call is not cut off for its own bytes: it has had no time to be read.
  return oldest->call == newest.call ? sent_.end() : oldest;
}

void UnreadReplies::Erase(std::list<Sent>::iterator sent) {
  all_.Remove(*sent);
  Holdings& host = hosts_[sent->host];
  host.Remove(*sent);
  if (host.bytes == 0) hosts_.erase(sent->host);
  calls_.erase(sent->call);
  sent_.erase(sent);
}

void UnreadReplies::Remove(const LimitedCall* call) {
  std::shared_ptr<const void> dropped;
  absl::MutexLock lock(&mutex_);
  const auto found = calls_.find(call);
  if (found == calls_.end()) return;
  dropped = found->second->reply;
  Erase(found->second);
}

int64_t UnreadReplies::bytes() const {
  absl::MutexLock lock(&mutex_);
  return all_.bytes;
}

uint64_t UnreadReplies::given_way() const {
  absl::MutexLock lock(&mutex_);
  return given_way_;
}

}  // namespace tessera
