#include "common/rpc/shared_memory/memory_link.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstring>
#include <fstream>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <catch2/catch.hpp>

#include "absl/strings/match.h"
#include "common/rpc/borrowed_slice.h"

namespace tessera {
namespace {

constexpr int64_t kMiB = int64_t{1} << 20;

int MappingsOfArenas() {
  std::ifstream maps("/proc/self/maps");
  int count = 0;
  for (std::string line; std::getline(maps, line);) {
    if (absl::StrContains(line, "memfd:tessera")) ++count;
  }
  return count;
}

MemoryLink::Peer PeerOf(const SharedArena& arena, int64_t area, int connection) {
  MemoryLink::Peer peer;
  peer.connection.Reset(connection);
  peer.memory.Reset(dup(arena.descriptor()));
  peer.memory_bytes = arena.bytes();
  peer.area = area;
  return peer;
}

// Both ends of a link, in one process with two arenas.
struct Ends {
  Ends() {
    int sockets[2];
    REQUIRE(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sockets) == 0);
    auto worker_area = *LinkArea::Create(worker_arena.get());
    auto server_area = *LinkArea::Create(server_arena.get());
    const int64_t worker_offset = worker_area->offset(), server_offset = server_area->offset();
    worker = *MemoryLink::Create(5, std::move(worker_area),
                                 PeerOf(*server_arena, server_offset, sockets[0]));
    server = *MemoryLink::Create(5, std::move(server_area),
                                 PeerOf(*worker_arena, worker_offset, sockets[1]));
  }

