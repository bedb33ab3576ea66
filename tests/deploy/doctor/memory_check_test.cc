#include "deploy/doctor/memory_check.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/config/job_reader.h"
#include "server/server_memory.h"
#include "worker/data/load_datasets.h"
#include "worker/model/network_memory.h"
#include "worker/model/plan.h"
#include "worker/worker_memory.h"

namespace tessera {
namespace {

using Catch::Contains;

struct Case {
  explicit Case(std::vector<std::string> overrides, const char* name = "digits") {
    const JobReading reading =
        ReadJobFile(absl::StrCat("deploy/jobs/", name, ".yaml"), overrides, JobOptions{});
    INFO(FormatJobErrors(reading.errors));
    REQUIRE(reading.ok());
    job = reading.job;
    recipe = *RecipeFor(job);
    shape = *ExchangedShape(job.model(), recipe);
    data = std::make_unique<Datasets>(
        *LoadDatasets(job.data(), EndsOf(job.model(), *ShapeOf(job.model()))));
  }

  int64_t Server(int64_t bytes_max = INT64_MAX) const {
    return PlanServerMemory(job, recipe, shape, 0, bytes_max).total();
  }
  int64_t Worker(int64_t bytes_max = INT64_MAX) const {
    return PlanWorkerMemory(job, recipe, shape, *data, bytes_max)->total();
  }
  Findings Check(int64_t available, bool has_data = true) const {
    return CheckMemory(job, recipe, shape, has_data ? data.get() : nullptr,
                       MachineMemory{available, "this machine"});
  }
  Finding Only(int64_t available, bool has_data = true) const {
    const Findings findings = Check(available, has_data);
    REQUIRE(findings.size() == 1);
    return findings[0];
  }

