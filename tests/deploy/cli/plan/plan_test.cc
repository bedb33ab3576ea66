// What `tessera plan` predicts, against whole simulated jobs whose mathematics is left out.
#include "deploy/cli/plan/plan.h"

#include <catch2/catch.hpp>
#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/log.h"
#include "common/config/job_reader.h"
#include "deploy/cli/plan/exchange_time.h"
#include "deploy/cli/plan/stanza_models.h"
#include "deploy/simulate/simulation.h"
#include "worker/data/dataset.h"
#include "worker/data/load_datasets.h"

namespace tessera {
namespace {

constexpr char kJob[] = "deploy/jobs/digits.yaml";
constexpr double kStep = 2e-3;
// Short: an epoch of many workers is a few steps here, and at its begin each asks the coordinator.
constexpr double kLatency = 1e-5;

PlanQuestion Question(int workers, int servers, double bandwidth) {
  PlanQuestion question;
  question.job_path = kJob;
  // Wide enough that a message's head does not count.
  question.overrides = {
      "model.layers=[{linear: {units: 512, bias: false}}, {batch_norm: {affine: false}}, relu, "
      "{linear: {units: 512, bias: false}}, {batch_norm: {affine: false}}, relu, "
      "{linear: {units: 10, bias: false}}]"};
  question.servers = servers;
  question.machines = {workers, bandwidth, kLatency, 4e9, 1e9};
  question.step_seconds = kStep;
  question.step_seconds_of_subnets = kStep;
  return question;
}

const PlannedMethod& Find(const std::vector<PlannedMethod>& all, const std::string& name) {
  const auto found =
      std::find_if(all.begin(), all.end(), [&](const PlannedMethod& m) { return m.name == name; });
  REQUIRE(found != all.end());
  return *found;
}

// Seconds of a step, of a job of so many.
double Simulated(const PlanQuestion& question, const std::string& method, int64_t steps) {
  std::vector<std::string> overrides = question.overrides;
  overrides.push_back(absl::StrCat("method={", method, "}"));
  overrides.push_back(absl::StrCat("cluster.workers=", question.machines.workers));
  overrides.push_back(absl::StrCat("cluster.servers=", *question.servers));
  overrides.push_back(absl::StrCat("train.steps=", steps));
  overrides.push_back("train.evaluate_every=1000000");
  SetLogLevel(LogLevel::kError);
  const JobReading reading = ReadJobFile(kJob, overrides, JobOptions{});
  INFO(FormatJobErrors(reading.errors));
  REQUIRE(reading.ok());
  const ModelShape shape = *ShapeOf(reading.job.model());
  const Datasets data = *LoadDatasets(reading.job.data(), EndsOf(reading.job.model(), shape));
  SimulationOptions options;
  options.bandwidth = static_cast<int64_t>(question.machines.bandwidth);
  options.latency = static_cast<SimNanos>(kLatency * 1e9);
  options.step_time = static_cast<SimNanos>(kStep * 1e9);
  options.stub_gradients = true;
  auto simulation = Simulation::Create(reading.job, options, &data);
  REQUIRE(simulation.ok());
  while (!(*simulation)->Run(1000)) {
  }
  REQUIRE((*simulation)->outcome().ok());
  const v1::JobStatus status = (*simulation)->Status();
  return status.train_seconds() / static_cast<double>(steps);
}

struct Compared {
  const char* method;
  std::string keys;
  int64_t exchanges;
};

std::vector<Compared> Methods(int workers) {
  const std::string half = absl::StrCat("pushes: ", (workers + 1) / 2);
  return {{"data_parallel", "", 60}, {"local_sgd", "", 60}, {"diloco", "", 60},
          {"async_sgd", "", 200},    {"ssp", "", 200},      {"softsync", half, 200},
          {"quant_dp", "", 60},      {"ist", "", 60},       {"slim_dp", "", 200}};
}

// Planned over simulated.
double Ratio(const PlanQuestion& question, const Compared& compared) {
  const std::vector<PlannedMethod> all = PlanMethods(question);
  const PlannedMethod& planned = Find(all, compared.method);
  REQUIRE(planned.refused == "");
  const double simulated =
      Simulated(question, absl::StrCat(compared.method, ": {", compared.keys, "}"),
                compared.exchanges * planned.local_steps);
  return planned.step_seconds / simulated;
}

TEST_CASE("where nothing overlaps a step takes what the simulated one does", "[plan]") {
  for (const double bandwidth : {1e7, 1e8, 1e9}) {
    for (const Compared& compared : Methods(1)) {
      INFO(compared.method << " at " << bandwidth);
      CHECK(Ratio(Question(1, 1, bandwidth), compared) == Approx(1).epsilon(0.04));
    }
  }
}

TEST_CASE("without a limit of the links only latency, computing and folding are left", "[plan]") {
  for (const Compared& compared : Methods(8)) {
    INFO(compared.method);
    CHECK(Ratio(Question(8, 4, 0), compared) == Approx(1).epsilon(0.08));
  }
}

TEST_CASE("many workers that wait for nobody keep a server's link busy", "[plan]") {
  for (const int servers : {1, 2}) {
    for (const Compared& compared : Methods(16)) {
      const std::string method = compared.method;
      if (method != "async_sgd" && method != "softsync") continue;
      INFO(method << " " << servers);
      CHECK(Ratio(Question(16, servers, 1e7), compared) == Approx(1).epsilon(0.08));
    }
  }
}

TEST_CASE("fragments take as long as simulated ones, waited for and beside the next steps",
          "[plan]") {
  for (const char* const keys : {"", ", delay: 2", ", delay: 5"}) {
    PlanQuestion question = Question(1, 1, 1e8);
    const std::string method = absl::StrCat("diloco: {local_steps: 40, fragments: 8", keys, "}");
    question.overrides.push_back(absl::StrCat("method={", method, "}"));
    const std::vector<PlannedMethod> all = PlanMethods(question);
    const PlannedMethod& planned = Find(all, "diloco");
    INFO(keys);
    REQUIRE(planned.refused == "");
    CHECK(planned.local_steps == 5);
    CHECK(planned.step_seconds / Simulated(question, method, 600) == Approx(1).epsilon(0.04));
  }
}

TEST_CASE("the least local steps that reach a utilisation are said", "[plan]") {
  PlanQuestion question = Question(4, 2, 1e7);
  question.utilisation = 0.75;
  question.overrides.push_back("method={diloco: {local_steps: 40, fragments: 8}}");
  for (const PlannedMethod& planned : PlanMethods(question)) {
    INFO(planned.name);
    const bool has_steps = planned.name == "local_sgd" || planned.name == "diloco" ||
                           planned.name == "ist" || planned.name == "ssp";
    if (has_steps) REQUIRE(planned.utilising_steps > 1);
    if (planned.name == "data_parallel") CHECK(planned.utilising_steps == 0);
    if (planned.utilising_steps <= 1) continue;
    // Whole cycles of all fragments.
    const int unit = planned.is_own ? 8 : 1;
    CHECK(planned.utilising_steps % unit == 0);
    PlanQuestion exactly = question;
    exactly.utilisation.reset();
    exactly.local_steps = static_cast<int>(planned.utilising_steps);
    CHECK(Find(PlanMethods(exactly), planned.name).computing >= 0.75);
    exactly.local_steps = static_cast<int>(planned.utilising_steps - unit);
    CHECK(Find(PlanMethods(exactly), planned.name).computing < 0.75);
  }
}

// Simulated links carry one message after the other, so that the first worker goes on before the last one has its
// values; planned ones are shared, as connections share them (bench/network/planned.py measures real ones).
TEST_CASE("elsewhere the two are less than a factor of two apart", "[plan]") {
  for (const int workers : {2, 8}) {
    for (const int servers : {1, 2, 8}) {
      for (const Compared& compared : Methods(workers)) {
        INFO(compared.method << " K=" << workers << " S=" << servers);
        const double ratio = Ratio(Question(workers, servers, 1e8), compared);
        CHECK(ratio > 0.5);
        CHECK(ratio < 1.9);
      }
    }
  }
}

TEST_CASE("more servers, faster links and fewer exchanges never take longer", "[plan]") {
  const auto seconds = [](const PlanQuestion& question, const char* method) {
    const std::vector<PlannedMethod> all = PlanMethods(question);
    return Find(all, method).step_seconds;
  };
  for (const char* method : {"data_parallel", "async_sgd", "local_sgd", "ist", "slim_dp"}) {
    INFO(method);
    const PlanQuestion few = Question(8, 2, 1e8);
    PlanQuestion fewer_exchanges = few;
    fewer_exchanges.local_steps = 200;
    CHECK(seconds(Question(8, 4, 1e8), method) <= seconds(few, method));
    CHECK(seconds(Question(8, 2, 1e9), method) < seconds(few, method));
    if (std::string(method) != "data_parallel") {
      CHECK(seconds(fewer_exchanges, method) < seconds(few, method));
    }
    // Of subnets more workers have less each.
    const double of_more = seconds(Question(16, 2, 1e8), method);
    CHECK((std::string(method) == "ist" ? of_more < seconds(few, method)
                                        : of_more >= seconds(few, method)));
  }
}

TEST_CASE("a method that the job cannot be trained with says why", "[plan]") {
  PlanQuestion question = Question(600, 2, 1e8);
  const std::vector<PlannedMethod> all = PlanMethods(question);
  CHECK(Find(all, "ist").refused.find("units of the smallest hidden layer") != std::string::npos);
  CHECK(Find(all, "decentralized").refused.find("cluster.servers") != std::string::npos);
  CHECK(Find(all, "data_parallel").refused == "");
  // More than a job file may ask for.
  question.machines.workers = 5000;
  const std::vector<PlannedMethod> more = PlanMethods(question);
  CHECK(Find(more, "async_sgd").rows_per_second > Find(all, "async_sgd").rows_per_second * 0.99);
}

TEST_CASE("an exchange that comes once in a job is dealt to all of its steps", "[plan]") {
  PlanQuestion question = Question(2, 1, 1e6);
  question.overrides.push_back("train.steps=10");
  const std::vector<PlannedMethod> ten = PlanMethods(question);
  const double short_job = Find(ten, "ensemble").step_seconds;
  question.overrides.back() = "train.steps=1000";
  const std::vector<PlannedMethod> thousand = PlanMethods(question);
  CHECK(short_job > 10 * Find(thousand, "ensemble").step_seconds);
  CHECK(Find(ten, "ensemble").local_steps == 0);
  // Of so many epochs of data that nobody has counted.
  question.overrides.back() = "train.epochs=3";
  CHECK(Find(PlanMethods(question), "ensemble").unknown.find("train.steps") != std::string::npos);
  question.train_rows = 1347;
  CHECK(Find(PlanMethods(question), "ensemble").unknown == "");
  // Rows of one's own are shared with nobody: a long job exchanges as rarely as one of so many more rows.
  question.overrides.push_back("data.partition=local");
  const double own = Find(PlanMethods(question), "ensemble").step_seconds;
  question.overrides.back() = "data.partition=full";
  CHECK(Find(PlanMethods(question), "ensemble").step_seconds > 1.5 * own);
  question.train_rows *= question.machines.workers;
  CHECK(Find(PlanMethods(question), "ensemble").step_seconds == own);
}

// Of two seconds of a minibatch half a second is the front's; links of 100 bytes per second.
HalvesWork Halves() {
  HalvesWork work;
  work.front = {0.5, 10, 20, 40, 0.5};
  work.linear = {1.5, 100, 200, 400, 0.6};
  work.activation_bytes = 30;
  work.gradient_bytes = 20;
  return work;
}

TEST_CASE("a step of halves takes what the published model says, and an exchange of both",
          "[plan][layers]") {
  const HalvesWork work = Halves();
  // t_c = T_c + (n_c / n_f) T_f with six and two workers, and nothing that takes time beside.
  const CycleTime computing = TimeOf(work, {8, 0, 0, 0, 0}, 2);
  CHECK(computing.seconds == Approx(0.5 + 3 * 1.5));
  CHECK(computing.limit == Limit::kComputing);
  // Of the mean worker, six of which compute half a second, and two 4.5.
  CHECK(computing.computing == Approx((6 * 0.5 + 2 * 4.5) / 8 / 5));
  // 2 n_c A S / (n_f R), and both halves' parameters on a server's link: 0.5 of 6 x 10 and 0.6 of 2 x 100 bytes there.
  const CycleTime links = TimeOf(work, {8, 100, 0, 0, 0}, 2);
  CHECK(links.seconds == Approx(5 + 3 * (0.3 + 0.2) + (30 + 120) / 100.0 + (60 + 240) / 100.0));
  // With seven and one a worker's own link is busier than a server's: 35 + 60 bytes there.
  CHECK(TimeOf(work, {8, 100, 0, 0, 0}, 1).seconds ==
        Approx(0.5 + 7 * 1.5 + 7 * 0.5 + std::max(100.0, 35 + 60.0) / 100 +
               std::max(200.0, 70 + 120.0) / 100));
  // Two round trips. All pushes are folded while they come, and the last one behind them.
  CHECK(TimeOf(work, {8, 0, 0.25, 0, 0}, 2).seconds == Approx(5 + 1));
  CHECK(TimeOf(work, {8, 0, 0, 1000, 0}, 2).seconds ==
        Approx(5 + (6 * 20 + 2 * 240 + 240) / 1000.0));
  // One of each.
  CHECK(TimeOf(work, {2, 100, 0, 0, 0}, 1).seconds == Approx(2 + 0.5 + 1 + 2));
}

TEST_CASE("a step of halves waits for the linear worker that has most batches", "[plan][layers]") {
  HalvesWork work;
  work.front.batch_seconds = 1;
  work.linear.batch_seconds = 0.3;
  // Five batches are two of one worker's; the mean's five thirds would make a step that none takes.
  CHECK(TimeOf(work, {8, 0, 0, 0, 0}, 3).seconds == Approx(1.6));
  CHECK(TimeOf(work, {8, 0, 0, 0, 0}, 3).computing == Approx(5 * 1.3 / 8 / 1.6));
  CHECK(TimeOf(work, {8, 0, 0, 0, 0}, 2).seconds == Approx(1.9));
  // 6 / 1.9 batches a second are more than 5 / 1.6 and 4 / 1.3.
  CHECK(BestLinearWorkers(work, {8, 0, 0, 0, 0}, 100) == 2);
  // Its link, too: two times 50 bytes.
  work.activation_bytes = 30;
  work.gradient_bytes = 20;
  CHECK(TimeOf(work, {8, 100, 0, 0, 0}, 3).seconds == Approx(1.6 + 2 * 0.5));
}

TEST_CASE("as many workers are linear as train most", "[plan][layers]") {
  // n_c / t of eight: 7 / (0.5 + 10.5), 6 / 5, 5 / 3.5, 4 / 2.
  CHECK(BestLinearWorkers(Halves(), {8, 0, 0, 0, 0}, 100) == 4);
  CHECK(BestLinearWorkers(Halves(), {8, 0, 0, 0, 0}, 3) == 3);
  // Where the front is nearly all of it: 7 / (1.5 + 7 x 0.1), 6 / (1.5 + 3 x 0.1), 5 / (1.5 + 2 x 0.1).
  HalvesWork work;
  work.front.batch_seconds = 1.5;
  work.linear.batch_seconds = 0.1;
  CHECK(BestLinearWorkers(work, {8, 0, 0, 0, 0}, 100) == 2);
  work.linear.batch_seconds = 0.01;
  CHECK(BestLinearWorkers(work, {8, 0, 0, 0, 0}, 100) == 1);
  // Activations make one worker's link the narrow one.
  work.activation_bytes = work.gradient_bytes = 100;
  CHECK(BestLinearWorkers(work, {8, 100, 0, 0, 0}, 100) == 4);
  CHECK(BestLinearWorkers(work, {2, 0, 0, 0, 0}, 100) == 1);
}

TEST_CASE("a planned step of halves takes what the simulated one does", "[plan][layers]") {
  PlanQuestion question = Question(4, 2, 0);
  question.overrides = {"model.input=[1, 8, 8]",
                        "model.layers=[{conv2d: {channels: 16, kernel: 3, padding: 1}}, relu, "
                        "{linear: {units: 512}}, relu, {linear: {units: 10}}]"};
  // Of the last one linear worker has two batches, and the other one.
  for (const auto& [front, linear] : {std::pair(3, 1), std::pair(2, 2), std::pair(3, 2)}) {
    for (const double bandwidth : {0.0, 1e7, 1e8}) {
      INFO(front << " and " << linear << " at " << bandwidth);
      question.machines.workers = front + linear;
      question.machines.bandwidth = bandwidth;
      const std::string keys = absl::StrCat("linear_workers: ", linear);
      question.overrides.push_back(absl::StrCat("method={layer_separation: {", keys, "}}"));
      const std::vector<PlannedMethod> all = PlanMethods(question);
      question.overrides.pop_back();
      const PlannedMethod& planned = Find(all, "layer_separation");
      REQUIRE(planned.refused == "");
      CHECK(planned.is_own);
      CHECK(planned.halves->linear_workers == linear);
      CHECK(planned.local_steps == 1);
      const double simulated =
          Simulated(question, absl::StrCat("layer_separation: {", keys, "}"), 40);
      const double ratio = planned.step_seconds / simulated;
      // Parameters behind the cut are on their way while the front is still computed.
      CHECK(ratio > (bandwidth == 0 ? 0.97 : 0.8));
      CHECK(ratio < (bandwidth == 0 ? 1.15 : 1.7));
    }
  }
  // Of another method's job as many as are best.
  const PlannedMethod best = Find(PlanMethods(question), "layer_separation");
  CHECK(best.halves->linear_workers == best.halves->best_linear_workers);
  CHECK(best.rows_per_second == best.halves->best_rows_per_second);
}

TEST_CASE("the paper's models of halves and of servers are those of its section 4",
          "[plan][layers]") {
  CHECK(AllReduceRounds(1) == 0);
  CHECK(AllReduceRounds(2) == 1);
  CHECK(AllReduceRounds(3) == 3);
  CHECK(AllReduceRounds(4) == 2);
  CHECK(AllReduceRounds(10) == 5);
  CHECK(AllReduceRounds(16) == 4);
  // AlexNet with 10 + 1 workers of 64 rows at 10 Gb/s, as bench/papers/stanza.py has it.
  StanzaQuantities of;
  of.front_seconds = 0.1;
  of.linear_seconds = 0.01;
  of.activations = 9216 * 64;
  of.front_parameters = 2469696;
  of.parameters = 61100840;
  of.rate = 10e9 / 32;
  CHECK(StanzaStepSeconds(of, 10, 1) ==
        Approx(0.1 + 10 * 0.01 + 2 * 10 * 9216 * 64 / of.rate + 2469696 * 5 / of.rate));
  CHECK(StanzaStepSeconds(of, 8, 2) ==
        Approx(0.1 + 4 * 0.01 + 2 * 4 * 9216 * 64 / of.rate + 2469696 * 3 / of.rate));
  CHECK(ServerStepSeconds(of, 10, 1) == Approx(2 * 10 * 61100840 / of.rate + 0.11));
  CHECK(ServerStepSeconds(of, 10, 5) == Approx(2 * 2 * 61100840 / of.rate + 0.11));
  // n_c / t of four: 3 / t, 2 / t.
  const double three = 3 / StanzaStepSeconds(of, 3, 1), two = 2 / StanzaStepSeconds(of, 2, 2);
  CHECK(BestLinearByStanza(of, 4) == (two > three ? 2 : 1));
  of.linear_seconds = 10;
  CHECK(BestLinearByStanza(of, 4) == 2);
  of.front_seconds = of.linear_seconds = of.activations = 0;
  CHECK(BestLinearByStanza(of, 20) == 4);  // 16 in front are averaged in 4 rounds.
}

TEST_CASE("servers beside the workers of their half spare the links", "[plan][layers]") {
  PlanQuestion question = Question(4, 4, 1e7);
  question.machines.latency = 0;
  question.step_seconds = 0.001;
  question.overrides = {"model.input=[1, 8, 8]",
                        "model.layers=[{conv2d: {channels: 16, kernel: 3, padding: 1}}, relu, "
                        "{linear: {units: 512}}, relu, {linear: {units: 10}}]"};
  const auto planned = [&question](int linear_servers) {
    PlanQuestion with = question;
    with.overrides.push_back(
        absl::StrCat("method={layer_separation: {linear_servers: ", linear_servers, "}}"));
    return Find(PlanMethods(with), "layer_separation");
  };
  const PlannedMethod apart = planned(0), beside = planned(1);
  const double front = 16 * 9 + 16, back = 512.0 * 16 * 64 + 512 + 512 * 10 + 10;
  const double crossing = 32 * 4 * (2 * 16 * 64 + 1);
  CHECK(apart.halves->linear_bytes == Approx(8 * back + 3 * crossing));
  CHECK(beside.halves->linear_bytes == Approx(3 * crossing));
  CHECK(beside.halves->front_bytes == Approx(8 * front * 2 / 3 + crossing));
  // The linear worker's push and pull were what took the time.
  CHECK(beside.step_seconds < 0.5 * apart.step_seconds);
  // Two linear workers and a server: one of them has it beside it, and one does not.
  question.overrides.push_back("method={layer_separation: {linear_workers: 2, linear_servers: 1}}");
  const PlannedMethod shared = Find(PlanMethods(question), "layer_separation");
  CHECK(shared.halves->linear_bytes == Approx(8 * back + crossing));
}

TEST_CASE("the cut that trains most rows is found", "[plan][layers]") {
  // 64 x 1024, 1024 x 1024, 1024 x 64, 64 x 10: behind the first layer 1024 values cross for each row, behind the third
  // 64.
  PlanQuestion question = Question(4, 1, 1e7);
  question.overrides = {
      "model.layers=[{linear: {units: 1024}}, relu, {linear: {units: 1024}}, relu, "
      "{linear: {units: 64}}, relu, {linear: {units: 10}}]"};
  const auto planned = [&question](const std::string& cut) {
    PlanQuestion with = question;
    with.overrides.push_back("method={layer_separation: {cut: " + cut + "}}");
    return Find(PlanMethods(with), "layer_separation");
  };
  // By trying all of them.
  std::string best;
  double most = 0;
  for (const char* const cut : {"layers.2", "layers.4", "layers.6"}) {
    const PlannedMethod method = planned(cut);
    REQUIRE(method.refused == "");
    if (method.halves->best_rows_per_second <= most) continue;
    most = method.halves->best_rows_per_second;
    best = cut;
  }
  for (const char* const cut : {"layers.2", "layers.4", "layers.6"}) {
    CAPTURE(cut);
    const PlannedMethod method = planned(cut);
    CHECK(method.halves->best.cut == best);
    CHECK(method.halves->best.rows_per_second == Approx(most));
    CHECK((method.halves->best.rows_per_second > method.halves->best_rows_per_second) ==
          (cut != best));
  }
}

TEST_CASE("what a job leaves open is planned as the best that there is", "[plan][layers]") {
  const auto question = [](const std::string& keys) {
    PlanQuestion with = Question(4, 1, 1e7);
    with.overrides = {
        "model.layers=[{linear: {units: 1024}}, relu, {linear: {units: 1024}}, relu, "
        "{linear: {units: 64}}, relu, {linear: {units: 10}}]",
        "method={layer_separation: {" + keys + "}}"};
    return with;
  };
  const auto ranked = [&](const std::string& keys) {
    const PlanQuestion with = question(keys);
    return RankHalves(with, ReadPlannedJob(with, MayBeOpen({false})).job);
  };
  const std::vector<HalvesChoice> all = ranked("cut: auto, linear_workers: auto");
  REQUIRE(all.size() == 3);
  CHECK(all[0].rows_per_second > all[1].rows_per_second);
  CHECK(all[1].rows_per_second > all[2].rows_per_second);
  // One key alone: the other one is the job's.
  for (const HalvesChoice& choice : ranked("cut: auto, linear_workers: 2")) {
    CHECK(choice.linear_workers == 2);
    const std::vector<HalvesChoice> same = ranked("cut: " + choice.cut + ", linear_workers: 2");
    REQUIRE(same.size() == 1);
    CHECK(same[0].rows_per_second == choice.rows_per_second);
  }
  const std::vector<HalvesChoice> counts = ranked("cut: layers.4, linear_workers: auto");
  REQUIRE(counts.size() == 1);
  CHECK(counts[0].cut == "layers.4");
  // The plan's row is that of the job with what is chosen.
  const PlannedMethod open =
      Find(PlanMethods(question("cut: auto, linear_workers: auto")), "layer_separation");
  const PlannedMethod closed = Find(
      PlanMethods(
          question(absl::StrCat("cut: ", all[0].cut, ", linear_workers: ", all[0].linear_workers))),
      "layer_separation");
  CHECK(open.halves->is_chosen);
  CHECK_FALSE(closed.halves->is_chosen);
  CHECK(open.halves->cut == closed.halves->cut);
  CHECK(open.rows_per_second == closed.rows_per_second);
  CHECK(open.rows_per_second == Approx(all[0].rows_per_second));
}

TEST_CASE("a model that cannot be cut is not planned in halves", "[plan][layers]") {
  CHECK(Find(PlanMethods(Question(8, 2, 1e8)), "layer_separation").refused.find("convolution") !=
        std::string::npos);
  PlanQuestion alone = Question(1, 1, 1e8);
  alone.overrides = {"model.input=[1, 8, 8]",
                     "model.layers=[{conv2d: {channels: 4, kernel: 3}}, {linear: {units: 10}}]"};
  CHECK(Find(PlanMethods(alone), "layer_separation").refused.find("linear_workers") !=
        std::string::npos);
}

TEST_CASE("between workers peers are pushed to while the own server folds and answers", "[plan]") {
  ExchangeWork work;
  work.local_steps = 2;
  work.step_seconds = 1;
  work.push_bytes = 300;  // to three peers
  work.pull_bytes = 1000;
  work.fold_bytes = 1000;
  work.waits_for_all = false;
  work.between_workers = true;
  // Peers: 2 x 0.5 + 300 / 100 seconds. The own server: 1000 / 1000 + 1000 / 2000.
  const CycleTime links = TimeOf(work, {4, 100, 0.5, 1000, 2000});
  CHECK(links.seconds == Approx(2 + 4));
  CHECK(links.limit == Limit::kWorkerLinks);
  CHECK(links.computing == Approx(2.0 / 6));
  const CycleTime memory = TimeOf(work, {4, 1e6, 0, 1000, 100});
  CHECK(memory.seconds == Approx(2 + 1 + 10));
  CHECK(memory.limit == Limit::kMemory);
  // Four pushes a cycle are more than a server folds.
  const CycleTime folding = TimeOf(work, {4, 1e6, 0, 100, 1e6});
  CHECK(folding.seconds == Approx(40));
  CHECK(folding.limit == Limit::kFolding);
  // Alone there is no peer.
  CHECK(TimeOf(work, {1, 100, 0.5, 1000, 2000}).seconds == Approx(2 + 1.5));
}

TEST_CASE("workers that wait for nobody wait at a queue as its length tells", "[plan]") {
  // One server whose link alone takes time, a second each way: with two workers each finds half a push and half a
  // pull before its own.
  ExchangeWork work;
  work.push_bytes = work.pull_bytes = 100;
  work.waits_for_all = false;
  CHECK(TimeOf(work, {1, 100, 0, 0, 0}).seconds == Approx(2));
  CHECK(TimeOf(work, {2, 100, 0, 0, 0}).seconds == Approx(3));
  CHECK(TimeOf(work, {100, 100, 0, 0, 0}).seconds == Approx(101));
  CHECK(TimeOf(work, {2, 100, 0, 0, 0}).limit == Limit::kWorkerLinks);
  CHECK(TimeOf(work, {100, 100, 0, 0, 0}).limit == Limit::kServerLinks);
}

TEST_CASE("the tail of subnets is the whole model's", "[plan]") {
  PlanQuestion question = Question(4, 2, 1e7);
  // With a norm behind the last sum, without which a tail is refused.
  std::string& layers = question.overrides[0];
  layers.insert(layers.size() - 1, ", {batch_norm: {affine: false}}");
  question.overrides.push_back("method={ist: {local_steps: 10, tail_steps: 0}}");
  question.overrides.push_back("train.steps=400");
  const auto planned = [&question](const char* tail) {
    question.overrides.push_back(std::string("method.ist.tail_steps=") + tail);
    return Find(PlanMethods(question), "ist");
  };
  const PlannedMethod none = planned("0"), some = planned("100");
  CHECK(none.push.certainty == TrafficForecast::Certainty::kExact);
  CHECK(some.push.certainty == TrafficForecast::Certainty::kAbout);
  question.local_steps = 10;
  const double whole = Find(PlanMethods(question), "local_sgd").step_seconds;
  CHECK(some.step_seconds == Approx(0.75 * none.step_seconds + 0.25 * whole));
}

}  // namespace
}  // namespace tessera
