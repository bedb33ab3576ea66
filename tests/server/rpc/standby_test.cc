// A leading shard, its gate, and a standby that hears of it through messages: under any schedule both have
// the same bits, and what was acknowledged is there once.
#include <algorithm>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <catch2/catch.hpp>

#include "common/consistency/barrier.h"
#include "common/consistency/none.h"
#include "common/consistency/quorum.h"
#include "common/consistency/softsync.h"
#include "common/consistency/ssp.h"
#include "common/rule/add.h"
#include "common/rule/sgd.h"
#include "server/shard/log/shard_recorder.h"
#include "tests/server/rpc/led_shard.h"
#include "tests/server/shard/shard_fixture.h"

namespace tessera {
namespace {

constexpr int64_t kRows = 3, kColumns = 5;

using MakeShard = std::function<std::unique_ptr<Shard>()>;

std::unique_ptr<ConsistencyPolicy> PolicyOf(const std::string& name) {
  if (name == "barrier") return MakeBarrier();
  if (name == "weighted barrier") return MakeWeightedBarrier();
  if (name == "none") return MakeNone(1.0f);
  if (name == "softsync") return MakeSoftsync(2, StalenessWeight());
  if (name == "ssp") return MakeSsp(1, 1.0f);
  return MakeQuorum({2, absl::Milliseconds(3)});
}

std::unique_ptr<Shard> ShardOf(const std::string& policy, bool has_state) {
  Shard::Options options;
  options.shape = ZeroMatrix(kRows, kColumns);
  options.policy = PolicyOf(policy);
  options.rule = has_state ? MakeSgd({0.5f, 0.9f, 0.01f, false}) : MakeAdd();
  return std::make_unique<Shard>(std::move(options));
}

// One that pushes, waits for the acknowledgement, and then for its read.
struct Worker {
  uint64_t exchange = 1;
  uint64_t base = 0;
  std::vector<float> update{};  // empty: it is to make the next one
  bool sent = false;
  bool acknowledged = false;
};

class Run {
 public:
  Run(const std::string& policy, bool has_state, int workers, unsigned seed)
      : policy_(policy),
        has_state_(has_state),
        random_(seed),
        workers_(workers),
        leader_(std::make_unique<Leader>(ShardOf(policy, has_state))) {}

  void Begin() { leader_->SetPlan(PlanOfFirst(static_cast<int>(workers_.size()))); }
  void AddStandby() {
    standby_ = std::make_shared<Standby>(ShardOf(policy_, has_state_));
    leader_->gate.SetStandby(standby_);
  }
  bool Chance(int of) { return std::uniform_int_distribution<int>(1, of)(random_) == 1; }

  void Step(uint64_t exchanges) {
    now_ += absl::Milliseconds(1);
    const int member =
        std::uniform_int_distribution<int>(1, static_cast<int>(workers_.size()))(random_);
    Worker& worker = workers_[member - 1];
    if (Chance(2)) leader_->Advance(now_);
    if (standby_ != nullptr && Chance(2)) standby_->Deliver(&leader_->gate);
    if (worker.exchange > exchanges) return;
    if (worker.update.empty()) {
      for (int64_t i = 0; i < kRows * kColumns; ++i) {
        worker.update.push_back(
            12.0f * static_cast<float>(std::uniform_int_distribution<int>(-3, 3)(random_)));
      }
    }
    if (!worker.sent) Send(member);
    if (!worker.acknowledged || !Chance(3)) return;
    const auto read = leader_->shard->Read(MemberId(member), Exchange(worker.exchange));
    INFO(read.status());
    REQUIRE(read.ok());
    if (!read->has_value()) return;
    // What it computes from it has seen counts only once it is told.
    const uint64_t version = (*read)->version.value(), exchange = worker.exchange;
    leader_->gate.Say([this, member, version, exchange](const absl::Status&) {
      Worker& told = workers_[member - 1];
      if (told.exchange != exchange) return;
      for (size_t i = 0; i < told.update.size(); ++i) sum_[i] += told.update[i];
      told = {exchange + 1, version};
    });
  }

