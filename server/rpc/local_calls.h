// The data plane's calls that come in packets, from members of this machine that share memory with this process
// (common/rpc/shared_memory/local_packet.h).
//
// They are the calls that come over gRPC, with the same checks and the same answers, on another stream. The door's
// thread begins them; whoever has an answer sends it, and waits for nobody: a member that leaves its answers unread
// loses its link.
#ifndef TESSERA_SERVER_RPC_LOCAL_CALLS_H_
#define TESSERA_SERVER_RPC_LOCAL_CALLS_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "common/rpc/shared_memory/memory_door.h"
#include "server/rpc/data_plane.h"

namespace tessera {

// Any thread, but for what a LinkListener is told.
class LocalCalls final : public LinkListener {
 public:
  // Calls of one link that are open. A worker has a push and a pull at a time, and may have begun both anew.
  static constexpr size_t kCallsPerLinkMax = 16;

  // `planes` outlives the calls.
  explicit LocalCalls(DataPlanes* planes) : planes_(*planes) {}
  // All calls have ended.
  ~LocalCalls() override;

  absl::Status OnPacket(const std::shared_ptr<MemoryLink>& link, uint64_t member,
                        LocalPacket packet) override;
  void OnGone(uint64_t link) override;
  void OnPoke() override;

  // Once the door is closed: cancels the calls that are open, and returns when all have ended. Whoever answers calls (a
  // shard's thread) must still run.
  void End();

  size_t open() const;

 private:
  class Stream;
  struct Key {
    uint64_t link;
    uint32_t call;
    bool operator<(const Key& other) const {
      return link != other.link ? link < other.link : call < other.call;
    }
  };

  // nullptr: it has ended.
  std::shared_ptr<Stream> Find(const Key& key) const;
  void Cancel(const std::vector<std::shared_ptr<Stream>>& streams);
  // The stream's call is told of its end next.
  std::shared_ptr<Stream> Take(const Key& key);
  // It was told.
  void OnEnded();
  // Has the call cancelled soon, by the door's thread.
  void CancelSoon(const Key& key);

  DataPlanes& planes_;
  mutable absl::Mutex mutex_;
  std::map<Key, std::shared_ptr<Stream>> streams_ ABSL_GUARDED_BY(mutex_);
  std::vector<Key> unwanted_ ABSL_GUARDED_BY(mutex_);
  size_t open_ ABSL_GUARDED_BY(mutex_) =
      0;  // those of streams_, and those that are told of their end
};

}  // namespace tessera

#endif  // TESSERA_SERVER_RPC_LOCAL_CALLS_H_
