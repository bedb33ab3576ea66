// Where the coordinator is, as etcd or the servers say.
#include "common/etcd/coordinator_key.h"

#include <atomic>
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
  CoordinatorFinder finder(client.get(), "digest", std::vector<std::string>(200, silent.address()));
  int told_meanwhile = 0;
  // On a busy machine a thread may not come to run before the other one's look is over: then both look again.
  for (int tries = 0; told_meanwhile < 2 && tries < 10; ++tries) {
    // What a look has found is told to all for 200 ms.
    if (tries > 0) absl::SleepFor(absl::Milliseconds(250));
    const absl::Time begin = SteadyNow();
    std::atomic<bool> has_found{true}, is_over{false};
    std::thread looks([&] {
      has_found = finder.Find().ok();
      is_over = true;
    });
    told_meanwhile = 0;
    while (!is_over) {
      absl::SleepFor(absl::Milliseconds(20));
      CHECK_FALSE(finder.Find().ok());
      if (!is_over) ++told_meanwhile;
    }
    looks.join();
    CHECK_FALSE(has_found);
    // All of them one after the other would be a minute.
    CHECK(SteadyNow() - begin < absl::Seconds(30));
  }
  // Who waited for the look would be told of it when it is over, and not twice before.
  CHECK(told_meanwhile >= 2);
}

}  // namespace
}  // namespace tessera
