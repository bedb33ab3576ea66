#include "common/rpc/shared_memory/memory_link.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <new>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/rpc/limited_memory.h"

namespace tessera {
namespace {

// The file must not be cut under whoever maps it, or reading would end the process.
absl::Status CheckMemory(const MemoryLink::Peer& peer) {
  struct stat file;
  if (fstat(peer.memory.get(), &file) != 0 || !S_ISREG(file.st_mode)) {
    return absl::InvalidArgumentError("shared memory: what came is no file, want a memfd");
  }
  const int seals = fcntl(peer.memory.get(), F_GET_SEALS);
  if (seals < 0 || (seals & F_SEAL_SHRINK) == 0) {
    return absl::InvalidArgumentError(
        "shared memory: the file that came may be cut, want a memfd with F_SEAL_SHRINK");
  }
  if (file.st_size != peer.memory_bytes) {
    return absl::InvalidArgumentError(absl::StrCat("shared memory: the file that came has ",
                                                   file.st_size, " bytes, want ",
                                                   peer.memory_bytes));
  }
  if (peer.area < 0 || peer.area % sysconf(_SC_PAGESIZE) != 0 || peer.memory_bytes < 0 ||
      peer.area > peer.memory_bytes - LinkArea::kBytes) {
    return absl::InvalidArgumentError(absl::StrCat(
        "shared memory: the peer's area begins at ", peer.area, ", want a page's beginning, and ",
        LinkArea::kBytes, " bytes before the end at ", peer.memory_bytes));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<LinkArea>> LinkArea::Create(SharedArena* arena) {
  char* const begin = arena->Take(kBytes);
  if (begin == nullptr) {
    return absl::ResourceExhaustedError(
        absl::StrCat("shared memory: no room for ", kBytes, " bytes of a link"));
  }
  // All slots begin as free, whatever the memory was before.
  std::memset(begin, 0, sizeof(Table));
  new (begin) Table;
  return std::unique_ptr<LinkArea>(new LinkArea(arena, begin));
}

LinkArea::~LinkArea() {
  if (begin_ != nullptr) arena_->Return(begin_, kBytes);
}

void LinkArea::Leave(OwnedDescriptor connection) {
  arena_->ReturnLater(std::exchange(begin_, nullptr), kBytes, std::move(connection));
}

absl::StatusOr<std::shared_ptr<MemoryLink>> MemoryLink::Create(uint64_t number,
                                                               std::unique_ptr<LinkArea> own,
                                                               Peer peer) {
  TESSERA_RETURN_IF_ERROR(CheckMemory(peer));
  Mapping mapping = {nullptr, 0, peer.memory_bytes};
  if (MemoryIsLimited()) mapping = {nullptr, peer.area, LinkArea::kBytes};
  void* const begin = mmap(nullptr, static_cast<size_t>(mapping.bytes), PROT_READ,
                           MAP_SHARED | MAP_NORESERVE, peer.memory.get(), mapping.offset);
  if (begin == MAP_FAILED) {
    return absl::UnavailableError(
        absl::StrCat("shared memory: mmap of the peer's memory: ", std::strerror(errno)));
  }
  // Programs that this one starts have no use for it.
  madvise(begin, static_cast<size_t>(mapping.bytes), MADV_DONTFORK);
  mapping.begin = static_cast<const char*>(begin);
  return std::shared_ptr<MemoryLink>(
      new MemoryLink(number, std::move(own), std::move(peer), mapping));
}

MemoryLink::MemoryLink(uint64_t number, std::unique_ptr<LinkArea> own, Peer peer,
                       const Mapping& mapping)
    : number_(number),
      own_(std::move(own)),
      connection_(std::move(peer.connection)),
      memory_(std::move(peer.memory)),
      memory_bytes_(peer.memory_bytes),
      mapping_(mapping),
      peer_area_(mapping.begin + (peer.area - mapping.offset)) {}

MemoryLink::~MemoryLink() {
  {
    absl::MutexLock lock(&mutex_);
    for (int i = LinkArea::kBuffers; i < LinkArea::kSlots; ++i) own_->table().lent[i].store(0);
    // What was lent changes only behind the word that it is not lent any more.
    std::atomic_thread_fence(std::memory_order_seq_cst);
    for (Loan& loan : loans_) loan = Loan();
  }
  munmap(const_cast<char*>(mapping_.begin), static_cast<size_t>(mapping_.bytes));
  // The peer sees that this end reads no more. It may still read what it was sent.
  shutdown(connection_.get(), SHUT_WR);
  own_->Leave(std::move(connection_));
}

bool MemoryLink::is_connected() const {
  char byte;
  const ssize_t got = recv(connection_.get(), &byte, 1, MSG_DONTWAIT | MSG_PEEK | MSG_NOSIGNAL);
  return got > 0 || (got < 0 && (errno == EAGAIN || errno == EINTR));
}

// This end goes on to see when the peer closes its own: that tells when it reads no more.
void MemoryLink::HangUp() { shutdown(connection_.get(), SHUT_WR); }

bool MemoryLink::IsFree(int i) {
  Loan& loan = loans_[i];
  if (loan.serial == 0) return true;
  // Acquire: what the peer has read it has read before, and the memory may change.
  if (peer_table().returned[i].load(std::memory_order_acquire) == loan.serial) {
    End(i);
    return true;
  }
  // Buffers have no owner who could want them back.
  if (loan.memory == nullptr || !loan.memory->is_revoked()) return false;
  own_->table().lent[i].store(0, std::memory_order_release);
  std::atomic_thread_fence(std::memory_order_seq_cst);
  End(i);
  return true;
}

void MemoryLink::End(int i) {
  loans_[i] = Loan();
  if (i >= LinkArea::kBuffers) --lent_pieces_;
}

int MemoryLink::FreeSlot(int begin, int end) {
  for (int i = begin; i < end; ++i) {
    if (IsFree(i)) return i;
  }
  return -1;
}

v1::SharedBytes MemoryLink::Begin(int slot) {
  loans_[slot].serial = ++serial_;
  // Release: who sees the serial sees the bytes.
  own_->table().lent[slot].store(serial_, std::memory_order_release);
  v1::SharedBytes bytes;
  bytes.set_slot(static_cast<uint32_t>(slot));
  bytes.set_serial(serial_);
  return bytes;
}

bool MemoryLink::HasBuffer() {
  absl::MutexLock lock(&mutex_);
  return FreeSlot(0, LinkArea::kBuffers) >= 0;
}

std::optional<v1::SharedBytes> MemoryLink::Stage(absl::Span<const grpc::Slice> slices) {
  int64_t bytes = 0;
  for (const grpc::Slice& slice : slices) bytes += static_cast<int64_t>(slice.size());
  if (bytes == 0 || bytes > LinkArea::kBufferBytes) return std::nullopt;
  absl::MutexLock lock(&mutex_);
  const int slot = FreeSlot(0, LinkArea::kBuffers);
  if (slot < 0) return std::nullopt;
  // The one copy of a payload on this side. The buffer is small enough to stay in the processor's cache until the peer
  // reads it.
  char* to = own_->buffer(slot);
  for (const grpc::Slice& slice : slices) {
    std::memcpy(to, slice.begin(), slice.size());
    to += slice.size();
  }
  v1::SharedBytes shared = Begin(slot);
  shared.set_buffer_bytes(static_cast<uint32_t>(bytes));
  return shared;
}

std::optional<v1::SharedBytes> MemoryLink::Lend(absl::Span<const grpc::Slice> slices,
                                                std::shared_ptr<const LentMemory> memory) {
  if (slices.empty() || slices.size() > kPiecesMax) return std::nullopt;
  const SharedArena& arena = own_->arena();
  for (const grpc::Slice& slice : slices) {
    if (!arena.Has(slice.begin(), static_cast<int64_t>(slice.size()))) return std::nullopt;
  }
  std::optional<v1::SharedBytes> shared;
  {
    absl::MutexLock lock(&mutex_);
    // Loans come back in about the order in which they were made.
    int slot = FreeSlot(next_, std::min(next_ + 4, LinkArea::kSlots));
    if (slot < 0) slot = FreeSlot(LinkArea::kBuffers, LinkArea::kSlots);
    if (slot < 0) return std::nullopt;
    next_ = slot + 1 < LinkArea::kSlots ? slot + 1 : LinkArea::kBuffers;
    shared = Begin(slot);
    loans_[slot].slices.assign(slices.begin(), slices.end());
    loans_[slot].memory = std::move(memory);
    ++lent_pieces_;
  }
  for (const grpc::Slice& slice : slices) {
    shared->add_offsets(static_cast<uint64_t>(arena.OffsetOf(slice.begin())));
    shared->add_sizes(static_cast<uint32_t>(slice.size()));
  }
  // Whoever sweeps has something to look after. Not under the lock, which that takes.
  if (lent_) lent_();
  return shared;
}

int MemoryLink::Sweep() {
  absl::MutexLock lock(&mutex_);
  for (int i = LinkArea::kBuffers; i < LinkArea::kSlots && lent_pieces_ > 0; ++i) IsFree(i);
  return lent_pieces_;
}

absl::StatusOr<int64_t> MemoryLink::SizeOf(const v1::SharedBytes& bytes) const {
  const auto refuse = [](auto... what) {
    return absl::InvalidArgumentError(absl::StrCat("shared bytes: ", what...));
  };
  if (bytes.serial() == 0) return refuse("serial is 0, want that of a loan");
  if (bytes.buffer_bytes() > 0) {
    if (bytes.slot() >= LinkArea::kBuffers) {
      return refuse("slot is ", bytes.slot(), ", want one of the ", LinkArea::kBuffers, " buffers");
    }
    if (bytes.buffer_bytes() > LinkArea::kBufferBytes) {
      return refuse("buffer_bytes is ", bytes.buffer_bytes(), ", want at most ",
                    LinkArea::kBufferBytes);
    }
    if (bytes.offsets_size() > 0 || bytes.sizes_size() > 0) {
      return refuse("has a buffer and ", bytes.offsets_size(), " pieces, want one of the two");
    }
    return bytes.buffer_bytes();
  }
  if (bytes.slot() < LinkArea::kBuffers || bytes.slot() >= LinkArea::kSlots) {
    return refuse("slot is ", bytes.slot(), ", want ", LinkArea::kBuffers, " to ",
                  LinkArea::kSlots - 1);
  }
  if (bytes.offsets_size() == 0 || bytes.offsets_size() > kPiecesMax ||
      bytes.offsets_size() != bytes.sizes_size()) {
    return refuse("has ", bytes.offsets_size(), " offsets and ", bytes.sizes_size(),
                  " sizes, want as many, 1 to ", kPiecesMax);
  }
  int64_t sum = 0;
  for (int i = 0; i < bytes.offsets_size(); ++i) {
    // Compared without a sum, which might overflow.
    const auto memory = static_cast<uint64_t>(memory_bytes_);
    if (bytes.offsets(i) > memory || bytes.sizes(i) > memory - bytes.offsets(i)) {
      return refuse("piece ", i, " is ", bytes.sizes(i), " bytes at ", bytes.offsets(i),
                    ", want it within the peer's ", memory);
    }
    if (bytes.offsets(i) % sizeof(float) != 0) {
      return refuse("piece ", i, " begins at ", bytes.offsets(i), ", want a multiple of ",
                    sizeof(float));
    }
    sum += bytes.sizes(i);
  }
  return sum;
}

bool SharedReader::stands() const {
  return link_.peer_table().lent[bytes_.slot()].load(std::memory_order_acquire) == bytes_.serial();
}

absl::Status SharedReader::Read(char* to, int64_t count) {
  if (bytes_.buffer_bytes() > 0) {
    // Acquire, so that what is read is not older than the serial.
    if (!stands()) return absl::AbortedError("shared bytes: are not lent any more; send again");
    TESSERA_CHECK(count <= bytes_.buffer_bytes() - done_);
    std::memcpy(to, link_.peer_buffer(static_cast<int>(bytes_.slot())) + done_, count);
    done_ += count;
    return absl::OkStatus();
  }
  while (count > 0) {
    TESSERA_CHECK(piece_ < bytes_.sizes_size());
    const int64_t run = std::min<int64_t>(count, bytes_.sizes(piece_) - done_);
    const int64_t at = static_cast<int64_t>(bytes_.offsets(piece_)) + done_;
    int64_t got = run;
    if (link_.maps_all()) {
      // Acquire, so that what is read is not older than the serial.
      if (!stands()) return absl::AbortedError("shared bytes: are not lent any more; ask again");
      std::memcpy(to, link_.mapping_.begin + at, static_cast<size_t>(run));
    } else if (run > 0) {
      got = pread(link_.memory_.get(), to, static_cast<size_t>(run), static_cast<off_t>(at));
      if (got < 0 && errno == EINTR) continue;
      if (got <= 0) {
        return absl::UnavailableError(absl::StrCat(
            "shared bytes: pread at ", at, ": ", got == 0 ? "end of file" : std::strerror(errno)));
      }
    }
    to += got;
    count -= got;
    done_ += got;
    if (done_ < static_cast<int64_t>(bytes_.sizes(piece_))) continue;
    ++piece_;
    done_ = 0;
  }
  return absl::OkStatus();
}

absl::Status SharedReader::Finish() {
  // What was read before must not be read after the look at the serial.
  std::atomic_thread_fence(std::memory_order_acquire);
  const bool still_stands = stands();
  GiveBack();
  if (still_stands) return absl::OkStatus();
  return absl::AbortedError("shared bytes: were taken back while they were read; ask again");
}

void SharedReader::GiveBack() {
  if (std::exchange(is_given_back_, true)) return;
  link_.own_->table().returned[bytes_.slot()].store(bytes_.serial(), std::memory_order_release);
}

}  // namespace tessera
