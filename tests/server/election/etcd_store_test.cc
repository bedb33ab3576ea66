// The client and the store, with a real etcd.
#include "server/election/etcd_store.h"

#include <optional>
#include <string>
#include <thread>

#include <catch2/catch.hpp>

#include "absl/time/clock.h"
#include "common/base/steady_clock.h"
#include "tests/server/election/real_etcd.h"

namespace tessera {
namespace {

constexpr char kPrefix[] = "tessera/digest";
constexpr char kKey[] = "tessera/digest/coordinator";

// The revision of the tenure that begins now.
int64_t Tenure(EtcdClient* etcd, const std::string& address, int64_t lease) {
  EtcdTransaction make;
  make.guard = kKey;
  make.puts = {{kKey, address}};
  make.lease = lease;
  const auto made = etcd->Commit(make);
  REQUIRE(made.ok());
  REQUIRE(made->done);
  return made->revision;
}

v1::CoordinatorState State(uint64_t term, size_t bytes = 0) {
  v1::CoordinatorState state;
  state.set_term(term);
  state.set_failure(std::string(bytes, 'x'));
  return state;
}

absl::Time Later() { return SteadyNow() + absl::Seconds(20); }

// A watch in which nothing changes ends then; etcd has taken it by that time, on a busy machine, too.
absl::Time AfterQuiet() { return SteadyNow() + absl::Seconds(3); }

TEST_CASE("one that has been superseded writes nothing", "[election][etcd]") {
  RealEtcd etcd;
  const auto client = etcd.Client();
  const auto lease = client->Grant(absl::Seconds(60));
  REQUIRE(lease.ok());
  EtcdStore first(client.get(), kPrefix, Tenure(client.get(), "one:1", lease->id), Later);
  REQUIRE(first.Write(State(1)).ok());

  // Its lease ends, and another one begins. The first does not know.
  REQUIRE(client->Revoke(lease->id).ok());
  CHECK(absl::IsNotFound(client->KeepAlive(lease->id).status()));
  const auto next = client->Grant(absl::Seconds(60));
  EtcdStore second(client.get(), kPrefix, Tenure(client.get(), "two:2", next->id), Later);
  CHECK((*second.Read())->term() == 1);
  const absl::Status refused = first.Write(State(7));
  CHECK(absl::IsAborted(refused));
  CHECK(std::string(refused.message()).find("two:2") != std::string::npos);
  CHECK((*second.Read())->term() == 1);
  REQUIRE(second.Write(State(2)).ok());
  CHECK((*second.Read())->term() == 2);
}

TEST_CASE("a state that does not fit into a value is whole at any moment", "[election][etcd]") {
  RealEtcd etcd;
  const auto client = etcd.Client();
  const auto lease = client->Grant(absl::Seconds(60));
  EtcdStore store(client.get(), kPrefix, Tenure(client.get(), "one:1", lease->id), Later);
  CHECK_FALSE(store.Read()->has_value());
  for (const size_t bytes :
       {size_t{10}, 3 * kEtcdPieceBytes, 2 * kEtcdPieceBytes + 1, size_t{0}, kEtcdPieceBytes}) {
    REQUIRE(store.Write(State(bytes + 1, bytes)).ok());
    const auto read = store.Read();
    REQUIRE(read.ok());
    CHECK((*read)->term() == bytes + 1);
    CHECK((*read)->failure().size() == bytes);
  }
  CHECK(absl::IsResourceExhausted(store.Write(State(1, kEtcdStateBytesMax))));
  // A piece of somebody else's is not taken for one.
  REQUIRE(store.Write(State(5, 3 * kEtcdPieceBytes)).ok());
  EtcdTransaction spoil;
  spoil.guard = "nobody";
  spoil.puts = {{"tessera/digest/state-0/1", "x"}, {"tessera/digest/state-1/1", "x"}};
  REQUIRE(client->Commit(spoil)->done);
  CHECK(absl::IsDataLoss(store.Read().status()));
}

TEST_CASE("a write waits for etcd for as long as the tenure lasts", "[election][etcd]") {
  RealEtcd etcd;
  const auto patient = etcd.Client();
  const auto lease = patient->Grant(absl::Seconds(60));
  absl::Time held_until = absl::InfiniteFuture();
  const auto client = etcd.Client(absl::Seconds(1));
  EtcdStore store(client.get(), kPrefix, Tenure(patient.get(), "one:1", lease->id),
                  [&] { return held_until; });
  etcd.Freeze();
  held_until = SteadyNow() + absl::Seconds(2);
  CHECK(absl::IsUnavailable(store.Write(State(1))));
  CHECK(SteadyNow() >= held_until);
  CHECK_FALSE(store.IsHeld(SteadyNow()));
  held_until = absl::InfiniteFuture();
  std::thread thaws([&] {
    absl::SleepFor(absl::Milliseconds(1500));
    etcd.Thaw();
  });
  CHECK(store.Write(State(3)).ok());
  thaws.join();
  // An etcd that has just been thawed may be slow to answer.
  EtcdStore reader(patient.get(), kPrefix, /*revision=*/0, Later);
  CHECK((*reader.Read())->term() == 3);
}

TEST_CASE("a write that was given up changes nothing when it comes after others",
          "[election][etcd]") {
  RealEtcd etcd;
  const auto client = etcd.Client();
  const auto lease = client->Grant(absl::Seconds(60));
  const int64_t tenure = Tenure(client.get(), "one:1", lease->id);
  EtcdStore store(client.get(), kPrefix, tenure, Later);
  REQUIRE(store.Write(State(1)).ok());
  const auto first = client->Get("tessera/digest/state");
  REQUIRE(first.ok());
  // As a write of this tenure that hangs somewhere on its way, and is repeated.
  EtcdTransaction late;
  late.guard = kKey;
  late.guard_revision = tenure;
  late.unchanged = "tessera/digest/state";
  late.unchanged_revision = (*first)->mod_revision;
  late.puts = {{"tessera/digest/state", (*first)->value}};
  REQUIRE(store.Write(State(2)).ok());
  const auto outcome = client->Commit(late);
  REQUIRE(outcome.ok());
  CHECK_FALSE(outcome->done);
  CHECK(outcome->guard->create_revision == tenure);
  CHECK(outcome->unchanged->mod_revision > late.unchanged_revision);
  CHECK((*store.Read())->term() == 2);
  // One that comes to pass behind the store's back does not keep the next from being written.
  late.unchanged_revision = outcome->unchanged->mod_revision;
  REQUIRE(client->Commit(late)->done);
  CHECK(store.Write(State(3)).ok());
  CHECK((*store.Read())->term() == 3);
  REQUIRE(store.Write(State(4, 2 * kEtcdPieceBytes)).ok());
  CHECK((*store.Read())->term() == 4);
}

TEST_CASE("a change is heard of, and what was before is not", "[election][etcd]") {
  RealEtcd etcd;
  const auto client = etcd.Client();
  const auto lease = client->Grant(absl::Seconds(60));
  const int64_t revision = Tenure(client.get(), "one:1", lease->id);
  CHECK(absl::IsDeadlineExceeded(client->AwaitChange(kKey, revision, AfterQuiet())));
  std::thread ends([&] {
    absl::SleepFor(absl::Milliseconds(300));
    (void)client->Revoke(lease->id);
  });
  CHECK(client->AwaitChange(kKey, revision, SteadyNow() + absl::Seconds(20)).ok());
  ends.join();
  CHECK_FALSE(client->Get(kKey)->has_value());
  // One that has come already is heard of at once.
  CHECK(client->AwaitChange(kKey, revision, SteadyNow() + absl::Seconds(20)).ok());
  std::thread cancels([&] {
    absl::SleepFor(absl::Milliseconds(300));
    client->Cancel();
  });
  CHECK(absl::IsCancelled(client->AwaitChange("other", revision, SteadyNow() + absl::Seconds(20))));
  cancels.join();
}

TEST_CASE("members are tried one after the other", "[election][etcd]") {
  RealEtcd etcd;
  const std::string good = etcd.address();
  const auto client = *EtcdClient::Create({{"127.0.0.1:1", good}, absl::Seconds(20)});
  CHECK(absl::IsUnavailable(client->Get(kKey).status()));
  CHECK(client->Get(kKey).ok());
  CHECK(client->member() == good);
  // One with no news is no silent one; one that hears the wish to watch, and says nothing, is.
  CHECK(absl::IsDeadlineExceeded(client->AwaitChange(kKey, 1000, AfterQuiet())));
  CHECK(client->member() == good);
  etcd.Freeze();
  CHECK_FALSE(client->AwaitChange(kKey, 1000, SteadyNow() + absl::Milliseconds(500)).ok());
  CHECK(client->member() != good);
  etcd.Thaw();
  CHECK(absl::IsInvalidArgument(EtcdClient::Create({{"nowhere"}}).status()));
  CHECK(absl::IsInvalidArgument(EtcdClient::Create({{"https://a:1"}}).status()));
  CHECK(absl::IsInvalidArgument(EtcdClient::Create({}).status()));
}

}  // namespace
}  // namespace tessera
