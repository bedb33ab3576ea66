#include "worker/rpc/call_board.h"

#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <memory>
#include <thread>

#include <catch2/catch.hpp>

#include "absl/time/clock.h"
#include "common/base/steady_clock.h"

namespace tessera {
namespace {

struct Ends {
  Ends() {
    int made[2];
    REQUIRE(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, made) == 0);
    one.Reset(made[0]);
    other.Reset(made[1]);
  }
  OwnedDescriptor one;
  OwnedDescriptor other;
};

// Long waits would show as a test that does not end in time.
TEST_CASE("a notification ends one wait, the next or the present one", "[rpc]") {
  CallBoard board;
  board.Notify();
  board.Notify();
  board.WaitUntil(absl::InfiniteFuture());
  const absl::Time begin = SteadyNow();
  board.WaitUntil(begin + absl::Milliseconds(20));
  CHECK(SteadyNow() - begin >= absl::Milliseconds(20));
  board.WaitUntil(begin);
  board.WaitUntil(absl::InfinitePast());
  for (int i = 0; i < 200; ++i) {
    auto other_board = std::make_unique<CallBoard>();
    std::thread other([&board = *other_board] { board.Notify(); });
    other_board->WaitUntil(absl::InfiniteFuture());
    other_board.reset();
    other.join();
  }
}

TEST_CASE("whoever sees the change may destroy the board, whatever ended the wait before",
          "[rpc]") {
  for (int i = 0; i < 200; ++i) {
    auto board = std::make_unique<CallBoard>();
    std::atomic<bool> changed{false};
    std::thread other([&board = *board, &changed] {
      board.Notify();
      board.NotifyAfter([&changed] { changed.store(true); });
    });
    while (!changed.load()) board->WaitUntil(absl::InfiniteFuture());
    board.reset();
    other.join();
  }
}

TEST_CASE("what comes by a socket ends the wait, and its end does", "[rpc]") {
  CallBoard board;
  Ends ends;
  const int sockets[1] = {ends.one.get()};
  std::thread other([&] {
    absl::SleepFor(absl::Milliseconds(10));
    CHECK(send(ends.other.get(), "x", 1, 0) == 1);
  });
  board.WaitUntil(absl::InfiniteFuture(), sockets);
  other.join();
  // As long as it is there to be read.
  board.WaitUntil(absl::InfiniteFuture(), sockets);
  char byte;
  CHECK(recv(ends.one.get(), &byte, 1, MSG_DONTWAIT) == 1);
  const absl::Time begin = SteadyNow();
  board.WaitUntil(begin + absl::Milliseconds(20), sockets);
  CHECK(SteadyNow() - begin >= absl::Milliseconds(20));
  ends.other.Reset(-1);
  board.WaitUntil(absl::InfiniteFuture(), sockets);
  // A notification between two waits is no reason for a third one to end.
  board.Notify();
  board.WaitUntil(absl::InfiniteFuture());
  const absl::Time again = SteadyNow();
  board.WaitUntil(again + absl::Milliseconds(20));
  CHECK(SteadyNow() - again >= absl::Milliseconds(20));
}

}  // namespace
}  // namespace tessera
