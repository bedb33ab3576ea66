// Payloads between two processes of one machine by memory: what one link's two ends lend each other.
//
// Each end writes its own memory only, and reads the other's.
//
//   area    = table *buffer           in the arena of its owner; the peer maps it and cannot write there
//   table   = lent[] returned[]       a number for each slot
//   buffer  = kBufferBytes            slot i < kBuffers lends the buffer i, any other slot pieces of the arena
//
//   1. Who lends puts a new serial into lent[slot] of its own table, and tells slot and serial in a message.
//   2. Who reads copies the bytes, sees that lent[slot] is still that serial, and puts the serial into returned[slot]
//      of its own table. Only then do the bytes count.
//   3. Who has lent looks there and has its memory back. It may also take it back before that: first lent[slot] becomes
//      0, then the memory changes.
//
// No lock, no message and no system call says that memory is free again, and nobody waits for a peer: who has no slot
// or no buffer may send the bytes in the message. A buffer that was lent is never taken back while the peer has its end
// of the connection open: a peer that is frozen reads what was sent once it goes on. Of an attempt that has failed
// nobody knows whether its loans were seen: its link is left, and another one is made.
#ifndef TESSERA_COMMON_RPC_SHARED_MEMORY_MEMORY_LINK_H_
#define TESSERA_COMMON_RPC_SHARED_MEMORY_MEMORY_LINK_H_

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include <grpcpp/support/slice.h>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/types/span.h"
#include "common/rpc/shared_memory/owned_descriptor.h"
#include "common/rpc/shared_memory/shared_arena.h"
#include "proto/parameter_server.pb.h"

namespace tessera {

// A payload of fewer bytes goes in its message, which costs less than a copy more.
constexpr int64_t kSharedBytesMin = int64_t{32} << 10;

// What is lent of the arena. It is held until the peer has read it.
class LentMemory {
 public:
  virtual ~LentMemory() = default;
  // Whether its owner wants it back now.
  virtual bool is_revoked() const = 0;
};

// The memory that one end shares with its peer.
class LinkArea {
 public:
  static constexpr int kSlots = 512;
  static constexpr int kBuffers = 3;
  static constexpr int64_t kBufferBytes = int64_t{1} << 20;

  struct Table {
    std::atomic<uint64_t> lent[kSlots];
    std::atomic<uint64_t> returned[kSlots];
  };
  static_assert(sizeof(Table) % 4096 == 0 && std::atomic<uint64_t>::is_always_lock_free);
  static constexpr int64_t kBytes = sizeof(Table) + kBuffers * kBufferBytes;

  // Takes it from `arena`, which outlives it. kResourceExhausted: there is no room.
  static absl::StatusOr<std::unique_ptr<LinkArea>> Create(SharedArena* arena);
  ~LinkArea();

  SharedArena& arena() const { return *arena_; }
  Table& table() const { return *reinterpret_cast<Table*>(begin_); }
  char* buffer(int i) const { return begin_ + sizeof(Table) + i * kBufferBytes; }
  int64_t offset() const { return arena_->OffsetOf(begin_); }
  // A peer may read until it has closed its end of `connection`. The area ends with this.
  void Leave(OwnedDescriptor connection);

 private:
  LinkArea(SharedArena* arena, char* begin) : arena_(arena), begin_(begin) {}

  SharedArena* const arena_;
  char* begin_;
};

// Any thread.
class MemoryLink {
 public:
  struct Peer {
    OwnedDescriptor connection;  // open as long as this end reads
    OwnedDescriptor memory;      // the peer's arena
    int64_t memory_bytes = 0;
    int64_t area = 0;  // where the peer's area begins
  };
  // The pieces that one loan may have.
  static constexpr int kPiecesMax = 1024;

  // Maps the peer's memory, but its area alone where this process has a limit on memory, in which the system counts
  // all that is mapped and was read. kInvalidArgument: what came is no memory that is safe to read.
  static absl::StatusOr<std::shared_ptr<MemoryLink>> Create(uint64_t number,
                                                            std::unique_ptr<LinkArea> own,
                                                            Peer peer);
  ~MemoryLink();

