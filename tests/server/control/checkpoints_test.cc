#include <catch2/catch.hpp>

#include "server/control/saved_job.h"
#include "server/shard/checkpoint_mark.h"
#include "tests/server/control/control_fixture.h"

namespace tessera {
namespace {

using Kind = DiskTask::Kind;

JobFacts Facts(int servers, int workers, int64_t every, int64_t local_steps = 1) {
  JobFacts facts = ControlFixture::Facts(servers, workers);
  facts.epochs = 0;
  facts.steps = 1000;
  facts.local_steps = local_steps;
  facts.checkpoints = true;
  facts.checkpoint_every = every;
  Manifest model;
  model.parameters = {{"w", 4, 2, false, 1}};
  model.model_parameters = 1;
  model.shards.resize(servers);
  facts.model_manifest = std::make_shared<const Manifest>(std::move(model));
  return facts;
}

// Members advance on their own.
JobFacts AdvancingFacts(int servers, int workers) {
  JobFacts facts = Facts(servers, workers, 10);
  facts.synchronous = false;
  facts.aligned = false;
  return facts;
}

// Up to the order, which all servers then have.
uint64_t Ordered(ControlFixture* control) {
  REQUIRE(control->tasks.size() == 1);
  REQUIRE(control->Disk().kind == Kind::kBegin);
  control->StepAll();
  return control->servers[0].order.mark().number();
}

TEST_CASE("a checkpoint is ordered for the exchange at whose end it is due", "[checkpoints]") {
  ControlFixture control(Facts(2, 2, 50, /*local_steps=*/20));
  control.Start(2);
  CHECK(Ordered(&control) == 1);
  for (const FakeServer& server : control.servers) {
    CHECK(server.order.after_exchange() == 3);  // Step 60 is the first boundary at or after 50.
    CHECK(server.held.empty());
  }
}

TEST_CASE("servers that have passed the exchange agree on a later one", "[checkpoints]") {
  ControlFixture control(Facts(2, 2, 10));
  control.Start(2);
  control.servers[1].collecting = 40;
  Ordered(&control);
  CHECK(control.servers[0].order.after_exchange() > 40);
  CHECK(control.servers[0].order.after_exchange() == control.servers[1].order.after_exchange());
}

TEST_CASE("a checkpoint is committed when every server and every worker has written",
          "[checkpoints]") {
  ControlFixture control(Facts(2, 2, 10));
  control.Start(2);
  const uint64_t number = Ordered(&control);
  control.Part(0);
  control.Part(1);
  REQUIRE(control.Saved(1, number, 10, 10).ok());
  CHECK(control.tasks.empty());
  REQUIRE(control.Saved(2, number, 10, 10).ok());
  REQUIRE(control.tasks.size() == 1);
  const DiskTask commit = control.Disk();
  REQUIRE(commit.kind == Kind::kCommit);
  CHECK(commit.manifest.step == 10);
  CHECK(commit.manifest.exchange == 10);
  // Files have the names of who wrote them, whatever was said.
  REQUIRE(commit.manifest.files.size() == 4);
  CHECK(commit.manifest.files[1].name == "worker-1.safetensors");
  CHECK(commit.manifest.files[2].name == "shard-0-of-2.safetensors");
  REQUIRE(commit.manifest.members.size() == 2);
  CHECK(commit.manifest.members[1].rank == 1);
  CHECK(commit.manifest.shards[1].version == 10);
  CHECK(ParseSavedJob("manifest", commit.manifest.coordinator).ok());
  const v1::JobStatus status = control.coordinator->Status(control.now);
  CHECK(status.checkpoint_step() == 10);
  CHECK(status.checkpoint().count() == 1);
  // And the next one is under way.
  CHECK(Ordered(&control) == 2);
  CHECK(control.servers[0].order.after_exchange() == 20);
}

TEST_CASE("old ones are removed once the job would go back to a later one, and not before",
          "[checkpoints]") {
  ControlFixture control(Facts(1, 1, 10));
  control.Start(1);
  for (const uint64_t step : {10, 20}) {
    const uint64_t number = Ordered(&control);
    control.Part(0);
    REQUIRE(control.Saved(1, number, step, step).ok());
    REQUIRE(control.tasks.front().kind == Kind::kCommit);
    CHECK(control.pruned.size() == step / 10 - 1);
    control.Disk();
    CHECK(control.pruned.back() == step);
  }
  // One whose end was not heard: another process asks for it again before anything is removed.
  const uint64_t number = Ordered(&control);
  control.Part(0);
  REQUIRE(control.Saved(1, number, 30, 30).ok());
  control.Restart();
  REQUIRE(control.tasks.front().kind == Kind::kCommit);
  CHECK(control.pruned.back() == 20);
  control.Disk();
  CHECK(control.pruned.back() == 30);
}

TEST_CASE("names of checkpoints ascend, also where the furthest member is gone", "[checkpoints]") {
  ControlFixture control(AdvancingFacts(1, 2));
  control.Start(2);
  for (const uint64_t member : {1, 2}) REQUIRE(control.Join(member)->admitted());
  std::vector<uint64_t> steps;
  const auto make = [&] {
    const uint64_t number = Ordered(&control);
    control.Part(0);
    for (const uint64_t member : {1, 2}) {
      if (control.StateOf(member) != MemberState::kAdmitted) continue;
      REQUIRE(control.Saved(member, number, 12 - member, 14 - 2 * member).ok());
    }
    REQUIRE(control.tasks.front().kind == Kind::kCommit);
    steps.push_back(control.Disk().manifest.step);
  };
  REQUIRE(control.Renew(1, 12, 12).ok());
  make();
  REQUIRE(control.Leave(1, "gave up").ok());
  REQUIRE(control.coordinator->Checkpoint("test", control.now).ok());
  (void)control.Renew(2);
  make();
  CHECK(steps == std::vector<uint64_t>{12, 13});
}

TEST_CASE("who comes while a checkpoint is written or committed writes nothing to it",
          "[checkpoints]") {
  ControlFixture control(AdvancingFacts(1, 1));
  control.Start(1);
  REQUIRE(control.Join(1)->checkpoint_number() == 0);
  REQUIRE(control.Renew(1, 12, 12).ok());
  const auto told = [&] {
    const uint64_t member = control.Join()->member();
    control.StepAll();
    const auto reply = control.Join(member);
    REQUIRE(reply->admitted());
    REQUIRE(control.Leave(member, "gave up").ok());
    control.StepAll();
    return reply->checkpoint_number();
  };
  REQUIRE(control.tasks.front().kind == Kind::kBegin);
  CHECK(told() == 0);  // It is not ordered yet.
  const uint64_t number = Ordered(&control);
  CHECK(told() == number);
  control.Part(0);
  REQUIRE(control.Saved(1, number, 12, 12).ok());
  REQUIRE(control.tasks.front().kind == Kind::kCommit);
  CHECK(told() == number);
  control.Disk();
  // Servers say it with every read until the next one.
  CHECK(told() == number);
}

TEST_CASE("the last checkpoint is made where somebody was behind in that of the same step",
          "[checkpoints]") {
  JobFacts facts = Facts(1, 2, 10);
  facts.synchronous = GENERATE(false, true);
  Checkpoints checkpoints(facts);
  auto saved = std::make_shared<SavedState>();
  saved->manifest.step = 100;
  const uint64_t other = GENERATE(80, 100);
  saved->manifest.members = {{1, 0, 100, 100}, {2, 1, other, other}};
  checkpoints.SetLast(saved);
  MemberRecord member;
  member.member = MemberId(1);
  REQUIRE(checkpoints.BeginLast(member, 100, /*writes_again=*/true, absl::UnixEpoch()));
  CHECK(checkpoints.last_of_all().over() == (other == 100));
  CHECK((checkpoints.stage() == Checkpoints::Stage::kIdle) == (other == 100));
  if (other == 100) return;
  // Nobody may come any more to complete a round, or the exchange that a late joiner began with.
  CHECK(Exchange(checkpoints.OnAgreed(Exchange(0)).after_exchange()) == kCopyAtOnce);
}

TEST_CASE("an epoch's cut is kept for as long as a checkpoint may say that somebody is in it",
          "[checkpoints]") {
  ControlFixture control(AdvancingFacts(1, 1));
  control.Start(1);
  REQUIRE(control.Join(1)->admitted());
  const auto begin = [&](uint64_t epoch, uint64_t step) {
    v1::BeginEpochRequest request;
    request.set_member(1);
    request.set_epoch(epoch);
    request.set_step(step);
    REQUIRE(control.Renew(1, step, step).ok());
    REQUIRE(control.coordinator->BeginEpoch(request, control.now).ok());
  };
  // Epochs of ten steps.
  begin(0, 0);
  begin(1, 10);
  const uint64_t number = Ordered(&control);
  // It writes a file of step 12 and goes on, and the disk is slow.
  for (uint64_t epoch = 2; epoch < 6; ++epoch) begin(epoch, 10 * epoch);
  control.Part(0);
  REQUIRE(control.Saved(1, number, 12, 12).ok());
  const Manifest manifest = control.tasks.front().manifest;
  REQUIRE(manifest.step == 12);
  const auto job = ParseSavedJob("manifest", manifest.coordinator);
  REQUIRE(job.ok());
  REQUIRE_FALSE(job->cuts.empty());
  CHECK(job->cuts.front().first_step <= 12);
}

TEST_CASE("nobody waits for the file of a worker that is gone", "[checkpoints]") {
  ControlFixture control(Facts(1, 2, 10));
  control.Start(2);
  const uint64_t number = Ordered(&control);
  control.Part(0);
  REQUIRE(control.Saved(1, number, 10, 10).ok());
  REQUIRE(control.Leave(2, "gave up").ok());
  REQUIRE(control.tasks.size() == 1);
  CHECK(control.Disk().manifest.members.size() == 1);
}

TEST_CASE("what cannot be written costs that checkpoint, and is told", "[checkpoints]") {
  ControlFixture control(Facts(2, 2, 10));
  control.Start(2);
  SECTION("a server's part") {
    Ordered(&control);
    control.Part(0);
    control.Part(1, "disk full");
    REQUIRE(control.tasks.front().kind == Kind::kAbandon);
    CHECK(control.coordinator->Status(control.now).checkpoint().failure() == "server 1: disk full");
    control.Disk();
  }
  SECTION("the folder") {
    control.Disk(absl::PermissionDeniedError("read-only"));
    CHECK(control.coordinator->Status(control.now).checkpoint().failure() == "read-only");
    CHECK(control.coordinator->Status(control.now).checkpoint().failed_count() == 1);
    CHECK(control.Disk().kind == Kind::kAbandon);
  }
  // The next one comes an interval later, by itself.
  Ordered(&control);
  CHECK(control.servers[0].order.mark().number() == 2);
  CHECK(control.servers[0].order.after_exchange() >= 20);
}

TEST_CASE("a part of a checkpoint that was given up is no part of the next one", "[checkpoints]") {
  ControlFixture control(Facts(2, 1, 10));
  control.Start(1);
  Ordered(&control);
  control.Part(0, "disk full");
  control.Disk();
  control.Disk();
  control.Part(1);  // Of number 1, as it has not heard of 2 yet.
  control.StepAll();
  const uint64_t number = control.servers[0].order.mark().number();
  REQUIRE(number == 2);
  control.Part(0);
  REQUIRE(control.Saved(1, number, 20, 20).ok());
  CHECK(control.tasks.empty());
  control.Part(1);
  CHECK(control.tasks.size() == 1);
}

TEST_CASE("what is written late for one that was given up is in no other's folder",
          "[checkpoints]") {
  ControlFixture control(Facts(1, 1, 10));
  control.Start(1);
  std::set<uint64_t> folders;
  const uint64_t first = Ordered(&control);
  folders.insert(control.servers[0].order.mark().folder_step());
  control.Part(0);
  REQUIRE(control.Saved(1, first, 10, 10).ok());
  control.Disk();
  Ordered(&control);
  folders.insert(control.servers[0].order.mark().folder_step());
  control.coordinator->Detach(ShardId(0), control.servers[0].hello.life(), control.now);
  control.servers[0].hello.set_life(4711);
  REQUIRE(control.Attach(0).ok());
  control.StepAll();
  (void)control.Join();
  control.StepAll();
  CHECK(control.Disk().kind == Kind::kAbandon);
  (void)control.Tick(absl::Milliseconds(1));
  Ordered(&control);
  folders.insert(control.servers[0].order.mark().folder_step());
  CHECK(folders.size() == 3);
}

TEST_CASE("one that is asked for comes before the one that is due", "[checkpoints]") {
  ControlFixture control(Facts(2, 2, 500));
  control.Start(2);
  CHECK(Ordered(&control) == 1);
  CHECK(control.servers[0].order.after_exchange() == 500);
  const absl::StatusOr<uint64_t> number = control.coordinator->Checkpoint("test", control.now);
  REQUIRE(number.ok());
  CHECK(*number == 2);
  (void)control.Renew(1);
  CHECK(control.Disk().kind == Kind::kAbandon);
  CHECK(Ordered(&control) == 2);
  CHECK(control.servers[0].order.after_exchange() < 10);
}

TEST_CASE("a job without a folder has no checkpoint to ask for", "[checkpoints]") {
  ControlFixture control(ControlFixture::Facts(1, 1));
  control.Start(1);
  CHECK(absl::IsFailedPrecondition(control.coordinator->Checkpoint("", control.now).status()));
  CHECK(control.tasks.empty());
}

// A server of another life attaches in place of server 1.
void Replace(ControlFixture* control) {
  control->coordinator->Detach(ShardId(1), control->servers[1].hello.life(), control->now);
  control->servers[1].hello.set_life(4711);
  control->servers[1].inbox.clear();
  REQUIRE(control->Attach(1).ok());
}

TEST_CASE("a server that comes anew takes all back to the last checkpoint", "[checkpoints]") {
  ControlFixture control(Facts(2, 2, 10));
  control.Start(2);
  const uint64_t number = Ordered(&control);
  control.Part(0);
  control.Part(1);
  REQUIRE(control.Saved(1, number, 10, 10).ok());
  REQUIRE(control.Saved(2, number, 10, 10).ok());
  control.Disk();
  const uint64_t before = control.servers[0].plan.generation();
  (void)control.Renew(1, 17, 17);
  Replace(&control);
  control.StepAll();
  for (const FakeServer& server : control.servers) {
    CHECK(server.restore.step() == 10);
    CHECK(server.restore.generation() > before);
  }
  // Whoever was a member is told to join again, and is then none.
  REQUIRE(control.Renew(1).ok());
  CHECK(control.Renew(1)->rejoin());
  CHECK_FALSE(control.Evaluate(1, v1::ARRIVE, 17).ok());
  const auto first = control.Join(0, 0), second = control.Join(0, 1);
  REQUIRE(first.ok());
  REQUIRE(second.ok());
  CHECK(first->member() > 2);
  control.StepAll();
  const auto admitted = control.Join(first->member());
  REQUIRE(admitted.ok());
  REQUIRE(admitted->admitted());
  CHECK(admitted->first_exchange() == 11);
  CHECK(admitted->first_step() == 10);
  CHECK(admitted->resume().step() == 10);
  CHECK_FALSE(admitted->resume().from_restore());
  CHECK(admitted->generation() > control.servers[0].restore.generation());
  const v1::JobStatus status = control.coordinator->Status(control.now);
  CHECK(status.members_joined() == 2);
  CHECK(status.members_lost() == 0);
  CHECK(status.checkpoint().rollbacks() == 1);
}

TEST_CASE("a checkpoint stays while somebody has yet to go on from it", "[checkpoints]") {
  ControlFixture control(AdvancingFacts(2, 2));
  control.Start(2);
  std::vector<uint64_t> members = {1, 2};
  const auto make = [&](uint64_t step) {
    REQUIRE(control.Renew(members[0], step, step).ok());
    const uint64_t number = Ordered(&control);
    for (int server : {0, 1}) control.Part(server);
    for (const uint64_t member : members) REQUIRE(control.Saved(member, number, step, step).ok());
    REQUIRE(control.tasks.front().kind == Kind::kCommit);
    control.Disk();
  };
  for (const uint64_t member : members) REQUIRE(control.Join(member)->admitted());
  make(10);
  REQUIRE(control.pruned.back() == 10);
  Replace(&control);
  control.StepAll();
  const uint64_t quick = control.Join(0, 0)->member(), slow = control.Join(0, 1)->member();
  control.StepAll();
  REQUIRE(control.Join(quick)->admitted());
  members = {quick};
  make(20);
  CHECK(control.pruned.back() == 10);
  REQUIRE(control.Join(slow)->admitted());
  members = {quick, slow};
  make(30);
  CHECK(control.pruned.back() == 30);
}

TEST_CASE("a commit that the job goes back behind is undone, also by another process",
          "[checkpoints]") {
  ControlFixture control(Facts(2, 1, 10));
  control.Start(1);
  for (const uint64_t step : {10, 20}) {
    const uint64_t number = Ordered(&control);
    control.Part(0);
    control.Part(1);
    REQUIRE(control.Saved(1, number, step, step).ok());
    if (step == 10) control.Disk();
  }
  if (GENERATE(false, true)) control.Restart();
  REQUIRE(control.tasks.size() == 1);
  Replace(&control);
  const DiskTask commit = control.Disk();
  CHECK(commit.kind == Kind::kCommit);
  const DiskTask undo = control.Disk();
  CHECK(undo.kind == Kind::kAbandon);
  CHECK(FormatManifest(undo.manifest) == FormatManifest(commit.manifest));
  CHECK(control.pruned.back() == 10);
  CHECK(control.coordinator->Status(control.now).checkpoint_step() == 10);
}

TEST_CASE("a silent server is waited for where there is a checkpoint, and ends the job where not",
          "[checkpoints]") {
  ControlFixture control(Facts(2, 2, 10));
  control.Start(2);
  const bool has_checkpoint = GENERATE(false, true);
  if (has_checkpoint) {
    const uint64_t number = Ordered(&control);
    control.Part(0);
    control.Part(1);
    REQUIRE(control.Saved(1, number, 10, 10).ok());
    REQUIRE(control.Saved(2, number, 10, 10).ok());
    control.Disk();
    // Worker 1 cannot come to the evaluation that this one begins: it waits for the server, as the job does.
    REQUIRE(control.Evaluate(1, v1::ARRIVE, 11).ok());
  }
  for (int i = 0; i < 30; ++i) {
    v1::ShardMessage alive;
    alive.mutable_counters();
    control.coordinator->OnShardMessage(ShardId(0), alive, control.now);
    (void)control.Renew(1);
    (void)control.Renew(2);
    control.Tick(absl::Seconds(1));
  }
  const v1::JobStatus status = control.coordinator->Status(control.now);
  if (has_checkpoint) {
    CHECK(status.failure().empty());
    CHECK(status.state() == "waiting");
    CHECK(Words(status.waiting_for()) == "server 1");
    CHECK(control.Renew(1)->paused());
    control.servers[1].hello.set_life(4711);
    control.coordinator->Detach(ShardId(1), 101, control.now);
    CHECK(control.Attach(1).ok());
    CHECK(control.Renew(1)->rejoin());
  } else {
    CHECK_THAT(status.failure(), Catch::Contains("its parameters are lost"));
  }
}

TEST_CASE("what a coordinator saves comes back bit for bit, and nothing else does",
          "[checkpoints]") {
  SavedJob job;
  job.train_seconds = 0.1;
  job.evaluation_due = true;
  job.examples = 1280;
  job.cuts = {{3, 60, 20, 1347, {0, 2}, {}}, {4, 80, 30, 1347, {0, 1, 2}, {40, 7, 49}}};
  v1::HistoryEntry entry;
  entry.set_step(60);
  entry.set_train_loss(0.0 / 0.0);
  entry.set_test_loss(1.0 / 3.0);
  entry.add_precision_at(0.7);
  job.history.push_back(entry);
  const std::string text = FormatSavedJob(job);
  const absl::StatusOr<SavedJob> again = ParseSavedJob("m", text);
  REQUIRE(again.ok());
  CHECK(FormatSavedJob(*again) == text);
  CHECK(again->history[0].test_loss() == 1.0 / 3.0);
  CHECK(again->cuts[1].ranks.size() == 3);
  CHECK(again->cuts[0].batch_rows.empty());
  CHECK(again->cuts[1].batch_rows == std::vector<int64_t>{40, 7, 49});
  for (const auto& [from, to] : std::vector<std::pair<std::string, std::string>>{
           {"\"format\":1", "\"format\":2"},
           {"\"steps\":20", "\"steps\":0"},
           {"\"first_step\":80", "\"first_step\":81"},
           {"\"ranks\":[0,2]", "\"ranks\":[2,0]"},
           {"\"ranks\":[0,2]", "\"ranks\":[]"},
           {"\"epoch\":4,", "\"epoch\":1099511627776,"},
           {"\"steps\":30", "\"steps\":18446744073709551615"},
           {"\"rows_total\":1347", "\"rows_total\":140737488355328"},
           {"\"ranks\":[0,2]", "\"ranks\":[0,65535]"},
           {"\"batch_rows\":[40,7,49]", "\"batch_rows\":[40,49]"},
           {"\"batch_rows\":[40,7,49]", "\"batch_rows\":[40,0,49]"},
           {"\"batch_rows\":[40,7,49]", "\"batch_rows\":[40,7,2147483648]"},
           {"\"batch_rows\":[40,7,49]", "\"batch_rows\":7"},
           {"\"examples\":1280", "\"examples\":72057594037927936"},
           {"\"0.1", "\"1e11"},
           {"\"0.1", "\"x"},
           {"\"examples\"", "\"exampels\""}}) {
    INFO(from << " -> " << to);
    std::string bad = text;
    const size_t at = bad.find(from);
    REQUIRE(at != std::string::npos);
    bad.replace(at, from.size(), to);
    CHECK(absl::IsInvalidArgument(ParseSavedJob("m", bad).status()));
  }
  job.cuts = {{uint64_t{1} << 40, 60, 20, 1347, {0, 2}, {}}};
  CHECK(ParseSavedJob("m", FormatSavedJob(job)).status().message() ==
        "m.cuts.epoch: is 1099511627776, want below 2147483648");
}

}  // namespace
}  // namespace tessera
