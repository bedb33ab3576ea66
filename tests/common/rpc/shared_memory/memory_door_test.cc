#include "common/rpc/shared_memory/memory_door.h"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstddef>
#include <cstring>
#include <memory>
#include <string>
#include <thread>

#include <catch2/catch.hpp>

#include "absl/strings/match.h"
#include "absl/time/clock.h"
#include "common/base/steady_clock.h"

namespace tessera {
namespace {

constexpr int64_t kMiB = int64_t{1} << 20;
constexpr absl::Duration kPatience = absl::Seconds(10);

bool IsNobody(uid_t) { return false; }

template <typename Condition>
bool Eventually(Condition condition) {
  const absl::Time end = SteadyNow() + kPatience;
  while (!condition()) {
    if (SteadyNow() > end) return false;
    absl::SleepFor(absl::Milliseconds(1));
  }
  return true;
}

struct Door {
  explicit Door(UserCheck may_share = IsOwnUser)
      : door(*MemoryDoor::Open(arena.get(), nullptr, may_share)) {}
  absl::StatusOr<std::shared_ptr<MemoryLink>> Come(uint64_t link, UserCheck may_share = IsOwnUser) {
    return ConnectMemory(door->socket(), link, guest_arena.get(), kPatience, may_share);
  }

  std::unique_ptr<SharedArena> arena = *SharedArena::Create(256 * kMiB);
  std::unique_ptr<SharedArena> guest_arena = *SharedArena::Create(256 * kMiB);
  std::unique_ptr<MemoryDoor> door;
};

// A connection that says what it likes.
OwnedDescriptor Stranger(const std::string& socket_name) {
  OwnedDescriptor connection(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path + 1, socket_name.data(), socket_name.size());
  const auto size =
      static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + socket_name.size());
  REQUIRE(connect(connection.get(), reinterpret_cast<sockaddr*>(&address), size) == 0);
  return connection;
}

TEST_CASE("a member that brings its number has a link, and nobody else has it", "[shared_memory]") {
  Door host;
  const uint64_t number = host.door->Expect(3);
  CHECK(host.door->Find(number, 3) == nullptr);
  const auto link = host.Come(number);
  REQUIRE(link.ok());
  const auto found = host.door->Find(number, 3);
  REQUIRE(found != nullptr);
  CHECK(host.door->Find(number, 4) == nullptr);
  CHECK(host.door->Find(number + 2, 3) == nullptr);
  CHECK(host.door->members() == std::vector<uint64_t>{3});
  // What one end stages the other one reads.
  const auto shared = (*link)->Stage({grpc::Slice("a push")});
  REQUIRE(shared.has_value());
  char read[6];
  SharedReader reader(found.get(), *shared);
  CHECK(reader.Read(read, 6).ok());
  CHECK(reader.Finish().ok());
  CHECK(std::string(read, 6) == "a push");
}

TEST_CASE("a number counts once, and one that was not given counts for nothing",
          "[shared_memory]") {
  Door host;
  const uint64_t number = host.door->Expect(3);
  CHECK(absl::IsUnavailable(host.Come(number + 2).status()));
  const auto link = host.Come(number);
  REQUIRE(link.ok());
  CHECK(absl::IsUnavailable(host.Come(number).status()));
  CHECK(host.door->Find(number, 3) != nullptr);
  // Numbers that nobody uses do not pile up.
  const uint64_t first = host.door->Expect(3);
  for (size_t i = 0; i < MemoryDoor::kExpectedMax; ++i) host.door->Expect(4);
  CHECK_FALSE(host.Come(first).ok());
}

TEST_CASE("another user gets no memory, from either side", "[shared_memory]") {
  {
    Door host(IsNobody);
    const uint64_t number = host.door->Expect(3);
    CHECK_FALSE(host.Come(number).ok());
    CHECK(host.door->Find(number, 3) == nullptr);
  }
  Door host;
  const uint64_t number = host.door->Expect(3);
  const auto link = host.Come(number, IsNobody);
  CHECK(absl::IsPermissionDenied(link.status()));
  CHECK(absl::StrContains(link.status().message(), "the peer's user is"));
  CHECK(host.door->Find(number, 3) == nullptr);
}

TEST_CASE("a socket that is not in this container is an error that says so", "[shared_memory]") {
  const auto arena = *SharedArena::Create(64 * kMiB);
  CHECK(absl::IsFailedPrecondition(
      ConnectMemory("tessera-nobody-listens", 1, arena.get(), kPatience).status()));
  CHECK(absl::IsInvalidArgument(
      ConnectMemory(std::string(200, 'x'), 1, arena.get(), kPatience).status()));
  CHECK(absl::IsInvalidArgument(ConnectMemory("", 1, arena.get(), kPatience).status()));
  CHECK(arena->bytes_in_use() == 0);
}

TEST_CASE("guests that say nothing, or nonsense, do not hold others up", "[shared_memory]") {
  Door host;
  const OwnedDescriptor silent = Stranger(host.door->socket());
  const OwnedDescriptor wrong = Stranger(host.door->socket());
  REQUIRE(send(wrong.get(), "hello", 5, MSG_NOSIGNAL) == 5);
  char byte;
  CHECK(recv(wrong.get(), &byte, 1, 0) <= 0);
  // The right form without a descriptor, and with one that is no memory.
  const uint64_t number = host.door->Expect(3);
  const OwnedDescriptor bare = Stranger(host.door->socket());
  const uint64_t hello[4] = {0x31306d656d727374, number, 64 << 20, 0};
  REQUIRE(send(bare.get(), hello, sizeof hello, MSG_NOSIGNAL) == sizeof hello);
  CHECK(recv(bare.get(), &byte, 1, 0) <= 0);
  const OwnedDescriptor socket_sent = Stranger(host.door->socket());
  REQUIRE(SendHello(socket_sent.get(), {host.door->Expect(3), 64 * kMiB, 0}, silent.get()).ok());
  CHECK(recv(socket_sent.get(), &byte, 1, 0) <= 0);
  const auto link = host.Come(host.door->Expect(3));
  CHECK(link.ok());
}

TEST_CASE("a link ends with its peer, and its memory comes back", "[shared_memory]") {
  Door host;
  const uint64_t number = host.door->Expect(3);
  auto link = *host.Come(number);
  REQUIRE(host.door->Find(number, 3) != nullptr);
  link.reset();
  CHECK(Eventually([&] { return host.door->Find(number, 3) == nullptr; }));
  for (SharedArena* const arena : {host.arena.get(), host.guest_arena.get()}) {
    CHECK(Eventually([arena] {
      arena->Return(arena->Take(1), 1);
      return arena->bytes_in_use() == 0;
    }));
  }
}

TEST_CASE("one member does not have links without end", "[shared_memory]") {
  Door host;
  std::vector<std::shared_ptr<MemoryLink>> links;
  std::vector<uint64_t> numbers;
  const uint64_t others = host.door->Expect(4);
  const auto other = *host.Come(others);
  for (size_t i = 0; i <= MemoryDoor::kLinksPerMemberMax; ++i) {
    numbers.push_back(host.door->Expect(3));
    links.push_back(*host.Come(numbers.back()));
  }
  CHECK(host.door->Find(numbers.front(), 3) == nullptr);
  CHECK(host.door->Find(numbers.back(), 3) != nullptr);
  CHECK(host.door->Find(others, 4) != nullptr);
}

}  // namespace
}  // namespace tessera