  uint64_t number() const { return number_; }
  int connection() const { return connection_.get(); }
  // Whether the peer is there, as the system knows.
  bool is_connected() const;
  // Has the peer leave the link. It may still read what it was lent, until it has closed its end.
  void HangUp();

  // --- lending ---
  // Whether Stage has room.
  bool HasBuffer();
  // Copies `slices` into a buffer. nullopt: none is free, or they are too large for one.
  std::optional<v1::SharedBytes> Stage(absl::Span<const grpc::Slice> slices);
  // Lends `slices` where they lie. nullopt: they are not the arena's, or no slot is free.
  std::optional<v1::SharedBytes> Lend(absl::Span<const grpc::Slice> slices,
                                      std::shared_ptr<const LentMemory> memory);
  // Drops what was returned, takes back what was revoked. How many loans of Lend are left.
  int Sweep();
  // Told after each Lend; before the first one.
  void OnLend(std::function<void()> lent) { lent_ = std::move(lent); }

  // --- reading: SharedReader, once SizeOf has said that there can be such a loan ---
  // The bytes of a loan that the peer told of. kInvalidArgument: there can be none like it.
  absl::StatusOr<int64_t> SizeOf(const v1::SharedBytes& bytes) const;

 private:
  friend class SharedReader;
  struct Loan {
    uint64_t serial = 0;  // 0: the slot is free
    std::vector<grpc::Slice> slices;
    std::shared_ptr<const LentMemory> memory;
  };

  // What of the peer's memory this process has mapped: `bytes` of it from the byte `offset` on.
  struct Mapping {
    const char* begin;
    int64_t offset;
    int64_t bytes;
  };

  MemoryLink(uint64_t number, std::unique_ptr<LinkArea> own, Peer peer, const Mapping& mapping);

  const LinkArea::Table& peer_table() const {
    return *reinterpret_cast<const LinkArea::Table*>(peer_area_);
  }
  const char* peer_buffer(int i) const {
    return peer_area_ + sizeof(LinkArea::Table) + i * LinkArea::kBufferBytes;
  }
  // Whether all of the peer's memory is mapped.
  bool maps_all() const { return mapping_.bytes == memory_bytes_; }
  // Whether slot `i` is free, after what was returned was dropped.
  bool IsFree(int i) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void End(int i) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  int FreeSlot(int begin, int end) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  v1::SharedBytes Begin(int slot) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const uint64_t number_;
  const std::unique_ptr<LinkArea> own_;
  OwnedDescriptor connection_;
  const OwnedDescriptor memory_;
  const int64_t memory_bytes_;
  const Mapping mapping_;
  const char* const peer_area_;
  std::function<void()> lent_;
  absl::Mutex mutex_;
  uint64_t serial_ ABSL_GUARDED_BY(mutex_) = 0;
  int next_ ABSL_GUARDED_BY(mutex_) = LinkArea::kBuffers;  // where a free slot is looked for
  int lent_pieces_ ABSL_GUARDED_BY(mutex_) = 0;            // loans of Lend
  std::array<Loan, LinkArea::kSlots> loans_ ABSL_GUARDED_BY(mutex_);
};

// Reads one loan from its beginning to its end. One thread.
class SharedReader {
 public:
  // `bytes` has passed SizeOf. Both outlive this.
  SharedReader(MemoryLink* link, const v1::SharedBytes& bytes) : link_(*link), bytes_(bytes) {}
  // A loan that was not read whole is not read any more.
  ~SharedReader() { GiveBack(); }

  // The next `count` bytes, of which there are that many. What is read counts once Finish has said so.
  absl::Status Read(char* to, int64_t count);
  // kAborted: the peer has taken its memory back, and what was read may be anything.
  absl::Status Finish();

 private:
  bool stands() const;
  void GiveBack();

  MemoryLink& link_;
  const v1::SharedBytes& bytes_;
  bool is_given_back_ = false;
  int piece_ = 0;
  int64_t done_ = 0;  // of the piece, or of the buffer
};

}  // namespace tessera

#endif  // TESSERA_COMMON_RPC_SHARED_MEMORY_MEMORY_LINK_H_
