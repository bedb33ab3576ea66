#include "common/rpc/shared_memory/shared_arena.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"

namespace tessera {
namespace {

// Small pieces are cut from so much at a time, and only larger ones are given back to the system.
constexpr int64_t kSlabBytes = int64_t{64} << 10;
constexpr int64_t kAlignment = 64;

std::atomic<SharedArena*> of_process{nullptr};

// A power of two for each class wastes addresses, of which there are plenty, and hardly any memory.
int ClassOf(int64_t bytes) {
  int c = 0;
  while ((kAlignment << c) < bytes) ++c;
  return c;
}

absl::Status Refused(absl::string_view what) {
  return absl::UnavailableError(absl::StrCat("shared memory: ", what, ": ", std::strerror(errno)));
}

// The limits that a large file without memory behind it would run into.
absl::Status CheckLimits(int64_t bytes) {
  rlimit limit;
  // Beyond this limit the kernel ends the process, instead of refusing.
  if (getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY &&
      limit.rlim_cur < static_cast<rlim_t>(bytes)) {
    return absl::UnavailableError(absl::StrCat("shared memory: the limit on the size of files is ",
                                               limit.rlim_cur, " bytes, want none, or at least ",
                                               bytes, " (ulimit -f)"));
  }
  // Addresses that the arena takes would be missing for the stacks of threads.
  if (getrlimit(RLIMIT_AS, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY) {
    return absl::UnavailableError(absl::StrCat("shared memory: the address space is limited to ",
                                               limit.rlim_cur,
                                               " bytes, want no limit (ulimit -v)"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<SharedArena>> SharedArena::Create(int64_t bytes) {
  TESSERA_RETURN_IF_ERROR(CheckLimits(bytes));
  OwnedDescriptor file(memfd_create("tessera", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!file.is_open()) return Refused("memfd_create");
  if (ftruncate(file.get(), bytes) != 0) return Refused("ftruncate");
  if (fcntl(file.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
    return Refused("seals");
  }
  // F_SEAL_FUTURE_WRITE would also forbid to give memory back. A descriptor that only reads says as much to everybody
  // but a process of the same user that sets out to write, which could write to any memory of ours.
  const std::string path = absl::StrCat("/proc/self/fd/", file.get());
  OwnedDescriptor read_only(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!read_only.is_open()) return Refused(path);
  // Opened anew by its number, too, it only reads.
  if (fchmod(file.get(), 0400) != 0) return Refused("fchmod");
  void* const begin = mmap(nullptr, static_cast<size_t>(bytes), PROT_READ | PROT_WRITE,
                           MAP_SHARED | MAP_NORESERVE, file.get(), 0);
  if (begin == MAP_FAILED) return Refused("mmap");
  // Programs that this one starts have no use for it.
  madvise(begin, static_cast<size_t>(bytes), MADV_DONTFORK);
  return std::unique_ptr<SharedArena>(
      new SharedArena(std::move(file), std::move(read_only), static_cast<char*>(begin), bytes));
}

SharedArena::~SharedArena() { munmap(begin_, static_cast<size_t>(bytes_)); }

absl::Status SharedArena::Enable() {
  static const auto* const status = new absl::Status([]() -> absl::Status {
    // Twice what the machine has can be full only because pieces are rounded up.
    const int64_t bytes = 2 * sysconf(_SC_PHYS_PAGES) * sysconf(_SC_PAGESIZE);
    TESSERA_ASSIGN_OR_RETURN(std::unique_ptr<SharedArena> arena, Create(bytes));
    of_process.store(arena.release(), std::memory_order_release);
    return absl::OkStatus();
  }());
  return *status;
}

SharedArena* SharedArena::OfProcess() { return of_process.load(std::memory_order_acquire); }

char* SharedArena::Take(int64_t bytes) {
  const int c = ClassOf(bytes);
  const int64_t size = kAlignment << c;
  absl::MutexLock lock(&mutex_);
  // Links come and go seldom: this is where the memory of those that have gone is looked after.
  Collect();
  std::vector<char*>& free = free_[c];
  if (free.empty()) {
    const int64_t taken = std::max(size, kSlabBytes);
    if (taken > bytes_ - touched_) return nullptr;
    // Pieces of a slab lie behind each other; the first one is taken first.
    for (int64_t at = taken - size; at >= 0; at -= size) free.push_back(begin_ + touched_ + at);
    touched_ += taken;
  }
  char* const piece = free.back();
  free.pop_back();
  in_use_ += size;
  return piece;
}

void SharedArena::Return(char* begin, int64_t bytes) {
  absl::MutexLock lock(&mutex_);
  Free(begin, bytes);
}

void SharedArena::Free(char* begin, int64_t bytes) {
  const int c = ClassOf(bytes);
  const int64_t size = kAlignment << c;
  in_use_ -= size;
  // What is kept for later is the address; where the memory cannot be given back it is kept, too.
  if (size >= kSlabBytes) {
    fallocate(file_.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, OffsetOf(begin), size);
  }
  free_[c].push_back(begin);
}

void SharedArena::ReturnLater(char* begin, int64_t bytes, OwnedDescriptor connection) {
  absl::MutexLock lock(&mutex_);
  waiting_.push_back({begin, bytes, std::move(connection)});
  Collect();
}

void SharedArena::Collect() {
  for (auto waiting = waiting_.begin(); waiting != waiting_.end();) {
    char byte;
    ssize_t got;
    // What the peer has said is for nobody any more, and stands in front of its end.
    do {
      got = recv(waiting->connection.get(), &byte, 1, MSG_DONTWAIT | MSG_NOSIGNAL);
    } while (got > 0);
    // A peer that lives, frozen or not, has its end open, and may read.
    const bool reads = got < 0 && (errno == EAGAIN || errno == EINTR);
    if (reads) {
      ++waiting;
      continue;
    }
    Free(waiting->begin, waiting->bytes);
    waiting = waiting_.erase(waiting);
  }
}

bool SharedArena::Has(const void* begin, int64_t bytes) const {
  const char* const first = static_cast<const char*>(begin);
  return first >= begin_ && bytes <= bytes_ && first - begin_ <= bytes_ - bytes;
}

int64_t SharedArena::bytes_in_use() const {
  absl::MutexLock lock(&mutex_);
  return in_use_;
}

}  // namespace tessera
