// Whole simulated jobs on the built-in digits: the jobs that ship with the program, with the same
// course every time, in the time that arithmetic says.
#include "deploy/simulate/simulation.h"

#include <catch2/catch.hpp>
#include <limits>
#include <string>
#include <vector>

#include "tests/deploy/simulate/simulated_digits.h"

namespace tessera {
namespace {

const char* const kJobs[] = {"digits",        "digits_async",        "digits_local_sgd",
                             "digits_diloco", "digits_diloco_async", "digits_softsync",
                             "digits_ssp",    "digits_ist",          "digits_ist_tail",
                             "digits_quant",  "digits_slim_dp",      "digits_decentralized"};

// Where every worker has a server beside it there are as many of these.
std::vector<std::string> Size(const std::string& name, int workers, int servers) {
  if (name == "digits_decentralized") servers = workers;
  return {"cluster.workers=" + std::to_string(workers),
          "cluster.servers=" + std::to_string(servers)};
}

TEST_CASE("every digits job learns, ends, and takes the same course twice", "[simulation]") {
  const std::string name = GENERATE(from_range(std::begin(kJobs), std::end(kJobs)));
  CAPTURE(name);
  SimulationOptions options = Cluster();
  options.speed_spread = 0.3;
  options.step_jitter = 0.2;
  const v1::Job job = ReadDigits(name, {"train.epochs=20"});
  const Result first = Simulate(job, options);
  CHECK(first.outcome.ok());
  CHECK(first.report["final"]["test_accuracy"].get<double>() > 0.88);
  CHECK(first.report["simulation"]["latency_seconds"] == 0.001);
  CHECK(first.report["members"]["lost"] == 0);
  CHECK(Simulate(job, options).text == first.text);
}

TEST_CASE("workers that crash are replaced, and the job ends, the same way twice", "[simulation]") {
  const std::string name = GENERATE(from_range(std::begin(kJobs), std::end(kJobs)));
  CAPTURE(name);
  SimulationOptions options = Cluster();
  options.speed_spread = 0.5;
  options.fail_rate = 250;
  options.restart_after = int64_t{12} * kNanosPerSecond;
  const v1::Job job = ReadDigits(name, Size(name, 6, 3));
  const Result first = Simulate(job, options);
  CHECK(first.outcome.ok());
  CHECK(first.report["members"]["lost"].get<int>() > 0);
  CHECK(first.report["members"]["joined"].get<int>() > 6);
  CHECK(first.report["final"]["test_accuracy"].get<double>() > 0.85);
  CHECK(Simulate(job, options).text == first.text);
}

TEST_CASE("a worker that comes back before its lease is over waits for that, and trains",
          "[simulation]") {
  const std::string name = GENERATE("digits", "digits_async");
  CAPTURE(name);
  SimulationOptions options = Cluster();
  options.stub_gradients = true;
  options.step_time = kNanosPerSecond;
  options.fail_rate = 10;
  const v1::Job job = ReadDigits(name, {"cluster.workers=6", "cluster.servers=3", "train.epochs=60",
                                        "train.evaluate_every=0"});
  const Result never = Simulate(job, options);
  CHECK(never.report["members"]["joined"] == 6);
  // The lease is 10 s.
  for (const int64_t seconds : {0, 1, 9}) {
    CAPTURE(seconds);
    options.restart_after = seconds * kNanosPerSecond;
    const Result result = Simulate(job, options);
    CHECK(result.outcome.ok());
    CHECK(result.report["members"]["lost"].get<int>() > 0);
    CHECK(result.report["members"]["joined"].get<int>() > 6);
    CHECK(Simulate(job, options).text == result.text);
  }
}

TEST_CASE("when all workers crash and none comes back the job fails and says so", "[simulation]") {
  SimulationOptions options = Cluster();
  options.fail_rate = 20000;
  const Result result = Simulate(ReadDigits("digits", {"cluster.workers=4"}), options);
  CHECK(absl::IsAborted(result.outcome));
  CHECK(std::string(result.outcome.message()).find("all workers are gone") != std::string::npos);
  CHECK(result.report["outcome"] == "failed");
}

TEST_CASE("what synchronous workers learn does not depend on the network or on their speeds",
          "[simulation]") {
  const std::string name =
      GENERATE("digits", "digits_local_sgd", "digits_diloco", "digits_ist", "digits_layers");
  const v1::Job job = ReadDigits(name, {"train.epochs=4", "cluster.workers=3"});
  const Result plain = Simulate(job, Cluster());
  SimulationOptions slow = Cluster();
  slow.bandwidth = 1'000'000;
  slow.latency = 70'000'000;
  slow.speed_spread = 0.9;
  slow.machines = 2;
  slow.cores_per_machine = 1;
  const Result other = Simulate(job, slow);
  CHECK(plain.report["parameters_hash"] == other.report["parameters_hash"]);
  CHECK(plain.report["final"] == other.report["final"]);
  CHECK(other.report["train_seconds"].get<double>() >
        3 * plain.report["train_seconds"].get<double>());
}

TEST_CASE("a slow worker is waited for where all are", "[simulation]") {
  const v1::Job job = ReadDigits("digits", {"train.epochs=2", "cluster.workers=3"});
  SimulationOptions options = Cluster();
  const double all = Simulate(job, options).report["train_seconds"];
  options.slow_worker = 3;
  const Result slow = Simulate(job, options);
  CHECK(slow.report["train_seconds"].get<double>() > 1.5 * all);
  CHECK(slow.report["simulation"]["slow_worker"] == 3);
}

TEST_CASE("rows that go by speed end the waiting for a slow worker, and change no step's rows",
          "[simulation]") {
  SimulationOptions options = Cluster();
  options.slow_worker = 4;
  options.step_time = 20'000'000;
  options.bandwidth = 12'500'000'000;
  const auto run = [&](const std::string& method, const std::string& partition) {
    const Result result = Simulate(
        ReadDigits("digits", {"cluster.workers=3", "train.epochs=30", "cluster.lease_timeout=1s",
                              "train.evaluate_every=0",
                              // Without a norm, whose statistics are of a worker's own rows.
                              "model.layers=[{linear: {units: 64}}, relu, {linear: {units: 10}}]",
                              "train.optimizer={sgd: {learning_rate: 0.05}}",
                              "data.partition=" + partition, "method=" + method}),
        options);
    CHECK(result.outcome.ok());
    return result.report;
  };
  const std::string method =
      GENERATE("data_parallel", "{local_sgd: {local_steps: 5}}", "{async_sgd: {}}",
               "{ssp: {bound: 2}}", "{softsync: {pushes: 2}}", "{slim_dp: {alpha: 0.3, beta: 0.1}}",
               "{diloco: {local_steps: 5}}");
  CAPTURE(method);
  const Json equal = run(method, "global"), by_speed = run(method, "by_speed");
  // A fair share is 9/13 of a minibatch for the slow one's 4 steps' time, at best 0.43 of it; 5 epochs come before.
  CHECK(by_speed["train_seconds"].get<double>() < 0.6 * equal["train_seconds"].get<double>());
  CHECK(equal["batches"].empty());
  const Json& batches = by_speed["batches"];
  REQUIRE(batches.size() == 3);
  int64_t rows = 0;
  for (const Json& batch : batches) rows += batch["rows"].get<int64_t>();
  CHECK(rows == 3 * 32);
  CHECK(batches[0]["rows"].get<int64_t>() * 3 < batches[1]["rows"].get<int64_t>());
  CHECK(equal["examples"] == by_speed["examples"]);
  const double loss = equal["final"]["test_loss"];
  // The mean of a step's gradients is that of the same rows, however they are shared out.
  const double off = method == "data_parallel" ? 1e-4 : 0.1;
  CHECK(by_speed["final"]["test_loss"].get<double>() == Approx(loss).epsilon(off));
}

TEST_CASE("one worker and one server take the time that a line of arithmetic says",
          "[simulation]") {
  SimulationOptions options = Cluster();
  options.server_rate = 0;
  const v1::Job job = ReadDigits(
      "digits", {"cluster.workers=1", "cluster.servers=1", "train.epochs=0", "train.steps=50"});
  const Result result = Simulate(job, options);
  // 64 x 128 weights, scale and shift of the norm, 128 x 10 weights and 10 biases.
  const int64_t bytes = 4 * (64 * 128 + 2 * 128 + 128 * 10 + 10);
  const Json& traffic = result.report["traffic"];
  CHECK(traffic["push_payload_bytes"] == 50 * bytes);
  CHECK(traffic["pull_payload_bytes"] == 51 * bytes);
  const double wire =
      traffic["push_wire_bytes"].get<double>() / 50 + traffic["pull_wire_bytes"].get<double>() / 51;
  const double step = 0.005 + 2 * 0.001 + wire / 125e6;
  const double seconds = result.report["train_seconds"];
  // Beside the steps there are a few words with the coordinator.
  CHECK(seconds > 50 * step - 0.001);
  CHECK(seconds < 50 * step + 8 * 0.001);
  // The acknowledgement is there a latency after the last byte of the push.
  const double push = traffic["push_wire_bytes"].get<double>() / 125e6 + 50 * 2 * 0.001;
  CHECK(result.report["phases"][0]["push_seconds"].get<double>() == Approx(push).epsilon(1e-5));
  CHECK(result.report["phases"][0]["compute_seconds"].get<double>() == Approx(50 * 0.005));
}

TEST_CASE("replicas fold the same pushes, which cross a link once for each peer", "[simulation]") {
  SimulationOptions options = Cluster();
  options.speed_spread = 0.3;
  options.stub_gradients = GENERATE(false, true);
  CAPTURE(options.stub_gradients);
  const v1::Job job = ReadDigits(
      "digits_decentralized", {"codec={push: f32}", "train.epochs=0", "train.steps=30",
                               "train.evaluate_every=0", "cluster.workers=4", "cluster.servers=4"});
  const auto simulation = Simulation::Create(job, options, &Digits());
  REQUIRE(simulation.ok());
  while (!(*simulation)->Run(100000)) {
  }
  CHECK((*simulation)->outcome().ok());
  const Json report = Json::parse((*simulation)->Report());
  const int64_t bytes = 4 * (64 * 128 + 2 * 128 + 128 * 10 + 10);
  CHECK(report["traffic"]["exchanges"] == 4 * 30);
  CHECK(report["traffic"]["push_payload_bytes"] == 4 * 30 * 3 * bytes);
  CHECK(report["traffic"]["pull_payload_bytes"] == 4 * (30 + 1) * bytes);
  for (const auto& server : (*simulation)->servers()) {
    CHECK(server->shard().counters().pushes == 4 * 30);
    CHECK(server->shard().counters().version == Version(4 * 30));
  }
}

TEST_CASE("a worker that warms up trains alone, and the others begin where it ended",
          "[simulation]") {
  const auto examples = [](const std::string& warmup) {
    const Result result =
        Simulate(ReadDigits("digits_decentralized",
                            {"method={decentralized: {warmup_steps: " + warmup + "}}",
                             "train.epochs=0", "train.steps=60", "train.evaluate_every=0"}),
                 Cluster());
    CHECK(result.outcome.ok());
    CHECK(result.report["steps"] == 60);
    return result.report["examples"].get<int>();
  };
  CHECK(examples("0") == 3 * 60 * 32);
  CHECK(examples("20") == (60 + 2 * 40) * 32);
}

TEST_CASE("two workers on one core take twice as long to compute", "[simulation]") {
  SimulationOptions options = Cluster();
  options.machines = 1;
  options.server_rate = 0;
  options.loopback_bandwidth = 0;
  const v1::Job job =
      ReadDigits("digits", {"cluster.workers=2", "train.epochs=0", "train.steps=20"});
  options.cores_per_machine = 2;
  const double apart = Simulate(job, options).report["phases"][0]["compute_seconds"];
  options.cores_per_machine = 1;
  const double together = Simulate(job, options).report["phases"][0]["compute_seconds"];
  CHECK(apart == Approx(20 * 0.005));
  CHECK(together == Approx(2 * apart));
}

TEST_CASE("a step on a subnet takes its share of the whole model's multiply-adds", "[simulation]") {
  const int workers = GENERATE(1, 2, 3);
  SimulationOptions options = Cluster();
  options.server_rate = 0;
  const v1::Job job =
      ReadDigits("digits_ist", {"cluster.workers=" + std::to_string(workers), "train.epochs=0",
                                "train.steps=20", "train.evaluate_every=0"});
  const double compute = Simulate(job, options).report["phases"][0]["compute_seconds"];
  // The gradient of the inputs is nobody's.
  const auto work = [](double hidden) {
    return 2 * 64 * hidden + 3 * hidden * hidden + 3 * hidden * 10;
  };
  CHECK(compute == Approx(20 * 0.005 * work(96.0 / workers) / work(96)).epsilon(1e-6));
}

TEST_CASE("parts by speed end the waiting for the slowest", "[simulation]") {
  SimulationOptions options = Cluster();
  options.speed_spread = 0.7;
  options.step_time = 20'000'000;
  options.bandwidth = 12'500'000'000;
  const bool stubs = GENERATE(true, false);
  options.stub_gradients = stubs;
  const auto run = [&](const std::string& parts) {
    return Simulate(
               ReadDigits("digits_ist", {"cluster.workers=4", "train.epochs=60",
                                         "cluster.lease_timeout=1s", "train.evaluate_every=0",
                                         "method={ist: {local_steps: 20, parts: " + parts + "}}"}),
               options)
        .report;
  };
  const Json equal = run("equal"), by_speed = run("by_speed");
  const auto waited = [](const Json& report) {
    double seconds = 0;
    for (const Json& phases : report["phases"]) seconds += phases["wait_seconds"].get<double>();
    return seconds / report["train_seconds"].get<double>();
  };
  CHECK(waited(by_speed) < 0.6 * waited(equal));
  CHECK(by_speed["train_seconds"].get<double>() < 0.9 * equal["train_seconds"].get<double>());
  double sum = 0;
  for (const Json& part : by_speed["parts"]) sum += part["part"].get<double>();
  CHECK(sum == Approx(1));
  CHECK(equal["parts"].empty());
  if (!stubs) CHECK(by_speed["final"]["test_accuracy"].get<double>() > 0.88);
}

TEST_CASE("a round that is the whole job is no standstill", "[simulation]") {
  SimulationOptions options = Cluster();
  options.step_time = 2 * kNanosPerSecond;
  options.stub_gradients = true;
  const Result result =
      Simulate(ReadDigits("digits_ist", {"method=ensemble", "train.epochs=0", "train.steps=40000",
                                         "train.evaluate_every=0"}),
               options);
  CHECK(result.outcome.ok());
  CHECK(result.report["rounds"] == 1);
}

TEST_CASE("a lost worker's neurons are dealt anew, and none is left untrained", "[simulation]") {
  SimulationOptions options = Cluster();
  options.fail_rate = 130;
  const v1::Job job = ReadDigits("digits_ist", {"cluster.workers=6", "cluster.servers=3"});
  const Result result = Simulate(job, options);
  CHECK(result.outcome.ok());
  const Json& report = result.report;
  CHECK(report["members"]["lost"].get<int>() > 0);
  CHECK(report["refused_pushes"] == 0);
  CHECK(report["final"]["test_accuracy"].get<double>() > 0.85);
}

// Batch norm takes its statistics over a piece: without it the two differ by roundings alone.
TEST_CASE("with a core that moves, minibatches in pieces teach what whole ones do",
          "[simulation]") {
  const std::string asynchronous = GENERATE("false", "true");
  CAPTURE(asynchronous);
  std::vector<std::string> overrides = {
      "model.layers=[linear: {units: 40}, relu: {}, linear: {units: 10}]",
      "method.slim_dp={alpha: 0.3, beta: 0.2, local_steps: 2, core_every: 6, asynchronous: " +
          asynchronous + "}",
      "train.epochs=5", "train.evaluate_every=1"};
  SimulationOptions options = Cluster();
  options.speed_spread = 0.4;
  const Result whole = Simulate(ReadDigits("digits_slim_dp", overrides), options);
  overrides.push_back("train.micro_batch=5");
  const Result pieces = Simulate(ReadDigits("digits_slim_dp", overrides), options);
  CHECK(whole.report["final"]["test_accuracy"].get<double>() > 0.8);
  CHECK(pieces.report["traffic"]["exchanges"] == whole.report["traffic"]["exchanges"]);
  // It did go another way.
  CHECK(pieces.report["parameters_hash"] != whole.report["parameters_hash"]);
  REQUIRE(pieces.report["history"].size() == whole.report["history"].size());
  for (size_t i = 0; i < whole.report["history"].size(); ++i) {
    const Json &got = pieces.report["history"][i], &want = whole.report["history"][i];
    CAPTURE(i);
    CHECK(got["step"] == want["step"]);
    for (const char* loss : {"train_loss", "test_loss"}) {
      CHECK(got[loss].get<double>() == Approx(want[loss].get<double>()).epsilon(1e-3));
    }
  }
}

TEST_CASE("stub gradients move the same bytes in the same time as real ones", "[simulation]") {
  const std::string name = GENERATE("digits", "digits_async", "digits_ssp", "digits_ist",
                                    "digits_slim_dp", "digits_layers");
  SimulationOptions options = Cluster();
  options.speed_spread = 0.4;
  const v1::Job job = ReadDigits(
      name, {"cluster.workers=8", "train.epochs=0", "train.steps=40", "train.evaluate_every=0"});
  const Result real = Simulate(job, options);
  options.stub_gradients = true;
  const Result stub = Simulate(job, options);
  CHECK(stub.outcome.ok());
  CHECK(stub.report["traffic"] == real.report["traffic"]);
  CHECK(stub.report["train_seconds"] == real.report["train_seconds"]);
  CHECK(stub.report["staleness"] == real.report["staleness"]);
  CHECK(stub.report["final"]["test_accuracy"].is_null());
}

TEST_CASE("a push of a core that the server has forgotten is sent again with its keys",
          "[simulation]") {
  // With this seed one worker makes more than the exchanges of kKnownMax cores before the other's first push.
  const v1::Job job = ReadDigits(
      "digits_slim_dp", {"seed=11", "cluster.workers=2", "cluster.servers=1", "train.epochs=0",
                         "train.steps=40", "train.evaluate_every=0", "codec.error_feedback=false",
                         "method={slim_dp: {asynchronous: true, core_every: 2, alpha: 0.2, "
                         "beta: 0.1}}"});
  SimulationOptions options = Cluster();
  options.step_time = 200'000'000;
  options.speed_spread = 0.9;
  options.stub_gradients = GENERATE(true, false);
  const auto simulation = Simulation::Create(job, options, &Digits());
  REQUIRE(simulation.ok());
  while (!(*simulation)->Run(100000)) {
  }
  INFO((*simulation)->outcome().message());
  REQUIRE((*simulation)->outcome().ok());
  const Json report = Json::parse((*simulation)->Report());
  CHECK(report["steps"] == 40);
  CHECK(report["refused_pushes"] == 0);
  // Every second push is of all entries, the others are of a fifth; one goes twice, then behind the keys.
  const auto& slices = (*simulation)->servers()[0]->shard().slices();
  const int64_t part = 4 * (slices.size / 5);
  const int64_t pushed = report["traffic"]["push_payload_bytes"];
  const int64_t again = pushed - 2 * 20 * (part + slices.bytes());
  CHECK(again > part);
  CHECK(again <= part + (slices.size + 7) / 8);
  CHECK((*simulation)->Status().servers(0).counters().push_payload_bytes() ==
        static_cast<uint64_t>(pushed));
}

TEST_CASE("stub gradients are refused where a fixed tau would decide what is sent",
          "[simulation]") {
  SimulationOptions options = Cluster();
  options.stub_gradients = true;
  const absl::Status status =
      Simulation::Create(ReadDigits("digits", {"codec={push: {threshold: {tau: 0.5}}}"}), options,
                         &Digits())
          .status();
  CHECK(absl::IsInvalidArgument(status));
  CHECK(status.message() ==
        "simulation: codec.push.threshold.tau is 0.5 beside stub gradients, want 0, as nothing "
        "says how many entries would reach it; give threshold.density in its place, or simulate "
        "the mathematics, too");
  const v1::Job led =
      ReadDigits("digits", {"codec={push: {threshold: {density: 0.5}}}", "train.epochs=1"});
  CHECK(Simulate(led, options).outcome.ok());
}

TEST_CASE("hundreds of stub workers make every exchange under every policy", "[simulation]") {
  const std::string name = GENERATE(from_range(std::begin(kJobs), std::end(kJobs)));
  CAPTURE(name);
  SimulationOptions options = Cluster();
  options.speed_spread = 0.5;
  options.step_jitter = 0.5;
  options.stub_gradients = true;
  // Each has a neuron of every layer, where these are dealt.
  const int workers = name.find("digits_ist") == 0 ? 90 : name == "digits_decentralized" ? 40 : 400;
  std::vector<std::string> overrides = Size(name, workers, 4);
  for (const char* more :
       {"train.batch_size=2", "train.epochs=0", "train.steps=40", "train.evaluate_every=0"}) {
    overrides.push_back(more);
  }
  if (name == "digits_ist_tail") overrides.push_back("method.ist.tail_steps=20");
  const v1::Job job = ReadDigits(name, overrides);
  const Result result = Simulate(job, options);
  CHECK(result.outcome.ok());
  CHECK(result.report["steps"] == 40);
  CHECK(result.report["examples"] == workers * 40 * 2);
}

TEST_CASE("a job that is drained evaluates and ends early", "[simulation]") {
  const std::string name = GENERATE("digits", "digits_async", "digits_ssp", "digits_ist",
                                    "digits_slim_dp", "digits_layers");
  const auto simulation = Simulation::Create(ReadDigits(name), Cluster(), &Digits());
  REQUIRE(simulation.ok());
  REQUIRE_FALSE((*simulation)->Run(1500));
  (*simulation)->Drain("enough");
  while (!(*simulation)->Run(100000)) {
  }
  CHECK((*simulation)->outcome().ok());
  const Json report = Json::parse((*simulation)->Report());
  CHECK(report["steps"].get<int>() > 0);
  CHECK(report["steps"].get<int>() < 500);
  CHECK(report["history"].size() >= 1);
}

TEST_CASE("a simulation that is given up in the middle leaves nothing behind", "[simulation]") {
  SimulationOptions options = Cluster();
  options.fail_rate = 5000;
  const auto simulation =
      Simulation::Create(ReadDigits("digits_async", {"cluster.workers=8"}), options, &Digits());
  REQUIRE(simulation.ok());
  CHECK_FALSE((*simulation)->Run(1500));
  CHECK((*simulation)->exchanges() > 0);
}

TEST_CASE("options out of range are refused", "[simulation]") {
  const v1::Job job = ReadDigits("digits");
  SimulationOptions options = Cluster();
  options.speed_spread = 1;
  CHECK(absl::IsInvalidArgument(Simulation::Create(job, options, &Digits()).status()));
  options = Cluster();
  options.latency = -1;
  CHECK(absl::IsInvalidArgument(Simulation::Create(job, options, &Digits()).status()));
  options = Cluster();
  options.step_time = 1000 * 3600 * kNanosPerSecond;
  const absl::Status status = Simulation::Create(job, options, &Digits()).status();
  CHECK(absl::IsInvalidArgument(status));
  CHECK(status.message() == "simulation: step time is 1000h, want at most 24h");
  for (SimNanos SimulationOptions::*length :
       {&SimulationOptions::step_time, &SimulationOptions::latency,
        &SimulationOptions::message_cost}) {
    options = Cluster();
    options.*length = std::numeric_limits<SimNanos>::max();
    CHECK(absl::IsInvalidArgument(Simulation::Create(job, options, &Digits()).status()));
  }
  options = Cluster();
  options.restart_after = std::numeric_limits<SimNanos>::max();
  CHECK(absl::IsInvalidArgument(Simulation::Create(job, options, &Digits()).status()));
}

TEST_CASE("the longest steps and the slowest links that are taken end in words", "[simulation]") {
  const v1::Job job =
      ReadDigits("digits", {"train.epochs=1", "train.batch_size=600", "cluster.lease_timeout=6m"});
  SimulationOptions options = Cluster();
  options.step_time = 24 * 3600 * kNanosPerSecond;
  options.stub_gradients = true;
  // Ten times the lease is the most that a first step may take.
  CHECK(absl::IsAborted(Simulate(job, options).outcome));
  options.step_time = 54 * 60 * kNanosPerSecond;
  CHECK(Simulate(job, options).outcome.ok());
  options = Cluster();
  options.bandwidth = 1;
  options.stub_gradients = true;
  const Result slow = Simulate(ReadDigits("digits", {"train.epochs=1"}), options);
  CHECK(!slow.outcome.ok());
  // Also of what the simulation alone has found.
  CHECK(slow.report["outcome"] == "failed");
  CHECK(slow.report["failure"] == std::string(slow.outcome.message()));
}

TEST_CASE("more workers than neurons of a layer are refused", "[simulation]") {
  v1::Job job = ReadDigits("digits_ist");
  // A job file cannot say so.
  job.mutable_cluster()->set_workers(97);
  const absl::Status status = Simulation::Create(job, Cluster(), &Digits()).status();
  CHECK(absl::IsInvalidArgument(status));
  CHECK(status.message() ==
        "simulation: workers are 97, want at most 96, the neurons of the least hidden layer, which "
        "are dealt to them");
}

}  // namespace
}  // namespace tessera
