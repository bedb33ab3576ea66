// Calls of one kind that are open at once: so many of each owner, and the oldest ends where another comes.
//
// Of what nobody should have much of, the oldest is what is least likely to come to anything: a push whose
// first message never ends, or one that its sender has since begun anew. To refuse the newest instead
// would let whoever fills the places shut out the others.
#ifndef TESSERA_COMMON_RPC_CALL_LIMIT_H_
#define TESSERA_COMMON_RPC_CALL_LIMIT_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>

#include "absl/base/thread_annotations.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"

namespace tessera {

// A number for all connections of one host, given gRPC's word for the peer: "ipv4:10.0.0.1:4711".
uint64_t NumberOfHost(absl::string_view peer);

// A call that may be ended.
class LimitedCall {
 public:
  virtual ~LimitedCall() = default;
  // Ends the call, as another one has its place. Any thread.
  virtual void GiveWay() = 0;
};

// Keeps track of the open calls of each owner. Any thread.
class CallLimit {
 public:
  explicit CallLimit(size_t most) : most_(most) {}

  // Tells that `call` is open, and is the owner's newest. Where that makes too many the owner's oldest gives way.
  void Add(uint64_t owner, const std::shared_ptr<LimitedCall>& call);
  // Tells that a call is over, or counts no more. There is no effect on one that has given way.
  void Remove(uint64_t owner, const LimitedCall* call);

  size_t most() const { return most_; }
  size_t open(uint64_t owner) const;
  uint64_t given_way() const;

 private:
  struct Open {
    const LimitedCall* call = nullptr;
    std::weak_ptr<LimitedCall> alive;
  };

  const size_t most_;
  mutable absl::Mutex mutex_;
  std::map<uint64_t, std::deque<Open>> open_ ABSL_GUARDED_BY(mutex_);  // oldest first
  uint64_t given_way_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace tessera

#endif  // TESSERA_COMMON_RPC_CALL_LIMIT_H_
