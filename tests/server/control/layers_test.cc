// Jobs whose workers train different layers: who may join, and what becomes of one whose half has nobody left.
#include <catch2/catch.hpp>
#include <initializer_list>
#include <string>

#include "absl/strings/str_cat.h"
#include "tests/server/control/rejoin_fixture.h"

namespace tessera {
namespace {

using Catch::Contains;

JobFacts LayerFacts(int front, int linear) {
  JobFacts facts = RejoinFacts();
  facts.servers = 2;
  facts.workers = front + linear;
  facts.front_workers = front;
  return facts;
}

struct Layers : ControlFixture {
  explicit Layers(JobFacts facts) : ControlFixture(facts), workers(facts.workers) {}
  Layers(int front, int linear) : Layers(LayerFacts(front, linear)) {}

  // Rank r is member r + 1.
  void Begin() {
    for (size_t i = 0; i < servers.size(); ++i) REQUIRE(Attach(i).ok());
    for (int rank = 0; rank < workers; ++rank) {
      REQUIRE(Come(rank) == static_cast<uint64_t>(rank) + 1);
    }
    StepAll();
  }

  static v1::JoinRequest Layer(int rank) {
    v1::JoinRequest request = Wish(rank);
    request.set_address(absl::StrCat("host-", rank, ":1"));
    return request;
  }
  // The member that it is from now on.
  uint64_t Come(int rank) {
    const auto reply = Join(Layer(rank));
    REQUIRE(reply.ok());
    return reply->member();
  }

  // Another process of server 1 has come, and the job goes back.
  void ReplaceServer() {
    coordinator->Detach(ShardId(1), servers[1].hello.life(), now);
    servers[1].hello.set_life(4711);
    servers[1].inbox.clear();
    REQUIRE(Attach(1).ok());
    StepAll();
  }

  // So many leases, in which nobody but these members is heard.
  void Pass(double leases, std::initializer_list<uint64_t> heard) {
    for (int i = 0; i < 10 * leases; ++i) {
      Heartbeat();
      for (const uint64_t member : heard) (void)Join(member);
      Tick(coordinator->facts().lease_timeout / 10);
      StepAll();
    }
  }

  std::string Failure() const { return coordinator->Status(now).failure(); }