  void Send(int member) {
    Worker& worker = workers_[member - 1];
    ReceivedPush push;
    push.member = MemberId(member);
    push.exchange = Exchange(worker.exchange);
    push.base = Version(worker.base);
    push.layout_hash = leader_->shard->layout_hash();
    push.examples = 4;
    push.payload = PayloadOf(worker.update);
    worker.sent = true;
    const uint64_t exchange = worker.exchange;
    leader_->Push(std::move(push), [this, member, exchange](const absl::Status& status) {
      INFO(status);
      REQUIRE(status.ok());
      if (workers_[member - 1].exchange == exchange) workers_[member - 1].acknowledged = true;
    });
  }

  // The leader is no more; its standby leads, and what was not acknowledged is sent again.
  void TakeOver() {
    std::unique_ptr<Shard> shard = standby_->TakeOver();
    REQUIRE(shard != nullptr);
    standby_.reset();
    // Nothing that was about to be said is said.
    dead_.push_back(std::move(leader_));
    leader_ = std::make_unique<Leader>(std::move(shard));
    leader_->SetPlan(PlanOfFirst(static_cast<int>(workers_.size())));
    for (Worker& worker : workers_) worker.sent = worker.sent && worker.acknowledged;
    for (size_t i = 0; i < workers_.size(); ++i) {
      CHECK(workers_[i].base <= leader_->shard->counters().version.value());
    }
  }

  bool Done(uint64_t exchanges) const {
    for (const Worker& worker : workers_) {
      if (worker.exchange <= exchanges) return false;
    }
    return true;
  }

  void Drain() {
    while (leader_->Advance(now_)) {
    }
    while (standby_ != nullptr && standby_->Deliver(&leader_->gate)) {
    }
  }

  bool in_sync() const { return standby_ != nullptr && standby_->in_sync; }
  bool has_standby() const { return standby_ != nullptr; }
  Shard& shard() { return *leader_->shard; }
  std::unique_ptr<Shard> TakeCopy() { return standby_->TakeOver(); }
  const std::vector<double>& sum() const { return sum_; }

