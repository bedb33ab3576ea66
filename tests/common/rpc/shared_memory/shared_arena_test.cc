#include "common/rpc/shared_memory/shared_arena.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <set>
#include <vector>

#include <catch2/catch.hpp>

#include "common/rpc/shared_memory/owned_descriptor.h"

namespace tessera {
namespace {

constexpr int64_t kMiB = int64_t{1} << 20;

int64_t BlocksOf(const SharedArena& arena) {
  struct stat file;
  REQUIRE(fstat(arena.descriptor(), &file) == 0);
  return file.st_blocks * 512;
}

TEST_CASE("pieces do not overlap, are aligned, and are used again", "[shared_memory]") {
  const auto arena = *SharedArena::Create(64 * kMiB);
  std::vector<std::pair<char*, int64_t>> pieces;
  for (const int64_t bytes : {int64_t{1}, int64_t{64}, int64_t{65}, int64_t{5000}, kMiB - 1, kMiB,
                              kMiB + 1, int64_t{64}, int64_t{1}}) {
    char* const piece = arena->Take(bytes);
    REQUIRE(piece != nullptr);
    CHECK(reinterpret_cast<uintptr_t>(piece) % 64 == 0);
    CHECK(arena->Has(piece, bytes));
    std::memset(piece, static_cast<int>(pieces.size()), static_cast<size_t>(bytes));
    pieces.push_back({piece, bytes});
  }
  for (size_t i = 0; i < pieces.size(); ++i) {
    CHECK(pieces[i].first[0] == static_cast<char>(i));
    CHECK(pieces[i].first[pieces[i].second - 1] == static_cast<char>(i));
  }
  arena->Return(pieces[5].first, pieces[5].second);
  CHECK(arena->Take(kMiB) == pieces[5].first);
}

TEST_CASE("an arena that is full says so, and memory that is given back leaves the process",
          "[shared_memory]") {
  const auto arena = *SharedArena::Create(8 * kMiB);
  std::vector<char*> pieces;
  while (char* const piece = arena->Take(kMiB)) {
    std::memset(piece, 1, kMiB);
    pieces.push_back(piece);
  }
  CHECK(pieces.size() == 8);
  CHECK(arena->bytes_in_use() == 8 * kMiB);
  CHECK(BlocksOf(*arena) == 8 * kMiB);
  for (char* const piece : pieces) arena->Return(piece, kMiB);
  CHECK(arena->bytes_in_use() == 0);
  CHECK(BlocksOf(*arena) == 0);
}

TEST_CASE("what others get of an arena reads, and neither writes nor cuts", "[shared_memory]") {
  const auto arena = *SharedArena::Create(kMiB);
  char* const piece = arena->Take(4096);
  std::strcpy(piece, "read me");
  const int others = arena->descriptor();
  char got[8] = {};
  CHECK(pread(others, got, sizeof got, arena->OffsetOf(piece)) == 8);
  CHECK(std::strcmp(got, "read me") == 0);
  CHECK(pwrite(others, "x", 1, 0) < 0);
  CHECK(mmap(nullptr, kMiB, PROT_READ | PROT_WRITE, MAP_SHARED, others, 0) == MAP_FAILED);
  void* const mapped = mmap(nullptr, kMiB, PROT_READ, MAP_SHARED, others, 0);
  REQUIRE(mapped != MAP_FAILED);
  CHECK(mprotect(mapped, kMiB, PROT_READ | PROT_WRITE) != 0);
  munmap(mapped, kMiB);
  // Its size stays, also for whoever may write.
  const OwnedDescriptor again(open(("/proc/self/fd/" + std::to_string(others)).c_str(), O_RDWR));
  CHECK(ftruncate(again.is_open() ? again.get() : others, 0) != 0);
  CHECK((fcntl(others, F_GET_SEALS) & (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL)) ==
        (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL));
}

TEST_CASE("what a peer may read comes back when its end of the connection is closed",
          "[shared_memory]") {
  const auto arena = *SharedArena::Create(8 * kMiB);
  int ends[2];
  REQUIRE(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends) == 0);
  OwnedDescriptor peer(ends[1]);
  arena->ReturnLater(arena->Take(kMiB), kMiB, OwnedDescriptor(ends[0]));
  arena->Return(arena->Take(1), 1);
  CHECK(arena->bytes_in_use() == kMiB);
  peer.Reset();
  arena->Return(arena->Take(1), 1);
  CHECK(arena->bytes_in_use() == 0);
}

TEST_CASE("limits that a large file would run into are errors, and no signals",
          "[shared_memory][system]") {
  // In a process of its own, as limits do not rise again.
  for (const int kind : {RLIMIT_FSIZE, RLIMIT_AS}) {
    const pid_t child = fork();
    if (child == 0) {
      rlimit limit = {};
      getrlimit(static_cast<__rlimit_resource>(kind), &limit);
      limit.rlim_cur = kind == RLIMIT_AS ? rlim_t{1} << 45 : 4096;
      setrlimit(static_cast<__rlimit_resource>(kind), &limit);
      const auto arena = SharedArena::Create(kMiB);
      _exit(absl::IsUnavailable(arena.status()) ? 0 : 1);
    }
    int status = 0;
    waitpid(child, &status, 0);
    CHECK(WIFEXITED(status));
    CHECK(WEXITSTATUS(status) == 0);
  }
}

}  // namespace
}  // namespace tessera