  int workers;
};

TEST_CASE("a rank that has no layers is refused, whoever chose it", "[layers]") {
  // It waits for its servers.
  Layers job(2, 1);
  for (int rank = 0; rank < 3; ++rank) job.Come(rank);
  const absl::Status refused = job.Join(Layers::Layer(3)).status();
  CHECK(absl::IsInvalidArgument(refused));
  CHECK(refused.message() ==
        "join: rank is 3, want one in [0, 3); which layers a worker trains follows from its rank");
  // Who chooses none may come in the place of one that is gone.
  const absl::Status early = job.Join(Layers::Layer(-1)).status();
  CHECK(absl::IsAlreadyExists(early));
  CHECK_THAT(std::string(early.message()),
             Contains("all 3 ranks are held") && Contains("its lease of 10s"));
  CHECK(job.coordinator->membership().members().all().size() == 3);
  REQUIRE(job.Leave(2, "died").ok());
  CHECK(job.Join(Layers::Layer(-1))->rank() == 1);
}

TEST_CASE("a worker of the linear layers says where the others reach it", "[layers]") {
  Layers job(2, 1);
  CHECK(job.Join(Layers::Wish(0)).ok());
  const absl::Status refused = job.Join(Layers::Wish(2)).status();
  CHECK(absl::IsInvalidArgument(refused));
  CHECK(refused.message() ==
        "join: address is empty, want host:port where the other workers reach it (tessera-worker "
        "--listen); rank 2 trains the linear layers");
  // A rank that is the first free one is no other.
  REQUIRE(job.Join(Layers::Wish(1)).ok());
  CHECK_THAT(std::string(job.Join(Layers::Wish(-1)).status().message()),
             Contains("address is empty"));
  v1::JoinRequest long_winded = Layers::Layer(2);
  long_winded.set_address(std::string(1025, 'a'));
  CHECK_THAT(std::string(job.Join(long_winded).status().message()),
             Contains("address is 1025 bytes, want at most 1024"));
  CHECK(job.Join(Layers::Layer(2)).ok());
}

TEST_CASE("workers are told who counts, and where each is reached", "[layers]") {
  Layers job(2, 1);
  job.Begin();
  const auto check = [&](const v1::WorkerList& list, std::initializer_list<int> ranks) {
    CHECK(list.generation() == job.coordinator->membership().generation().value());
    REQUIRE(list.workers_size() == static_cast<int>(ranks.size()));
    int i = 0;
    for (const int rank : ranks) {
      CHECK(list.workers(i).member() == static_cast<uint64_t>(rank) + 1);
      CHECK(list.workers(i).rank() == static_cast<uint32_t>(rank));
      CHECK(list.workers(i++).address() == absl::StrCat("host-", rank, ":1"));
    }
  };
  check(job.Join(1)->worker_list(), {0, 1, 2});
  v1::RenewRequest renewal;
  renewal.set_member(3);
  const v1::WorkerList known = job.Renew(renewal)->worker_list();
  check(known, {0, 1, 2});
  renewal.set_workers_known(known.generation());
  CHECK_FALSE(job.Renew(renewal)->has_worker_list());
  REQUIRE(job.Leave(1, "died").ok());
  check(job.Renew(renewal)->worker_list(), {1, 2});

  // Also by a coordinator that goes on in this one's place.
  job.Restart();
  renewal.clear_workers_known();
  check(job.Renew(renewal)->worker_list(), {1, 2});
}

TEST_CASE("one that comes in the place of a lost one is in the list with its first step",
          "[layers]") {
  Layers job(2, 2);
  job.Begin();
  for (FakeServer& server : job.servers) server.collecting = 5;
  for (const uint64_t member : {1, 2, 3, 4}) REQUIRE(job.Renew(member, 4, 4).ok());
  // All ranks are held.
  CHECK(absl::IsAlreadyExists(job.Join(Layers::Layer(-1)).status()));
  REQUIRE(job.Leave(4, "died").ok());
  v1::JoinRequest another = Layers::Layer(3);
  another.set_life(77);
  REQUIRE(job.Join(another)->member() == 5);
  job.StepAll();
  const auto admitted = job.Join(5);
  REQUIRE(admitted->admitted());
  const v1::WorkerList& list = admitted->worker_list();
  REQUIRE(list.workers_size() == 4);
  CHECK(list.workers(3).member() == 5);
  CHECK(list.workers(3).first_step() == admitted->first_step());
  CHECK(list.workers(3).first_step() >= 4);
  CHECK(list.workers(2).first_step() == 0);
  CHECK(list.former_size() == 0);

  // It stays in the list when it is gone, until all have come to its first step.
  REQUIRE(job.Leave(5, "died").ok());
  const auto former = [&] {
    return job.coordinator->membership().halves().WorkerListText().former();
  };
  REQUIRE(former().size() == 1);
  CHECK(former().Get(0).member() == 5);
  CHECK(former().Get(0).rank() == 3);
  const uint64_t first = former().Get(0).first_step();
  for (const uint64_t member : {1, 2, 3}) REQUIRE(job.Renew(member, first, first).ok());
  CHECK(former().size() == 1);
  job.Restart();
  CHECK(former().size() == 1);
  for (const uint64_t member : {1, 2, 3}) REQUIRE(job.Renew(member, first + 1, first + 1).ok());
  CHECK(former().empty());
}

TEST_CASE("an epoch is cut for those who have data", "[layers]") {
  JobFacts facts = LayerFacts(2, 1);
  facts.steps = 0;
  facts.epochs = 5;
  Layers job(facts);
  job.Begin();
  v1::BeginEpochRequest request;
  const auto begin = [&](uint64_t member, uint64_t epoch) {
    request.set_member(member);
    request.set_epoch(epoch);
    request.set_step(10 * epoch);
    return job.coordinator->BeginEpoch(request, job.now);
  };
  for (const uint64_t member : {3, 1, 2}) {
    const auto cut = begin(member, 0);
    REQUIRE(cut.ok());
    CHECK(cut->parts() == 2);
    CHECK(cut->steps() == 5);  // 100 rows, by tens, for two
    CHECK(cut->part() == member - 1);
  }
  REQUIRE(job.Leave(1, "died").ok());
  CHECK(begin(3, 1)->parts() == 1);
  REQUIRE(job.Leave(2).ok());
  CHECK_THAT(std::string(begin(3, 2).status().message()),
             Contains("no worker that has data is left"));
}

TEST_CASE("with its last worker lost a half fails the job at once, and by name", "[layers]") {
  const auto [rank, words] = GENERATE(table<int, std::string>(
      {{2, "the linear layers"}, {0, "the layers in front of the linear ones"}}));
  Layers job(rank == 2 ? LayerFacts(2, 1) : LayerFacts(1, 2));
  job.Begin();
  // Of the other half one is enough.
  REQUIRE(job.Leave(2, "died").ok());
  CHECK(job.coordinator->outcome().ok());
  REQUIRE(job.Leave(rank + 1, "its memory is gone").ok());
  CHECK(job.Failure() == absl::StrCat("worker ", rank, " is gone, the last one that trained ",
                                      words,
                                      " (its memory is gone); start the job again, with "
                                      "checkpoint.restore it goes on from its last "
                                      "checkpoint"));
}

TEST_CASE("a half whose last worker falls silent is lost with its lease", "[layers]") {
  JobFacts facts = LayerFacts(1, 1);
  facts.checkpoints = false;
  Layers job(facts);
  job.Begin();
  job.Pass(0.9, {1});
  CHECK(job.coordinator->outcome().ok());
  job.Pass(0.3, {1});
  CHECK_THAT(
      job.Failure(),
      Contains("worker 1 is gone, the last one that trained the linear layers (last heard 1"));
  CHECK_THAT(job.Failure(), Catch::EndsWith("; start the job again"));
}

TEST_CASE("workers that are all asked to end may leave one after the other", "[layers]") {
  Layers job(2, 1);
  job.Begin();
  REQUIRE(job.Leave(3).ok());
  job.Pass(0.5, {1, 2});
  REQUIRE(job.Leave(1).ok());
  job.Pass(0.4, {2});
  REQUIRE(job.Leave(2).ok());
  job.StepAll();
  CHECK(job.coordinator->ended());
  CHECK(job.coordinator->outcome().ok());
}

TEST_CASE("a half whose last worker has left fails the job when others stay for a lease",
          "[layers]") {
  Layers job(2, 1);
  job.Begin();
  REQUIRE(job.Leave(3).ok());
  job.Pass(0.9, {1, 2});
  CHECK(job.coordinator->outcome().ok());
  const bool is_replaced = GENERATE(false, true);
  if (is_replaced) {
    // By a coordinator that nobody has had the time to talk to.
    job.Restart();
    for (int i = 0; i < 2; ++i) REQUIRE(job.Attach(i).ok());
    job.Pass(0.9, {1, 2});
    CHECK(job.coordinator->outcome().ok());
  }
  job.Pass(0.3, {1, 2});
  CHECK(job.Failure() ==
        "worker 2 has left, the last one that trained the linear layers; start the job again, with "
        "checkpoint.restore it goes on from its last checkpoint");
}

TEST_CASE("that one worker of a half has left does not make up for the loss of its last",
          "[layers]") {
  Layers job(1, 2);
  job.Begin();
  REQUIRE(job.Leave(2).ok());
  job.Pass(0.1, {1, 3});
  REQUIRE(job.Leave(3, "died").ok());
  CHECK_THAT(job.Failure(),
             Contains("worker 2 is gone, the last one that trained the linear layers (died)"));
}

TEST_CASE("the last evaluation needs nobody of the other half", "[layers]") {
  JobFacts facts = LayerFacts(2, 1);
  facts.target_accuracy = 0.1;  // So that it is the last.
  Layers job(facts);
  job.Begin();
  for (const uint64_t member : {1, 2, 3}) REQUIRE(job.Renew(member, 1000, 1000).ok());
  const uint64_t lost = GENERATE(1, 3);
  const bool is_standing = GENERATE(false, true);
  if (is_standing) {
    for (const uint64_t member : {1, 2, 3}) REQUIRE(job.Evaluate(member, v1::ARRIVE, 1000).ok());
    REQUIRE(job.coordinator->StateWord() == "evaluating");
  }
  std::vector<uint64_t> left = {1, 2, 3};
  if (lost == 1) {
    REQUIRE(job.Leave(1, "died").ok());
    REQUIRE(job.Leave(2, "died").ok());
    left = {3};
  } else {
    REQUIRE(job.Leave(3, "died").ok());
    left = {1, 2};
  }
  job.StepAll();
  job.answers.clear();
  Evaluate(&job, left, 1000);
  CHECK(job.coordinator->outcome().ok());
  for (const uint64_t member : left) REQUIRE(job.Leave(member).ok());
  job.StepAll();
  CHECK(job.coordinator->ended());
  CHECK(job.coordinator->outcome().ok());
}

TEST_CASE("a drain's evaluation needs nobody of the other half, once all have stopped",
          "[layers]") {
  Layers job(2, 1);
  job.Begin();
  for (FakeServer& server : job.servers) server.collecting = 5;
  for (const uint64_t member : {1, 2, 3}) REQUIRE(job.Renew(member, 4, 4).ok());
  job.coordinator->Drain("test", job.now);
  REQUIRE(job.Renew(1, 4, 4).ok());
  job.StepAll();
  const uint64_t stop = job.Renew(1, 4, 4)->drain_exchange();
  REQUIRE(stop > 4);
  for (const uint64_t member : {1, 2, 3}) REQUIRE(job.Renew(member, 4, 4, stop).ok());
  job.StepAll();
  REQUIRE(job.Renew(1, stop, stop, stop).ok());
  const bool have_stopped = GENERATE(false, true);
  if (have_stopped) REQUIRE(job.Renew(2, stop, stop, stop).ok());
  REQUIRE(job.Leave(3, "died").ok());
  if (!have_stopped) {
    CHECK_THAT(job.Failure(),
               Contains("worker 2 is gone, the last one that trained the linear layers"));
    return;
  }
  job.StepAll();
  Evaluate(&job, {1, 2}, stop);
  for (const uint64_t member : {1, 2}) REQUIRE(job.Leave(member).ok());
  job.StepAll();
  CHECK(job.coordinator->ended());
  CHECK(job.coordinator->outcome().ok());
}

TEST_CASE("an evaluation is made without the other half, but nothing is trained after it",
          "[layers]") {
  JobFacts facts = LayerFacts(2, 1);
  const bool is_last = GENERATE(false, true);
  if (is_last) facts.target_accuracy = 0.1;
  Layers job(facts);
  job.Begin();
  for (const uint64_t member : {1, 2}) REQUIRE(job.Evaluate(member, v1::ARRIVE, 50).ok());
  REQUIRE(job.Leave(3, "died").ok());
  job.StepAll();
  CHECK(job.coordinator->StateWord() == "evaluating");
  job.answers.clear();
  Evaluate(&job, {1, 2}, 50);
  CHECK(job.coordinator->outcome().ok() == is_last);
  if (!is_last) {
    CHECK_THAT(job.Failure(),
               Contains("worker 2 is gone, the last one that trained the linear layers (died)"));
  }
}

TEST_CASE("a half is missed by who trains on while others wait in an evaluation", "[layers]") {
  Layers job(2, 1);
  job.Begin();
  REQUIRE(job.Evaluate(1, v1::ARRIVE, 50).ok());
  REQUIRE(job.Leave(3, "died").ok());
  CHECK_THAT(job.Failure(),
             Contains("worker 2 is gone, the last one that trained the linear layers (died)"));
  const auto answer = job.Answer(1);
  REQUIRE(answer);
  CHECK_FALSE(answer->ok());
}

TEST_CASE("a job that goes back fails where nobody of a half comes again", "[layers]") {
  Layers job(1, 1);
  job.Begin();
  MakeCheckpoint(&job);
  job.ReplaceServer();
  const std::string whose = "worker 1 is gone, the last one that trained the linear layers ";
  SECTION("it never came") {
    const uint64_t first = job.Come(0);
    job.Pass(2.9, {first});
    CHECK(job.coordinator->outcome().ok());
    job.Pass(0.3, {first});
    CHECK(
        job.Failure() ==
        whose +
            "(it has not come back since the job went back to step 10); start the job again, with "
            "checkpoint.restore it goes on from its last checkpoint");
  }
  SECTION("it came, and died before the others had come") {
    const uint64_t second = job.Come(1);
    job.Pass(0.1, {second});
    REQUIRE(job.Leave(second, "died").ok());
    const uint64_t first = job.Come(0);
    job.Pass(3.2, {first});
    CHECK_THAT(job.Failure(), Catch::StartsWith(whose + "(died)"));
  }
  SECTION("it comes in time") {
    const uint64_t first = job.Come(0);
    job.Pass(2.5, {first});
    const uint64_t second = job.Come(1);
    job.StepAll();
    CHECK(job.Join(first)->admitted());
    CHECK(job.Join(second)->admitted());
    CHECK(job.coordinator->outcome().ok());
  }
}

TEST_CASE("a job that goes back goes on without one that was not the last of its half",
          "[layers]") {
  Layers job(2, 1);
  job.Begin();
  MakeCheckpoint(&job, 3);
  job.ReplaceServer();
  const uint64_t front = job.Come(0), linear = job.Come(2);
  job.Pass(3.2, {front, linear});
  CHECK(job.coordinator->outcome().ok());
  CHECK(job.Join(front)->admitted());
  CHECK(job.servers[0].plan.members_size() == 2);
}

TEST_CASE("whoever waits beside those that the job begins with is told that it has begun",
          "[layers]") {
  JobFacts facts = ControlFixture::Facts(1, 2);
  facts.closed_to_joiners = true;
  ControlFixture job(facts);
  for (const int rank : {0, 5}) REQUIRE(job.Join(0, rank).ok());
  v1::JoinRequest last = ControlFixture::Wish(1);
  last.set_life(9);
  REQUIRE(job.Join(last)->member() == 3);
  REQUIRE(job.Attach(0).ok());
  job.StepAll();
  CHECK(job.servers[0].plan.members_size() == 2);
  CHECK(job.servers[0].held.empty());
  CHECK(job.StateOf(2) == MemberState::kLeft);
  const absl::Status refused = job.Join(2).status();
  CHECK(absl::IsFailedPrecondition(refused));
  CHECK_THAT(
      std::string(refused.message()),
      Contains("the job has begun, and its method shares the model out among those who began it"));
  CHECK(Words(job.coordinator->Status(job.now).waiting_for()).empty());
  CHECK(job.coordinator->Status(job.now).members_joined() == 2);
  // One that did not hear the answer to its first request is no late one.
  const auto again = job.Join(last);
  REQUIRE(again.ok());
  CHECK(again->member() == 3);
  CHECK(again->admitted());
}

TEST_CASE("a job that goes back takes its members, who ask as those that they were", "[layers]") {
  Layers job(1, 1);
  job.Begin();
  MakeCheckpoint(&job);
  job.ReplaceServer();
  v1::JoinRequest first = Layers::Layer(-1), second = first;
  first.set_member(1);
  second.set_member(2);
  const auto linear = job.Join(second);
  REQUIRE(linear.ok());
  CHECK(linear->rank() == 1);
  const auto front = job.Join(first);
  REQUIRE(front.ok());
  CHECK(front->rank() == 0);
  job.StepAll();
  CHECK(job.Join(front->member())->admitted());
  CHECK(job.Join(linear->member())->admitted());
}

}  // namespace
}  // namespace tessera