 private:
  const std::string policy_;
  const bool has_state_;
  std::mt19937 random_;
  std::vector<Worker> workers_;
  std::vector<std::unique_ptr<Leader>> dead_;
  std::unique_ptr<Leader> leader_;
  std::shared_ptr<Standby> standby_;
  absl::Time now_ = absl::UnixEpoch();
  std::vector<double> sum_ = std::vector<double>(kRows * kColumns);
};

std::vector<float> All(Shard* shard) {
  std::vector<float> values = ValuesOf(*shard->ReadNow().snapshot);
  const std::optional<ImageEvent> image = ShardRecorder::ImageOf(shard);
  if (!image.has_value()) return values;
  std::string bytes;
  for (const Payload::Piece& piece : image->values.pieces()) {
    bytes.append(piece.data, static_cast<size_t>(piece.size));
  }
  values.resize(bytes.size() / sizeof(float));
  std::memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}

const char* const kPolicies[] = {"barrier", "weighted barrier", "none", "softsync", "ssp",
                                 "quorum"};

TEST_CASE(
    "a standby has the bits of its leader after any schedule, from the start or from an image",
    "[standby]") {
  for (const std::string policy : kPolicies) {
    for (unsigned seed = 1; seed <= 40; ++seed) {
      INFO(policy << " seed " << seed);
      Run run(policy, /*has_state=*/true, 3, seed);
      if (seed % 2 == 0) run.AddStandby();
      run.Begin();
      const int steps = 200 + static_cast<int>(seed) * 7;
      for (int i = 0; i < steps; ++i) {
        if (i == steps / 3 && !run.has_standby()) run.AddStandby();
        run.Step(1000);
      }
      run.Drain();
      REQUIRE(run.in_sync());
      const std::unique_ptr<Shard> copy = run.TakeCopy();
      REQUIRE(copy != nullptr);
      // Folds that are not committed are with the leader alone.
      CHECK(copy->counters().version == run.shard().counters().version);
      CHECK(copy->counters().examples == run.shard().counters().examples);
      CHECK(ValuesOf(*copy->ReadNow().snapshot) == ValuesOf(*run.shard().ReadNow().snapshot));
      if (ShardRecorder::ImageOf(copy.get()) && ShardRecorder::ImageOf(&run.shard())) {
        CHECK(All(copy.get()) == All(&run.shard()));
      }
      CHECK(copy->counters().version.value() > 3);
    }
  }
}

TEST_CASE("what was acknowledged counts once, whenever leaders die", "[standby]") {
  for (const std::string policy : {"barrier", "none", "ssp"}) {
    int takeovers = 0;
    for (unsigned seed = 1; seed <= 60; ++seed) {
      INFO(policy << " seed " << seed);
      constexpr uint64_t kExchanges = 12;
      Run run(policy, /*has_state=*/false, 2, seed);
      run.AddStandby();
      run.Begin();
      for (int i = 0; i < 100000 && !run.Done(kExchanges); ++i) {
        run.Step(kExchanges);
        if (!run.has_standby() && run.Chance(10)) run.AddStandby();
        if (run.in_sync() && run.Chance(40)) {
          run.TakeOver();
          ++takeovers;
        }
      }
      REQUIRE(run.Done(kExchanges));
      run.Drain();
      const std::vector<float> values = ValuesOf(*run.shard().ReadNow().snapshot);
      // Under a barrier each update is a mean of two.
      const double share = policy == std::string("barrier") ? 0.5 : 1;
      for (size_t i = 0; i < values.size(); ++i) CHECK(values[i] == share * run.sum()[i]);
      CHECK(run.shard().counters().version.value() ==
            kExchanges * (policy == std::string("barrier") ? 1 : 2));
    }
    CHECK(takeovers > 60);
  }
}

TEST_CASE("a standby knows how far removed members were counted, before it began and since",
          "[standby]") {
  for (const std::string policy : {"barrier", "none"}) {
    INFO(policy);
    Leader leader(ShardOf(policy, false));
    leader.SetPlan(PlanOfFirst(3));
    const auto push = [&](uint64_t member, uint64_t exchange) {
      ReceivedPush push;
      push.member = MemberId(member);
      push.exchange = Exchange(exchange);
      push.layout_hash = leader.shard->layout_hash();
      push.payload = PayloadOf(std::vector<float>(kRows * kColumns, 1.0f));
      leader.Push(std::move(push), [](const absl::Status&) {});
      while (leader.Advance(absl::UnixEpoch())) {
      }
    };
    for (const uint64_t member : {1, 2, 3}) push(member, 1);
    leader.SetPlan(PlanOf(2, {{1, 1}, {2, 1}}));
    const auto standby = std::make_shared<Standby>(ShardOf(policy, false));
    leader.gate.SetStandby(standby);
    for (const uint64_t member : {1, 2}) push(member, 2);
    leader.SetPlan(PlanOf(3, {{1, 1}}));
    while (standby->Deliver(&leader.gate)) {
    }
    REQUIRE(standby->in_sync);
    const std::unique_ptr<Shard> copy = standby->TakeOver();
    REQUIRE(copy->members().removed().size() == 2);
    CHECK(copy->members().removed()[0].member == MemberId(3));
    CHECK(copy->members().removed()[0].last_exchange == Exchange(1));
    CHECK(copy->members().removed()[1].member == MemberId(2));
    CHECK(copy->members().removed()[1].last_exchange == Exchange(2));
  }
}

TEST_CASE("a leader whose standby does not answer says nothing", "[standby]") {
  for (const std::string policy : {"barrier", "none"}) {
    INFO(policy);
    Leader leader(ShardOf(policy, false));
    const auto standby = std::make_shared<Standby>(ShardOf(policy, false));
    leader.gate.SetStandby(standby);
    while (standby->Deliver(&leader.gate)) {
    }
    REQUIRE(standby->in_sync);
    leader.SetPlan(PlanOfFirst(1));
    while (standby->Deliver(&leader.gate)) {
    }
    int said = 0;
    ReceivedPush push;
    push.member = MemberId(1);
    push.exchange = Exchange(1);
    push.layout_hash = leader.shard->layout_hash();
    push.payload = PayloadOf(std::vector<float>(kRows * kColumns, 1.0f));
    leader.Push(push.Share(), [&](const absl::Status&) { ++said; });
    while (leader.Advance(absl::UnixEpoch())) {
    }
    leader.gate.Say([&](const absl::Status&) { ++said; });
    // The copy has been sealed: it takes nothing more.
    CHECK(said == 0);
    SECTION("the coordinator lets it go on without") {
      leader.gate.SetStandby(nullptr);
      CHECK(said == 2);
    }
    SECTION("the standby has it") {
      while (standby->Deliver(&leader.gate)) {
      }
      CHECK(said == 2);
    }
  }
}

TEST_CASE("what was acknowledged without a standby counts no more once the job has gone back",
          "[standby]") {
  Leader leader(ShardOf("barrier", false));
  int said = 0;
  leader.gate.SayAccepted(MemberId(1), Exchange(1000), [&](const absl::Status&) { ++said; });
  REQUIRE(said == 1);
  const std::unique_ptr<Shard> restored = ShardOf("barrier", false);
  leader.gate.Watch(restored.get());
  const auto standby = std::make_shared<Standby>(ShardOf("barrier", false));
  leader.gate.SetStandby(standby);
  while (standby->Deliver(&leader.gate)) {
  }
  CHECK(standby->in_sync);
  leader.gate.SetStandby(nullptr);
}

TEST_CASE("a standby of a shard that was loaded has its values, though it has committed nothing",
          "[standby]") {
  std::unique_ptr<Shard> shard = ShardOf("none", true);
  SavedShard saved;
  saved.read_rows = [](int, int state, int64_t rows_begin, int64_t rows_end, float* out) {
    std::fill_n(out, (rows_end - rows_begin) * kColumns, state < 0 ? 3.0f : 0.0f);
    return absl::OkStatus();
  };
  REQUIRE(shard->Load(saved).ok());
  Leader leader(std::move(shard));
  const auto standby = std::make_shared<Standby>(ShardOf("none", true));
  leader.gate.SetStandby(standby);
  while (standby->Deliver(&leader.gate)) {
  }
  REQUIRE(standby->in_sync);
  leader.gate.SetStandby(nullptr);
  const std::unique_ptr<Shard> taken_over = standby->TakeOver();
  REQUIRE(taken_over != nullptr);
  CHECK(taken_over->ParametersHash() == leader.shard->ParametersHash());
}

TEST_CASE("a leader that ends refuses what its standby has yet to get", "[standby]") {
  for (const std::string policy : {"barrier", "none"}) {
    INFO(policy);
    Leader leader(ShardOf(policy, false));
    const auto standby = std::make_shared<Standby>(ShardOf(policy, false));
    leader.gate.SetStandby(standby);
    leader.SetPlan(PlanOfFirst(2));
    while (standby->Deliver(&leader.gate)) {
    }
    REQUIRE(standby->in_sync);
    std::vector<absl::StatusCode> said;
    const auto answer = [&](const absl::Status& status) { said.push_back(status.code()); };
    const auto push = [&](int member, int exchange) {
      ReceivedPush push;
      push.member = MemberId(member);
      push.exchange = Exchange(exchange);
      push.layout_hash = leader.shard->layout_hash();
      push.payload = PayloadOf(std::vector<float>(kRows * kColumns, 1.0f));
      leader.Push(std::move(push), answer);
      while (leader.Advance(absl::UnixEpoch())) {
      }
    };
    const auto refused = [&](size_t count) {
      return said == std::vector<absl::StatusCode>(count, absl::StatusCode::kUnavailable);
    };
    push(1, 1);
    leader.gate.Say(answer);
    CHECK(said.empty());
    leader.gate.Abdicate(absl::UnavailableError("it ends"));
    CHECK(refused(2));
    said.clear();
    push(2, 1);
    leader.gate.Say(answer);
    CHECK(refused(2));
  }
}

TEST_CASE("only who waits for an acknowledgement may read what the standby has yet to get",
          "[standby]") {
  Leader leader(ShardOf("barrier", false));
  const auto standby = std::make_shared<Standby>(ShardOf("barrier", false));
  leader.gate.SetStandby(standby);
  while (standby->Deliver(&leader.gate)) {
  }
  leader.SetPlan(PlanOfFirst(2));
  std::vector<std::string> said;
  for (int member = 1; member <= 2; ++member) {
    ReceivedPush push;
    push.member = MemberId(member);
    push.exchange = Exchange(1);
    push.layout_hash = leader.shard->layout_hash();
    push.payload = PayloadOf(std::vector<float>(kRows * kColumns, 1.0f));
    leader.Push(std::move(push), [&](const absl::Status&) { said.push_back("acknowledged"); });
  }
  while (leader.Advance(absl::UnixEpoch())) {
  }
  REQUIRE(leader.shard->counters().version == Version(1));
  leader.gate.SayTo(MemberId(1), Exchange(1),
                    [&](const absl::Status&) { said.push_back("member 1"); });
  leader.gate.SayTo(MemberId(3), Exchange(0),
                    [&](const absl::Status&) { said.push_back("member 3"); });
  CHECK(said == std::vector<std::string>{"member 1"});
  while (standby->Deliver(&leader.gate)) {
  }
  CHECK(said == std::vector<std::string>{"member 1", "acknowledged", "acknowledged", "member 3"});
  // Once it is acknowledged there is nothing to wait for: the next one is read like any other.
  leader.SetPlan(PlanOfFirst(2));
  leader.gate.SayTo(MemberId(1), Exchange(1),
                    [&](const absl::Status&) { said.push_back("again"); });
  CHECK(said.size() == 4);
}

TEST_CASE("a log that cannot be is refused, and leaves no copy", "[standby]") {
  const auto refused = [](const std::string& policy, const v1::LogEntry& entry, Payload payload) {
    FollowedShard copy(ShardOf(policy, false));
    v1::LogChunk chunk;
    *chunk.add_entries() = entry;
    const absl::StatusOr<uint64_t> taken = copy.Take(chunk, std::move(payload), absl::UnixEpoch());
    INFO(taken.status());
    CHECK_FALSE(taken.ok());
    CHECK(copy.TakeOver() == nullptr);
  };
  v1::LogEntry entry;
  entry.set_position(2);
  entry.set_withdraw(1);
  refused("none", entry, Payload());  // There is no entry 1.
  entry.set_position(1);
  entry.set_version(7);
  refused("none", entry, Payload());  // It changes no version.
  entry.Clear();
  entry.set_position(1);
  refused("none", entry, Payload());  // It says nothing.
  entry.mutable_push()->mutable_header()->set_codec("none such");
  refused("none", entry, Payload());
  entry.mutable_push()->mutable_header()->clear_codec();
  refused("none", entry, Payload());     // Nobody is a member.
  refused("barrier", entry, Payload());  // Its pushes are combined.
  entry.mutable_commit();
  entry.set_version(1);
  refused("barrier", entry, Payload());
  entry.set_payload_bytes(4 * kRows * kColumns);
  refused("barrier", entry, PayloadOf(std::vector<float>(kRows * kColumns)));  // None is due.
  refused("barrier", entry, PayloadOf(std::vector<float>(kRows * kColumns + 1)));
  entry.mutable_image()->add_members()->set_member(5);
  refused("barrier", entry, PayloadOf(std::vector<float>(kRows * kColumns)));  // Of no plan.
}

}  // namespace
}  // namespace tessera
