// Where other processes of this machine and user come to share memory with this one: a server's side.
//
//   1. A member asks over gRPC, where its token and its certificate count, and is given a link's number (Expect).
//   2. It comes to the socket, says the number, and both hand over their memory (memory_hello.h).
//   3. Calls name the number, and find the link (Find).
//   4. Short calls come by the link itself (local_packet.h), and go to the door's LinkListener.
//
// A link ends with its connection: the kernel closes that with the peer, however it dies.
#ifndef TESSERA_COMMON_RPC_SHARED_MEMORY_MEMORY_DOOR_H_
#define TESSERA_COMMON_RPC_SHARED_MEMORY_MEMORY_DOOR_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/rpc/shared_memory/local_packet.h"
#include "common/rpc/shared_memory/memory_hello.h"
#include "common/rpc/shared_memory/memory_link.h"
#include "common/rpc/shared_memory/owned_descriptor.h"
#include "common/rpc/shared_memory/shared_arena.h"

namespace tessera {

// What members say on their links. The door's thread.
class LinkListener {
 public:
  virtual ~LinkListener() = default;
  // `packet` has come by `link`, which is `member`'s. An error ends the link: there is to be no such packet.
  virtual absl::Status OnPacket(const std::shared_ptr<MemoryLink>& link, uint64_t member,
                                LocalPacket packet) = 0;
  // The link of this number has ended.
  virtual void OnGone(uint64_t link) = 0;
  // Poke was called.
  virtual void OnPoke() = 0;
};

// Any thread. It has a thread of its own, which waits.
class MemoryDoor {
 public:
  // Numbers that were given and not used yet: another one makes the oldest void.
  static constexpr size_t kExpectedMax = 1024;
  // Links of one member: another one takes the place of the oldest. A worker has one for each shard that this process
  // leads, and another where an attempt of its has failed.
  static constexpr size_t kLinksPerMemberMax = 16;
  static constexpr size_t kLinksMax = 2048;

  // `listener` outlives the door. nullptr: a link on which something is said ends.
  static absl::StatusOr<std::unique_ptr<MemoryDoor>> Open(SharedArena* arena,
                                                          LinkListener* listener,
                                                          UserCheck may_share = IsOwnUser);
  ~MemoryDoor();

  const std::string& socket() const { return socket_.name; }
  // A new link's number, for `member`.
  uint64_t Expect(uint64_t member);
  // nullptr: there is none, or it is another member's.
  std::shared_ptr<MemoryLink> Find(uint64_t link, uint64_t member) const;
  // Has all links look what was returned.
  void Sweep();
  // Ends a link soon, as if its peer had.
  void Leave(uint64_t link);
  // Has the listener told soon, on the door's thread.
  void Poke();
  // Ends all links, and lets nobody in any more. The listener is told of nothing once this has returned.
  void Close();
  // Members that have a link.
  std::vector<uint64_t> members() const;

 private:
  struct Expected {
    uint64_t link;
    uint64_t member;
  };
  struct Linked {
    uint64_t member;
    std::shared_ptr<MemoryLink> link;
  };
  struct Guest {
    OwnedDescriptor connection;
    absl::Time come;
  };

  MemoryDoor(SharedArena* arena, LinkListener* listener, UserCheck may_share, MemorySocket socket,
             OwnedDescriptor wake);

  void Run();
  void Wake();
  // Takes what has come by a link. False: the link has ended.
  bool Listen(const Linked& linked);
  void Drop(const std::vector<Linked>& ended);
  void Admit();
  // Its hello is here.
  absl::Status Greet(OwnedDescriptor connection);
  void Add(uint64_t member, std::shared_ptr<MemoryLink> link);
  std::vector<Linked> links() const;

  SharedArena* const arena_;
  LinkListener* const listener_;
  const UserCheck may_share_;
  const MemorySocket socket_;
  const OwnedDescriptor wake_;
  std::deque<Guest> guests_;  // the thread's own
  PacketReader reader_;       // so is this
  mutable absl::Mutex mutex_;
  bool ends_ ABSL_GUARDED_BY(mutex_) = false;
  bool is_poked_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<uint64_t> left_ ABSL_GUARDED_BY(mutex_);
  std::deque<Expected> expected_ ABSL_GUARDED_BY(mutex_);
  std::deque<Linked> links_ ABSL_GUARDED_BY(mutex_);  // oldest first
  std::thread thread_;
};

}  // namespace tessera

#endif  // TESSERA_COMMON_RPC_SHARED_MEMORY_MEMORY_DOOR_H_