  std::unique_ptr<SharedArena> worker_arena = *SharedArena::Create(64 * kMiB);
  std::unique_ptr<SharedArena> server_arena = *SharedArena::Create(64 * kMiB);
  std::shared_ptr<MemoryLink> worker;
  std::shared_ptr<MemoryLink> server;
};

grpc::Slice SliceOf(const std::string& text) { return grpc::Slice(text); }

std::string ReadAll(MemoryLink* link, const v1::SharedBytes& bytes, absl::Status* status) {
  const auto size = link->SizeOf(bytes);
  REQUIRE(size.ok());
  std::string read(static_cast<size_t>(*size), '?');
  SharedReader reader(link, bytes);
  // In two parts, as values go to several arrays.
  const int64_t half = *size / 2;
  *status = reader.Read(&read[0], half);
  if (status->ok()) *status = reader.Read(&read[half], *size - half);
  if (status->ok()) *status = reader.Finish();
  return read;
}

struct Block : LentMemory {
  explicit Block(SharedArena* from, int64_t size)
      : arena(from), bytes(size), data(from->Take(size)) {}
  ~Block() override { arena->Return(data, bytes); }
  bool is_revoked() const override { return revoked; }
  SharedArena* const arena;
  const int64_t bytes;
  char* const data;
  bool revoked = false;
};

TEST_CASE("staged bytes come as they are, and a buffer is free again once they were read",
          "[shared_memory]") {
  Ends ends;
  const std::string large(LinkArea::kBufferBytes - 3, 'x');
  std::vector<v1::SharedBytes> staged;
  for (int i = 0; i < LinkArea::kBuffers; ++i) {
    REQUIRE(ends.worker->HasBuffer());
    const auto shared = ends.worker->Stage({SliceOf(large), SliceOf(std::to_string(i) + "ab")});
    REQUIRE(shared.has_value());
    staged.push_back(*shared);
  }
  CHECK_FALSE(ends.worker->HasBuffer());
  CHECK_FALSE(ends.worker->Stage({SliceOf("y")}).has_value());
  absl::Status status;
  CHECK(ReadAll(ends.server.get(), staged[1], &status) == large + "1ab");
  CHECK(status.ok());
  const auto again = ends.worker->Stage({SliceOf("again")});
  REQUIRE(again.has_value());
  CHECK(again->slot() == staged[1].slot());
  // A message that comes twice finds that the buffer is another loan's by now.
  ReadAll(ends.server.get(), staged[1], &status);
  CHECK(absl::IsAborted(status));
  CHECK(ReadAll(ends.server.get(), *again, &status) == "again");
  CHECK(ReadAll(ends.server.get(), staged[0], &status) == large + "0ab");
  // The other direction has buffers of its own.
  CHECK(ReadAll(ends.worker.get(), *ends.server->Stage({SliceOf("answer")}), &status) == "answer");
  CHECK_FALSE(ends.worker->Stage({SliceOf(large), SliceOf("too large")}).has_value());
}

TEST_CASE("memory that is lent is held until it was read", "[shared_memory]") {
  Ends ends;
  auto block = std::make_shared<Block>(ends.server_arena.get(), 3 * kMiB);
  std::memset(block->data, 'a', 3 * kMiB);
  const std::weak_ptr<Block> alive = block;
  std::vector<grpc::Slice> slices = {BorrowSlice(block->data, 2 * kMiB, block),
                                     BorrowSlice(block->data + 2 * kMiB + 4096, 400, block)};
  const auto shared = ends.server->Lend(slices, block);
  REQUIRE(shared.has_value());
  slices.clear();
  block.reset();
  CHECK(ends.server->Sweep() == 1);
  CHECK_FALSE(alive.expired());
  absl::Status status;
  CHECK(ReadAll(ends.worker.get(), *shared, &status) == std::string(2 * kMiB + 400, 'a'));
  CHECK(status.ok());
  CHECK(ends.server->Sweep() == 0);
  CHECK(alive.expired());
}

TEST_CASE("memory that was taken back while it was read does not count", "[shared_memory]") {
  Ends ends;
  auto block = std::make_shared<Block>(ends.server_arena.get(), kMiB);
  const auto shared = ends.server->Lend({BorrowSlice(block->data, kMiB, block)}, block);
  REQUIRE(shared.has_value());
  std::string read(kMiB, '?');
  SharedReader reader(ends.worker.get(), *shared);
  CHECK(reader.Read(&read[0], kMiB / 2).ok());
  CHECK(ends.server->Sweep() == 1);
  block->revoked = true;
  CHECK(ends.server->Sweep() == 0);
  CHECK(block.use_count() == 1);
  // Who reads may learn it at once; who asks in the end does.
  const absl::Status second = reader.Read(&read[kMiB / 2], kMiB / 2);
  CHECK((second.ok() || absl::IsAborted(second)));
  CHECK(absl::IsAborted(reader.Finish()));
  // The slot goes on with other loans.
  block->revoked = false;
  for (int i = 0; i < 2 * LinkArea::kSlots; ++i) {
    const auto next = ends.server->Lend({BorrowSlice(block->data, 64, block)}, block);
    REQUIRE(next.has_value());
    absl::Status status;
    ReadAll(ends.worker.get(), *next, &status);
    CHECK(status.ok());
  }
}

TEST_CASE("what is not the arena's, and what there is no slot for, is not lent",
          "[shared_memory]") {
  Ends ends;
  auto block = std::make_shared<Block>(ends.server_arena.get(), 4096);
  CHECK_FALSE(ends.server->Lend({SliceOf(std::string(9000, 'x'))}, block).has_value());
  CHECK_FALSE(ends.server->Lend({BorrowSlice(block->data, 64, block), SliceOf("x")}, block));
  const std::vector<grpc::Slice> many(MemoryLink::kPiecesMax + 1,
                                      BorrowSlice(block->data, 4, block));
  CHECK_FALSE(ends.server->Lend(many, block).has_value());
  int lent = 0;
  while (ends.server->Lend({BorrowSlice(block->data, 64, block)}, block).has_value()) ++lent;
  CHECK(lent == LinkArea::kSlots - LinkArea::kBuffers);
}

TEST_CASE("references that there cannot be are refused before anything is read",
          "[shared_memory]") {
  Ends ends;
  struct Case {
    std::string about;
    v1::SharedBytes bytes;
  };
  std::vector<Case> cases;
  const auto add = [&cases](const std::string& about) -> v1::SharedBytes& {
    cases.push_back({about, {}});
    cases.back().bytes.set_serial(1);
    cases.back().bytes.set_slot(LinkArea::kBuffers);
    return cases.back().bytes;
  };
  const auto piece = [](v1::SharedBytes& bytes, uint64_t offset, uint32_t size) {
    bytes.add_offsets(offset);
    bytes.add_sizes(size);
  };
  piece(add("serial is 0"), 0, 4);
  cases.back().bytes.set_serial(0);
  add("0 offsets and 0 sizes");
  piece(add("slot is 512"), 0, 4);
  cases.back().bytes.set_slot(LinkArea::kSlots);
  piece(add("slot is 4294967295"), 0, 4);
  cases.back().bytes.set_slot(std::numeric_limits<uint32_t>::max());
  piece(add("slot is 0"), 0, 4);
  cases.back().bytes.set_slot(0);
  add("slot is 3, want one of the 3 buffers").set_buffer_bytes(4);
  add("buffer_bytes is 1048577").set_buffer_bytes(LinkArea::kBufferBytes + 1);
  cases.back().bytes.set_slot(0);
  piece(add("has a buffer and 1 pieces"), 0, 4);
  cases.back().bytes.set_slot(0);
  cases.back().bytes.set_buffer_bytes(4);
  add("1 offsets and 0 sizes").add_offsets(0);
  add("0 offsets and 1 sizes").add_sizes(4);
  const auto memory = static_cast<uint64_t>(64 * kMiB);
  piece(add("within the peer's"), memory, 4);
  piece(add("within the peer's"), memory - 4, 8);
  piece(add("within the peer's"), std::numeric_limits<uint64_t>::max(), 4);
  piece(add("within the peer's"), std::numeric_limits<uint64_t>::max() - 3, 8);
  piece(add("within the peer's"), uint64_t{1} << 63, 4);
  piece(add("within the peer's"), 0, std::numeric_limits<uint32_t>::max());
  piece(add("want a multiple of 4"), 2, 4);
  v1::SharedBytes& many = add("has 1025 offsets");
  for (int i = 0; i <= MemoryLink::kPiecesMax; ++i) piece(many, 0, 4);
  for (const Case& one : cases) {
    INFO(one.about);
    const auto size = ends.worker->SizeOf(one.bytes);
    CHECK(absl::IsInvalidArgument(size.status()));
    CHECK(absl::StrContains(size.status().message(), one.about));
  }
  // One that there could be, and is not.
  v1::SharedBytes unlent;
  unlent.set_serial(77);
  unlent.set_buffer_bytes(8);
  absl::Status status;
  ReadAll(ends.worker.get(), unlent, &status);
  CHECK(absl::IsAborted(status));
}

TEST_CASE("memory that could be cut, or is not as large as was said, is not mapped",
          "[shared_memory]") {
  const auto arena = *SharedArena::Create(64 * kMiB);
  const auto create = [&arena](MemoryLink::Peer peer) {
    return MemoryLink::Create(1, *LinkArea::Create(arena.get()), std::move(peer)).status();
  };
  int pipe_ends[2];
  REQUIRE(pipe(pipe_ends) == 0);
  const OwnedDescriptor writer(pipe_ends[1]);
  MemoryLink::Peer peer;
  peer.memory.Reset(pipe_ends[0]);
  CHECK(absl::IsInvalidArgument(create(std::move(peer))));

  MemoryLink::Peer unsealed;
  unsealed.memory.Reset(memfd_create("unsealed", MFD_ALLOW_SEALING));
  unsealed.memory_bytes = 8 * kMiB;
  REQUIRE(ftruncate(unsealed.memory.get(), 8 * kMiB) == 0);
  const absl::Status status = create(std::move(unsealed));
  CHECK(absl::IsInvalidArgument(status));
  CHECK(absl::StrContains(status.message(), "F_SEAL_SHRINK"));

  for (const int64_t said : {int64_t{0}, 63 * kMiB, 65 * kMiB, int64_t{1} << 62}) {
    MemoryLink::Peer cut = PeerOf(*arena, 0, -1);
    cut.memory_bytes = said;
    CHECK(absl::IsInvalidArgument(create(std::move(cut))));
  }
  for (const int64_t area :
       {int64_t{-4096}, int64_t{100}, 64 * kMiB, 62 * kMiB, std::numeric_limits<int64_t>::max()}) {
    CHECK(absl::IsInvalidArgument(create(PeerOf(*arena, area, -1))));
  }
  CHECK(arena->bytes_in_use() == 0);
}

TEST_CASE("a link's memory comes back once the peer reads no more, and no mapping stays",
          "[shared_memory]") {
  const int mappings = MappingsOfArenas();
  {
    Ends ends;
    CHECK(MappingsOfArenas() == mappings + 4);
    CHECK(ends.worker->is_connected());
    const auto shared = ends.worker->Stage({SliceOf("late")});
    // The worker has given the link up. The server may read what it was sent.
    ends.worker.reset();
    CHECK_FALSE(ends.server->is_connected());
    absl::Status status;
    CHECK(ReadAll(ends.server.get(), *shared, &status) == "late");
    CHECK(status.ok());
    ends.worker_arena->Return(ends.worker_arena->Take(1), 1);
    CHECK(ends.worker_arena->bytes_in_use() > LinkArea::kBytes);
    ends.server.reset();
    for (SharedArena* const arena : {ends.worker_arena.get(), ends.server_arena.get()}) {
      arena->Return(arena->Take(1), 1);
      CHECK(arena->bytes_in_use() == 0);
    }
    CHECK(MappingsOfArenas() == mappings + 2);
  }
  CHECK(MappingsOfArenas() == mappings);
}

}  // namespace
}  // namespace tessera
