// Where the coordinator is, as etcd or the servers say.
#include "common/etcd/coordinator_key.h"

#include <string>
#include <thread>
#include <vector>

#include <catch2/catch.hpp>

#include "absl/time/clock.h"
#include "common/base/steady_clock.h"
#include "tests/server/election/real_etcd.h"

namespace tessera {
namespace {

TEST_CASE("who looks for the coordinator hears why nobody says where it is", "[election][etcd]") {
  RealEtcd etcd;
  const auto client = etcd.Client();
  CoordinatorFinder nobody(client.get(), "digest", {});
  CHECK(absl::IsUnavailable(nobody.Find().status()));
  CHECK(nobody.Find().status().message() == "etcd names no coordinator of this job");
  EtcdTransaction make;
  make.guard = "tessera/digest/coordinator";
  make.puts = {{"tessera/digest/coordinator", "one:1"}};
  REQUIRE(client->Commit(make)->done);
  CoordinatorFinder somebody(client.get(), "digest", {});
  CHECK(*somebody.Find() == "one:1");

  const auto wrong = *EtcdClient::Create({{"127.0.0.1:1"}, absl::Milliseconds(200)});
  CoordinatorFinder cut_off(wrong.get(), "digest", {"127.0.0.1:1"});
  const absl::Status status = cut_off.Find().status();
  CHECK(absl::IsUnavailable(status));
  INFO(status.ToString());
  CHECK(std::string(status.message())
            .find("nobody says who has been elected coordinator: etcd at 127.0.0.1:1: ") == 0);
}

TEST_CASE("a look at many silent servers ends, and nobody waits for it but who looks",
          "[election][etcd]") {
  RealEtcd silent;
  silent.Freeze();
  const auto client = *EtcdClient::Create({{silent.address()}, absl::Milliseconds(300)});
  // It takes connections, and answers nothing.
  CoordinatorFinder finder(client.get(), "digest", std::vector<std::string>(40, silent.address()));
  const absl::Time begin = SteadyNow();
  std::thread looks([&] { CHECK_FALSE(finder.Find().ok()); });
  absl::SleepFor(absl::Milliseconds(50));
  while (SteadyNow() - begin < absl::Milliseconds(250)) {
    const absl::Time asked = SteadyNow();
    CHECK_FALSE(finder.Find().ok());
    CHECK(SteadyNow() - asked < absl::Milliseconds(200));
    absl::SleepFor(absl::Milliseconds(20));
  }
  looks.join();
  // All of them one after the other would be 12 s.
  CHECK(SteadyNow() - begin < absl::Seconds(6));
}

}  // namespace
}  // namespace tessera
