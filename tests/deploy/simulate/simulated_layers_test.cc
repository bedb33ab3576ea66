// Whole simulated jobs whose layers are on different workers.
#include <catch2/catch.hpp>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "deploy/simulate/simulation.h"
#include "tests/deploy/simulate/simulated_digits.h"

namespace tessera {
namespace {

// Values of a row at the cut of digits_layers, and the model's two halves.
constexpr int64_t kCut = 16 * 4 * 4;
constexpr int64_t kFront = 16 * 9 + 2 * 16, kBack = kCut * 256 + 256 + 256 * 10 + 10;

TEST_CASE("halves of the layers on different workers learn what whole models with the same data do",
          "[simulation][layers]") {
  // Of one worker's updates there is one rounding, there and here. Values that are pulled rounded are exact after an
  // evaluation, which reads them as they are, of half of the model, too.
  const int front = GENERATE(2, 1);
  CAPTURE(front);
  std::vector<std::string> overrides = {"train.epochs=4", "train.evaluate_every=1"};
  if (front == 1) overrides.push_back("codec={push: bf16, pull: bf16}");
  SimulationOptions options = Cluster();
  options.speed_spread = 0.4;
  const auto run = [&](const std::string& method, int workers) {
    std::vector<std::string> all = overrides;
    all.insert(all.end(), {"method=" + method, "cluster.workers=" + std::to_string(workers)});
    return Simulate(ReadDigits("digits_layers", all), options).report;
  };
  const Json halves = run("layer_separation", front + 1), whole = run("data_parallel", front);
  CHECK(halves["parameters_hash"] == whole["parameters_hash"]);
  CHECK(halves["examples"] == whole["examples"]);
  REQUIRE(halves["history"].size() == 4);
  for (size_t i = 0; i < 4; ++i) {
    const Json &got = halves["history"][i], &want = whole["history"][i];
    for (const char* key : {"train_loss", "test_accuracy", "step"}) CHECK(got[key] == want[key]);
    // One worker more evaluates: losses are added up in another order, and on some processors a product of other rows
    // rounds otherwise.
    CHECK(got["test_loss"].get<double>() == Approx(want["test_loss"].get<double>()).epsilon(1e-6));
  }
  const int64_t steps = halves["steps"], bytes = front == 1 ? 2 : 4;
  const Json& traffic = halves["traffic"];
  for (int k = 0; k <= front; ++k) {
    const Json& worker = traffic["by_worker"][static_cast<size_t>(k)];
    CHECK(worker["push_payload_bytes"] == steps * bytes * (k < front ? kFront : kBack));
    CHECK(worker["pull_payload_bytes"] == (steps + 1) * bytes * (k < front ? kFront : kBack));
  }
  // Beside what evaluations read.
  const int64_t read = 4 * 4 * (kFront + kBack) * (front + 1);
  CHECK(traffic["other_payload_bytes"] == read + front * steps * 32 * 4 * (2 * kCut + 1));
}

TEST_CASE("a step of halves takes what both compute and what passes between them",
          "[simulation][layers]") {
  const int linear = GENERATE(1, 2);
  SimulationOptions options = Cluster();
  options.server_rate = 0;
  const v1::Job job = ReadDigits(
      "digits_layers", {"cluster.workers=" + std::to_string(2 + linear), "cluster.servers=1",
                        "train.epochs=0", "train.steps=20", "train.evaluate_every=0",
                        "method.layer_separation.linear_workers=" + std::to_string(linear)});
  const Json report = Simulate(job, options).report;
  const double front = 2 * 9 * 16 * 64, back = 3 * (kCut * 256 + 256 * 10);
  const auto computed = [&report](int k) {
    return report["phases"][k]["compute_seconds"].get<double>();
  };
  CHECK(computed(0) == Approx(20 * 0.005 * front / (front + back)).epsilon(1e-5));
  CHECK(computed(2) == Approx(20 * 0.005 * (2 / linear) * back / (front + back)).epsilon(1e-5));
  // Both ways: two batches, of which a linear worker's link carries one after the other.
  const double batch = 32 * 4 * (kCut + 1) / 125e6, gradient = 32 * 4 * kCut / 125e6;
  const double step =
      0.005 * (front + 2.0 / linear * back) / (front + back) + batch + gradient + 4 * 0.001;
  const double parameters = 2 * 4 * (2 * kFront + linear * kBack) / 125e6;
  const double seconds = report["train_seconds"].get<double>() / 20;
  CHECK(seconds > step);
  // Exchanges overlap with each other in part.
  CHECK(seconds < step + batch + gradient + parameters + 0.001);
}

TEST_CASE("with the servers beside the linear worker no parameter of its half crosses a link",
          "[simulation][layers]") {
  SimulationOptions options = Cluster();
  options.machines = 4;
  options.server_machines = {3, 3};
  const auto link_bytes = [&options](int steps) {
    const v1::Job job = ReadDigits(
        "digits_layers", {"cluster.workers=4", "cluster.servers=2", "train.epochs=0",
                          "train.steps=" + std::to_string(steps), "train.evaluate_every=0"});
    return Simulate(job, options).report["simulation"]["link_bytes"].get<int64_t>();
  };
  // What evaluations and the first pull take is in both.
  const auto step = static_cast<double>(link_bytes(40) - link_bytes(20)) / 20;
  const double activations = 3 * 32 * 4 * (2 * kCut + 1), front = 3 * 2 * 4 * kFront;
  CHECK(step >= activations + front);
  // Frames of the messages are beside it, and what the coordinator is told.
  CHECK(step < 1.05 * (activations + front));
  options.server_machines = {0, 1};
  CHECK(static_cast<double>(link_bytes(40) - link_bytes(20)) / 20 > 2 * 4 * kBack);
}

TEST_CASE(
    "with the linear layers on a server beside their worker only activations and the front cross "
    "links",
    "[simulation][layers]") {
  // Three with data, each with a server of the front beside it, and one linear worker with a server of its own.
  SimulationOptions options = Cluster();
  options.machines = 4;
  options.server_machines = {0, 1, 2, 3};
  const auto run = [&options](int steps, int linear_servers) {
    const v1::Job job =
        ReadDigits("digits_layers",
                   {"cluster.workers=4", "cluster.servers=4", "train.epochs=0",
                    "train.steps=" + std::to_string(steps), "train.evaluate_every=0",
                    "method.layer_separation.linear_servers=" + std::to_string(linear_servers)});
    return Simulate(job, options).report;
  };
  const Json few = run(20, 1), many = run(40, 1);
  CHECK(many["parameters_hash"] == run(40, 0)["parameters_hash"]);
  const auto per_step = [&](const Json& a, const Json& b, const char* key) {
    return (b[key].get<double>() - a[key].get<double>()) / 20;
  };
  // Each worker with data has a third of the front on its own machine, and pulls and pushes the others.
  const double activations = 3 * 32 * 4 * (2 * kCut + 1);
  const double crossing = per_step(few["simulation"], many["simulation"], "link_bytes");
  CHECK(crossing >= activations + 2 * 2 * 4 * kFront);
  // Frames of messages, of which there is one for each worker and server, are beside it.
  CHECK(crossing < activations + 2 * 2 * 4 * kFront + 16 * 400);
  const double shared = per_step(few["traffic"], many["traffic"], "shared_memory_bytes");
  CHECK(shared == 2 * 4 * (kFront + kBack));
  const Json& linear = many["traffic"]["by_worker"][3];
  // All that it pulls and pushes; what evaluations read of the front is not.
  CHECK(linear["shared_memory_bytes"] == 4 * kBack * (40 + 41 + 1));
}

TEST_CASE("linear workers with a server beside each move what the other's server has",
          "[simulation][layers]") {
  SimulationOptions options = Cluster();
  options.machines = 4;
  options.server_machines = {0, 1, 2, 3};
  const auto traffic = [&options](int steps) {
    const v1::Job job = ReadDigits(
        "digits_layers",
        {"cluster.workers=4", "cluster.servers=4", "train.epochs=0",
         "train.steps=" + std::to_string(steps), "train.evaluate_every=0",
         "method.layer_separation.linear_workers=2", "method.layer_separation.linear_servers=2"});
    return Simulate(job, options).report["traffic"];
  };
  const Json few = traffic(20), many = traffic(40);
  int64_t crossing = 0;
  for (size_t k = 2; k < 4; ++k) {
    const auto moved = [&](const char* key) {
      return many["by_worker"][k][key].get<int64_t>() - few["by_worker"][k][key].get<int64_t>();
    };
    crossing +=
        moved("pull_payload_bytes") + moved("push_payload_bytes") - moved("shared_memory_bytes");
  }
  CHECK(crossing == 20 * 8 * kBack);
}

TEST_CASE("servers are on machines that there are, each on one of them", "[simulation]") {
  const auto refusal = [](const std::vector<std::string>& overrides, int machines,
                          std::vector<int> servers) {
    SimulationOptions options = Cluster();
    options.machines = machines;
    options.server_machines = std::move(servers);
    const v1::Job job = ReadDigits("digits_layers", overrides);
    return std::string(Simulation::Create(job, options, &Digits()).status().message());
  };
  CHECK(refusal({}, 3, {1, 2}) == "");
  CHECK(refusal({}, 3, {1}) ==
        "simulation: 1 of 2 servers have a machine given, want one for each");
  CHECK(
      refusal({}, 3, {1, 3}) ==
      "simulation: a server is on machine 3 of 3, want one from 0 on of that many; give machines");
  CHECK(
      refusal({}, 0, {0, 0}) ==
      "simulation: a server is on machine 0 of 0, want one from 0 on of that many; give machines");
  CHECK(refusal({"method={decentralized: {}}", "cluster.servers=3"}, 3, {0, 1, 2}) ==
        "simulation: servers have machines given, want none: each is beside its worker");
}

TEST_CASE("with a linear worker lost the others take its batches, and the job ends",
          "[simulation][layers]") {
  const bool stubs = GENERATE(false, true);
  SimulationOptions options = Cluster();
  options.speed_spread = 0.3;
  options.fail_rate = 60;
  options.stub_gradients = stubs;
  const auto run = [&options](int seed) {
    return Simulate(
        ReadDigits("digits_layers", {"cluster.workers=9", "cluster.lease_timeout=2s",
                                     "method.layer_separation.linear_workers=4", "train.epochs=120",
                                     "train.batch_size=16", "seed=" + std::to_string(seed)}),
        options);
  };
  int lost = 0;
  for (int seed = 1; seed <= 4; ++seed) {
    CAPTURE(seed);
    const Result result = run(seed);
    REQUIRE(result.outcome.ok());
    lost += result.report["members"]["lost"].get<int>();
    if (!stubs) CHECK(result.report["final"]["test_accuracy"].get<double>() > 0.88);
    if (seed == 1) CHECK(run(seed).text == result.text);
  }
  CHECK(lost > 3);
}

TEST_CASE("with the last worker of a half lost the job fails and says which",
          "[simulation][layers]") {
  SimulationOptions options = Cluster();
  options.fail_rate = 3000;
  // With a longer lease all would be lost at once.
  const Result result = Simulate(
      ReadDigits("digits_layers", {"cluster.workers=3", "cluster.lease_timeout=1s"}), options);
  CHECK(absl::IsAborted(result.outcome));
  CHECK(std::string(result.outcome.message()).find("is gone, the last one that trained") !=
        std::string::npos);
}

TEST_CASE("hundreds of stub workers train halves", "[simulation][layers]") {
  SimulationOptions options = Cluster();
  options.speed_spread = 0.5;
  options.step_jitter = 0.5;
  options.stub_gradients = true;
  const v1::Job job =
      ReadDigits("digits_layers", {"cluster.workers=400", "cluster.servers=4", "train.batch_size=2",
                                   "train.epochs=0", "train.steps=40", "train.evaluate_every=0",
                                   "method.layer_separation.linear_workers=30"});
  const Result result = Simulate(job, options);
  CHECK(result.outcome.ok());
  CHECK(result.report["steps"] == 40);
  CHECK(result.report["examples"] == 370 * 40 * 2);
}

}  // namespace
}  // namespace tessera
