// Memory of this process that other processes may read: one file without a name (memfd), of which pieces are handed
// out as malloc would.
//
// The file has its full size from the beginning and can be neither cut nor grown (seals), so that nobody who maps it
// is ever ended by SIGBUS. What was never touched, or was given back, takes no memory. Others get a descriptor that
// reads and does not write. The file is gone with the last process that has it open: nothing stays in /dev/shm.
#ifndef TESSERA_COMMON_RPC_SHARED_MEMORY_SHARED_ARENA_H_
#define TESSERA_COMMON_RPC_SHARED_MEMORY_SHARED_ARENA_H_

#include <array>
#include <cstdint>
#include <list>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "common/rpc/shared_memory/owned_descriptor.h"

namespace tessera {

// Any thread.
class SharedArena {
 public:
  // Of `bytes` at most. An error says what the system refuses.
  static absl::StatusOr<std::unique_ptr<SharedArena>> Create(int64_t bytes);
  ~SharedArena();

  // Makes this process's arena, which stays until its end. Without this, or where the system refuses, the process
  // shares no memory: then the status says why.
  static absl::Status Enable();
  // nullptr: there is none.
  static SharedArena* OfProcess();

  // Memory of at least `bytes`, aligned to 64; nullptr: the arena is full.
  char* Take(int64_t bytes);
  // Gives back what Take(bytes) returned. Nobody reads it any more.
  void Return(char* begin, int64_t bytes);
  // Gives back what a peer may still read: once it has closed its end of `connection`, which this end writes to no
  // more.
  void ReturnLater(char* begin, int64_t bytes, OwnedDescriptor connection);

  // Whether all of these bytes are the arena's.
  bool Has(const void* begin, int64_t bytes) const;
  // Where they begin in the file.
  int64_t OffsetOf(const void* begin) const { return static_cast<const char*>(begin) - begin_; }
  int64_t bytes() const { return bytes_; }
  // For others: reads, and does not write.
  int descriptor() const { return read_only_.get(); }
  // Pieces that are handed out, or wait for a peer.
  int64_t bytes_in_use() const;

 private:
  // Pieces have a power of two of bytes, from 64 on. What is not touched of them takes no memory.
  static constexpr int kClasses = 48;

  struct Waiting {
    char* begin;
    int64_t bytes;
    OwnedDescriptor connection;
  };

  SharedArena(OwnedDescriptor file, OwnedDescriptor read_only, char* begin, int64_t bytes)
      : file_(std::move(file)), read_only_(std::move(read_only)), begin_(begin), bytes_(bytes) {}

  void Free(char* begin, int64_t bytes) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Frees what peers have let go of.
  void Collect() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const OwnedDescriptor file_;
  const OwnedDescriptor read_only_;
  char* const begin_;
  const int64_t bytes_;
  mutable absl::Mutex mutex_;
  int64_t touched_ ABSL_GUARDED_BY(mutex_) = 0;  // what was never handed out begins here
  int64_t in_use_ ABSL_GUARDED_BY(mutex_) = 0;
  std::array<std::vector<char*>, kClasses> free_ ABSL_GUARDED_BY(mutex_);
  std::list<Waiting> waiting_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace tessera

#endif  // TESSERA_COMMON_RPC_SHARED_MEMORY_SHARED_ARENA_H_