  v1::Job job;
  Recipe recipe;
  ModelShape shape;
  std::unique_ptr<Datasets> data;
};

TEST_CASE("all processes of a job that is here need memory together", "[doctor][memory]") {
  const Case all({"cluster.workers=3", "cluster.servers=2"});
  const int64_t most = 2 * all.Server() + 3 * all.Worker();
  const Finding good = all.Only(most);
  CHECK(good.kind == Finding::Kind::kGood);
  CHECK_THAT(good.what, Contains("memory: 2 servers with ") && Contains(" and 3 workers with ") &&
                            Contains(" available"));
  // Some of it servers can do without.
  const int64_t least = 2 * all.Server(0) + 3 * all.Worker(0);
  REQUIRE(least < most);
  const Finding tight = all.Only(most - 1);
  CHECK(tight.kind == Finding::Kind::kNote);
  CHECK_THAT(tight.advice, Contains("may be killed for memory; cluster.memory_limit"));
  CHECK(all.Only(least).kind == Finding::Kind::kNote);
  // A worker on a GPU refuses a limit, so that none is advised.
  const Case on_gpu({"cluster.workers=3", "cluster.servers=2", "cluster.device=cuda"});
  const Finding of_servers = on_gpu.Only(2 * on_gpu.Server() - 1);
  CHECK(of_servers.kind == Finding::Kind::kNote);
  CHECK_THAT(of_servers.advice, Contains("may be killed for memory; use more machines"));
  const Finding bad = all.Only(least - 1);
  CHECK(bad.kind == Finding::Kind::kProblem);
  CHECK_THAT(bad.what, Contains("this machine has ") && Contains("are needed"));
}

TEST_CASE("of a job on many machines one process is here", "[doctor][memory]") {
  const Case spread({"cluster.workers=3", "cluster.servers=[10.0.0.1:7000, 10.0.0.2:7000]"});
  CHECK(spread.Only(spread.Worker()).kind == Finding::Kind::kGood);
  CHECK_THAT(spread.Only(spread.Worker(0) - 1).what, Contains("1 worker ") && !Contains("server"));
  // A machine with no data has a server.
  CHECK(spread.Only(spread.Server(), /*has_data=*/false).kind == Finding::Kind::kGood);
  CHECK_THAT(spread.Only(spread.Server(0) - 1, false).what,
             Contains("1 server ") && !Contains("worker"));
  CHECK_THAT(spread.Only(spread.Server(), false).what, Contains("memory: 1 server takes up to "));
  const Case here({"cluster.workers=3", "cluster.servers=[127.0.0.1:7000]"});
  CHECK_THAT(here.Only(INT64_MAX).what, Contains("1 server ") && Contains("3 workers"));
  CHECK_THAT(here.Only(INT64_MAX).what,
             Contains("1 server with ") && Contains(" each take up to "));
}

TEST_CASE("a limit that a process would refuse to start with is a problem", "[doctor][memory]") {
  const char* const job = GENERATE("digits", "digits_ist");
  const Case free({}, job);
  const int64_t worker = free.Worker(0), server = free.Server(0);
  const auto with = [&](int64_t limit) {
    return Case({absl::StrCat("cluster.memory_limit=", limit)}, job);
  };
  const Finding fits = with(std::max(worker, server)).Only(int64_t{1} << 50);
  CHECK(fits.kind == Finding::Kind::kGood);
  const Findings none = with(1).Check(int64_t{1} << 50);
  REQUIRE(none.size() == 2);
  CHECK(none[0].kind == Finding::Kind::kProblem);
  CHECK(none[0].what ==
        absl::StrCat("cluster.memory_limit: is 1 bytes, but a server needs ", server, " = ",
                     PlanServerMemory(free.job, free.recipe, free.shape, 0, 1).Describe()));
  CHECK_THAT(none[1].what, Contains(absl::StrCat("but a worker needs ", worker, " = data ")));
  CHECK_THAT(none[1].advice, Contains("workers would end with 2"));
}

TEST_CASE("the memory of a residual network grows by what its plan says, for each row",
          "[doctor][memory]") {
  const auto of = [](int64_t batch) {
    return Case({"model.input=[1, 8, 8]",
                 "model.layers=[{conv2d: {channels: 8, kernel: 3, padding: 1}}, relu, {residual: "
                 "{layers: [{conv2d: {channels: 8, kernel: 3, padding: 1}}, relu]}}, {linear: "
                 "{units: 10}}]",
                 "cluster.workers=1", absl::StrCat("train.batch_size=", batch)});
  };
  const Case small = of(256);
  // Besides, a batch has the row's values, its label, and a target for each output.
  const int64_t floats =
      BuffersOf(*PlanOf(small.job.model()), /*trains=*/true).floats + 64 + 1 + 10;
  CHECK(of(512).Worker() - small.Worker() == 256 * floats * static_cast<int64_t>(sizeof(float)));
}

TEST_CASE("what a limit costs over a long way is told, and the limit that would cost nothing",
          "[doctor][memory]") {
  const std::vector<std::string> wide = {
      "model.layers=[{linear: {units: 2048}}, relu, {linear: {units: 2048}}, {linear: {units: "
      "10}}]",
      "cluster.workers=1", "cluster.servers=1"};
  const auto with = [&](int64_t limit) {
    std::vector<std::string> overrides = wide;
    overrides.push_back(absl::StrCat("cluster.memory_limit=", limit));
    return Case(overrides);
  };
  const auto windows = [](const Case& one, absl::Duration round_trip) {
    return CheckWindows(one.job, one.recipe, one.shape, one.data.get(),
                        {"10.0.0.1:7000", round_trip});
  };
  const Case free(wide);
  // What a server takes at most; a worker takes less, and has room for its windows then.
  const int64_t most = free.Server();
  REQUIRE(free.Worker() + (int64_t{32} << 20) < most);
  const Findings narrow = windows(with(most), absl::Milliseconds(100));
  REQUIRE(narrow.size() == 2);
  CHECK(narrow[0].kind == Finding::Kind::kNote);
  CHECK(narrow[0].what ==
        "cluster.memory_limit: a server has narrow windows; at 100 ms, as measured to "
        "10.0.0.1:7000, a connection brings 10.0 MiB a second at most");
  const int64_t wanted =
      free.Server() +
      PlanServerMemory(free.job, free.recipe, free.shape, 0, most).windows.following_bytes();
  CHECK(narrow[0].advice ==
        absl::StrCat("with a limit of ", wanted,
                     " bytes windows would follow the network, and a connection bring 320.0 MiB a "
                     "second at most"));
  CHECK(narrow[1].kind == Finding::Kind::kGood);
  CHECK_THAT(narrow[1].what,
             Contains("a worker has ") && Contains(" left for windows that follow the network"));
  // The limit that it names does it.
  const Findings follows = windows(with(wanted), absl::Milliseconds(100));
  REQUIRE(!follows.empty());
  CHECK(follows[0].kind == Finding::Kind::kGood);
  CHECK_THAT(follows[0].what, Contains(" left for windows that follow the network; at 100 ms"));
  CHECK_THAT(follows[0].what,
             Contains(", a call has 1 connection, which brings 320.0 MiB a second at most"));
  // With room for several, of each of which there is a window.
  const Findings several = windows(with(wanted + (int64_t{2} << 30)), absl::Milliseconds(100));
  REQUIRE(!several.empty());
  CHECK_THAT(several[0].what,
             Contains(", a call has 8 connections, which bring 2.5 GiB a second at "
                      "most, as without a limit"));
  // Nothing is lost on a short way, without a limit, or where nobody starts.
  CHECK(windows(with(most), absl::Milliseconds(1)).empty());
  CHECK(windows(free, absl::Milliseconds(100)).empty());
  CHECK(windows(with(1), absl::Milliseconds(100)).empty());
}

TEST_CASE("workers on a GPU are left out", "[doctor][memory]") {
  const Case device({"cluster.device=cuda"});
  CHECK_THAT(device.Only(int64_t{1} << 50).what, !Contains("worker"));
}

TEST_CASE("nothing is said of a machine whose memory is not known", "[doctor][memory]") {
  const Case all({});
  CHECK(CheckMemory(all.job, all.recipe, all.shape, all.data.get(), std::nullopt).empty());
}

}  // namespace
}  // namespace tessera
