// A peer's name that comes to stand for another machine.
#include "common/rpc/name_watch.h"

#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"

namespace tessera {
namespace {

using Addresses = std::vector<std::string>;

constexpr absl::Duration kLook = absl::Milliseconds(1);

// Asks until the watch has heard `addresses`, which it is told at once; what it says then.
bool Says(const std::string& address, const std::string& peer,
          const absl::StatusOr<Addresses>& addresses,
          absl::Duration asks_within = absl::Seconds(20)) {
  struct Asked {
    absl::Mutex mutex;
    int count = 0;
  };
  const auto asked = std::make_shared<Asked>();
  NameWatch watch(address, [asked, addresses](const std::string&) {
    absl::MutexLock lock(&asked->mutex);
    ++asked->count;
    return addresses;
  });
  absl::Time now = absl::UnixEpoch();
  CHECK_FALSE(watch.HasLeft(peer, now));
  // The second question is asked once the first has its answer.
  for (absl::Duration waited; waited < asks_within; waited += kLook) {
    watch.HasLeft(peer, now += absl::Seconds(1));
    {
      absl::MutexLock lock(&asked->mutex);
      if (asked->count > 1) break;
    }
    absl::SleepFor(kLook);
  }
  return watch.HasLeft(peer, now);
}

}  // namespace

TEST_CASE("a peer has left once its name stands for others", "[rpc][name_watch]") {
  CHECK(Says("head:7000", "ipv4:10.0.0.1:7000", Addresses{"10.0.0.2"}));
  CHECK(Says("head:7000", "ipv4:10.0.0.1:7000", Addresses{"fd00::1", "10.0.0.2"}));
  CHECK(Says("head:7000", "ipv6:%5Bfd00::1%5D:7000", Addresses{"fd00::2"}));
}

TEST_CASE("a peer is where it was while its name says so, or says nothing", "[rpc][name_watch]") {
  CHECK_FALSE(Says("head:7000", "ipv4:10.0.0.1:7000", Addresses{"10.0.0.2", "10.0.0.1"}));
  CHECK_FALSE(Says("head:7000", "ipv6:%5Bfd00::1%5D:7000", Addresses{"fd00::1"}));
  CHECK_FALSE(Says("head:7000", "ipv4:10.0.0.1:7000", absl::UnavailableError("no DNS")));
  // Where there is no connection, or no name, there is nothing to ask.
  const absl::Duration short_time = absl::Seconds(1);
  CHECK_FALSE(Says("head:7000", "", Addresses{"10.0.0.2"}, short_time));
  CHECK_FALSE(Says("10.0.0.1:7000", "ipv4:10.0.0.1:7000", Addresses{"10.0.0.2"}, short_time));
}

TEST_CASE("whoever asks does not wait for the name's answer", "[rpc][name_watch]") {
  const auto answer = std::make_shared<absl::Notification>();
  {
    NameWatch watch("head:7000", [answer](const std::string&) -> absl::StatusOr<Addresses> {
      answer->WaitForNotification();
      return Addresses{"10.0.0.2"};
    });
    for (int i = 0; i < 10; ++i) {
      CHECK_FALSE(watch.HasLeft("ipv4:10.0.0.1:7000", absl::UnixEpoch() + absl::Seconds(i)));
    }
  }
  answer->Notify();
}

TEST_CASE("a peer's host is read of what gRPC calls it", "[rpc][name_watch]") {
  CHECK(HostOfPeer("ipv4:10.0.0.1:7000") == "10.0.0.1");
  CHECK(HostOfPeer("ipv6:%5B::1%5D:7000") == "::1");
  CHECK(HostOfPeer("ipv6:[fe80::1%25eth0]:7000") == "fe80::1%eth0");
  CHECK(HostOfPeer("unix:/x").empty());
  CHECK(HostOfPeer("").empty());
}

}  // namespace tessera
