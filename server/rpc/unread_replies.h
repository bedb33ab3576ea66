// Replies that are being sent: the bytes that they hold until their readers have taken them, and whose call ends where
// that becomes too much.
//
// A reply that several calls send from the same bytes counts once. Beyond the bound the host whose readers hold the
// most gives way, its oldest call first: one that reads keeps no call for long.
#ifndef TESSERA_SERVER_RPC_UNREAD_REPLIES_H_
#define TESSERA_SERVER_RPC_UNREAD_REPLIES_H_

#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "common/rpc/call_limit.h"

namespace tessera {

// Any thread.
class UnreadReplies {
 public:
  // What a call takes beside the bytes of its reply, for gRPC's record of it.
  static constexpr int64_t kCallBytes = int64_t{16} << 10;

  struct Options {
    // The most that the readers of one host hold, and that all do. One reply of each host is always sent.
    int64_t host_bytes_max = 0;
    int64_t bytes_max = 0;
  };
  explicit UnreadReplies(Options options) : options_(options) {}

  // `call`, whose reader is at `host` (NumberOfHost), sends `bytes` that `reply` owns; nullptr: the call owns them.
  // Where that is too much other calls give way. A call that sends already sends this instead.
  void Add(uint64_t host, const std::shared_ptr<LimitedCall>& call, int64_t bytes,
           std::shared_ptr<const void> reply);
  // The reply was taken, or the call is over. There is no effect on one that has given way.
  void Remove(const LimitedCall* call);

  int64_t bytes() const;
  uint64_t given_way() const;

 private:
  struct Sent {
    uint64_t host = 0;
    const LimitedCall* call = nullptr;
    std::weak_ptr<LimitedCall> alive;
    int64_t bytes = 0;
    std::shared_ptr<const void> reply;
  };
  // How often each reply is held, by its address, and what they and their calls come to.
  struct Holdings {
    std::map<const void*, int> replies;
    int64_t bytes = 0;

    void Add(const Sent& sent);
    void Remove(const Sent& sent);
  };

  // The oldest reply that is to give way before `newest`; the end: there is none.
  std::list<Sent>::iterator Excess(const Sent& newest) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Erase(std::list<Sent>::iterator sent) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const Options options_;
  mutable absl::Mutex mutex_;
  std::list<Sent> sent_ ABSL_GUARDED_BY(mutex_);  // oldest first
  std::map<const LimitedCall*, std::list<Sent>::iterator> calls_ ABSL_GUARDED_BY(mutex_);
  std::map<uint64_t, Holdings> hosts_ ABSL_GUARDED_BY(mutex_);
  Holdings all_ ABSL_GUARDED_BY(mutex_);
  uint64_t given_way_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace tessera

#endif  // TESSERA_SERVER_RPC_UNREAD_REPLIES_H_
