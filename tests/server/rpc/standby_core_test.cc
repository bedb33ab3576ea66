// A shard whose exchanges move a core, and its standbys: one that begins at any moment, in the middle of a
// selection, too, has all that its leader has, and can be led by.
#include <algorithm>
#include <functional>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <catch2/catch.hpp>

#include "common/consistency/barrier.h"
#include "common/consistency/none.h"
#include "common/rule/add.h"
#include "server/core/core_agreement.h"
#include "server/shard/log/shard_recorder.h"
#include "tests/server/rpc/led_shard.h"
#include "tests/server/shard/shard_fixture.h"

namespace tessera {
namespace {

constexpr int64_t kRows = 9, kColumns = 7, kEntries = kRows * kColumns;
constexpr int kMembers = 3;
constexpr uint64_t kSeed = 7;

struct Kind {
  bool lockstep = false;
  CoreShare share;
};

std::unique_ptr<Shard> ShardOf(const Kind& kind) {
  Shard::Options options;
  options.shape = ZeroMatrix(kRows, kColumns);
  options.shape.parameters[0].initial_bound = 1;
  options.seed = kSeed;
  options.policy = kind.lockstep ? MakeBarrier() : MakeNone(0.5f);
  options.rule = MakeAdd();
  options.core = kind.share;
  return std::make_unique<Shard>(std::move(options));
}

// All that there is of a shard, as bytes; nullopt: there is no image just now.
std::optional<std::string> ImageOf(Shard* shard) {
  std::optional<ImageEvent> image = ShardRecorder::ImageOf(shard);
  if (!image.has_value()) return std::nullopt;
  Payload payload;
  std::string bytes = ToMessage(*std::move(image), &payload).SerializeAsString();
  for (const Payload::Piece& piece : payload.pieces()) {
    bytes.append(piece.data, static_cast<size_t>(piece.size));
  }
  return bytes;
}

// A member makes its exchanges by the cores that the shard has selected.
struct Worker {
  uint64_t exchange = 1;
  bool sent = false;
  bool acknowledged = false;
  std::shared_ptr<const Core> core;
};

class Run {
 public:
  Run(const Kind& kind, unsigned seed)
      : kind_(kind),
        random_(seed),
        workers_(kMembers),
        agreement_({1, 1, static_cast<uint64_t>(kEntries),
                    static_cast<uint64_t>(CoreCount(kind.share, kEntries)),
                    kind.share.gradient_weight}),
        leader_(std::make_unique<Leader>(ShardOf(kind))) {}

  uint64_t Below(uint64_t end) {
    return std::uniform_int_distribution<uint64_t>(0, end - 1)(random_);
  }
  void Begin() { leader_->SetPlan(PlanOfFirst(kMembers)); }
  void AddStandby() {
    standby_ = std::make_shared<Standby>(ShardOf(kind_));
    leader_->gate.SetStandby(standby_);
  }
  void DropStandby() {
    standby_.reset();
    leader_->gate.SetStandby(nullptr);
  }
  bool has_standby() const { return standby_ != nullptr; }
  bool in_sync() const { return standby_ != nullptr && standby_->in_sync; }
  bool is_selecting() { return leader_->shard->cores()->report().has_value(); }
  Shard& shard() { return *leader_->shard; }
  uint64_t least() const {
    uint64_t least = ~uint64_t{0};
    for (const Worker& worker : workers_) least = std::min(least, worker.exchange);
    return least;
  }

  void Step() {
    switch (Below(9)) {
      case 0:
        if (first_ != nullptr) SendWrong(1 + Below(kMembers));
        return;
      case 1:
      case 2:
        leader_->Advance(absl::UnixEpoch());
        return;
      case 3:
      case 4:
        if (standby_ != nullptr) standby_->Deliver(&leader_->gate);
        return;
      case 5:
      case 6:
        // The coordinator hears what the standby has, too.
        if (const auto report = leader_->shard->cores()->report()) Tell(*report);
        return;
      default:
        Exchange(1 + Below(kMembers));
    }
  }

  // The leader is no more. What it had not acknowledged is sent again.
  void TakeOver() {
    std::unique_ptr<Shard> shard = standby_->TakeOver();
    REQUIRE(shard != nullptr);
    standby_.reset();
    dead_.push_back(std::move(leader_));
    leader_ = std::make_unique<Leader>(std::move(shard));
    for (Worker& worker : workers_) worker.sent = worker.sent && worker.acknowledged;
  }

  // The standby has all that the leader has.
  void Settle() {
    while (leader_->Advance(absl::UnixEpoch()) ||
           (standby_ != nullptr && standby_->Deliver(&leader_->gate))) {
    }
  }
  std::unique_ptr<Shard> TakeCopy() {
    std::unique_ptr<Shard> copy = standby_->TakeOver();
    DropStandby();
    return copy;
  }

 private:
  void Tell(const CoreReport& report) {
    leader_->gate.Say([this, report](const absl::Status& status) {
      if (!status.ok()) return;
      for (const auto& [to, question] : agreement_.OnReport(ShardId(0), report)) {
        leader_->shard->cores()->Ask(question);
        leader_->gate.Append(CoreQuestionEvent{question});
      }
    });
  }

  void Exchange(uint64_t number) {
    Worker& worker = workers_[number - 1];
    const bool is_whole = PushesAll(kind_.share, worker.exchange);
    const std::shared_ptr<const Core>& latest = leader_->shard->cores()->core();
    if (first_ == nullptr) first_ = latest;
    // Where nobody waits, it stays with an old one now and then.
    const bool asks = kind_.lockstep || worker.core == nullptr || Below(3) == 0;
    if (!worker.sent && latest != nullptr && asks) {
      leader_->gate.Say(
          [this, number, core = latest](const absl::Status&) { workers_[number - 1].core = core; });
    }
    if (!worker.sent) {
      if (!is_whole && worker.core == nullptr) return;
      const uint64_t wanted = CoreOf(kind_.share, worker.exchange);
      if (kind_.lockstep && (worker.core == nullptr || worker.core->name.number < wanted)) return;
      Send(number, is_whole, /*with_keys=*/Below(4) == 0);
    }
    if (!worker.acknowledged) return;
    const auto read = leader_->shard->Read(MemberId(number), tessera::Exchange(worker.exchange));
    REQUIRE(read.ok());
    if (!read->has_value()) return;
    leader_->gate.Say([this, number, exchange = worker.exchange](const absl::Status&) {
      Worker& told = workers_[number - 1];
      if (told.exchange == exchange) told = {exchange + 1, false, false, told.core};
    });
  }

  // A push that brings keys and is refused, as it is not its member's next one. The core is the first that
  // there was.
  void SendWrong(uint64_t number) {
    const uint64_t wrong = workers_[number - 1].exchange + 7;
    if (PushesAll(kind_.share, wrong)) return;
    ReceivedPush push;
    push.member = MemberId(number);
    push.exchange = tessera::Exchange(wrong);
    push.layout_hash = leader_->shard->layout_hash();
    const ExplorerPlace place{kSeed, Rank(number), push.exchange, ShardId(0)};
    const int64_t count = DrawKeys(kind_.share, place, kEntries, first_).entries.count();
    const EncodedKeys keys = EncodeKeys(first_->keys);
    push.keys = NamedCore{first_->name, static_cast<int>(keys.form), keys.bytes};
    push.payload = PayloadOf(std::vector<float>(count, 1.0f));
    leader_->Push(std::move(push), [](const absl::Status& status) { REQUIRE_FALSE(status.ok()); });
  }

  void Send(uint64_t number, bool is_whole, bool with_keys) {
    Worker& worker = workers_[number - 1];
    int64_t count = kEntries;
    ReceivedPush push;
    push.member = MemberId(number);
    push.exchange = tessera::Exchange(worker.exchange);
    push.layout_hash = leader_->shard->layout_hash();
    push.examples = 4;
    if (!is_whole) {
      const ExplorerPlace place{kSeed, Rank(number), push.exchange, ShardId(0)};
      count = DrawKeys(kind_.share, place, kEntries, worker.core).entries.count();
      NamedCore core{worker.core->name, 0, std::nullopt};
      if (with_keys) {
        const EncodedKeys keys = EncodeKeys(worker.core->keys);
        core.key_form = static_cast<int>(keys.form);
        core.keys = keys.bytes;
      }
      push.keys = core;
    }
    std::vector<float> values;
    for (int64_t i = 0; i < count; ++i) {
      values.push_back(0.1f * static_cast<float>(static_cast<int64_t>(Below(21)) - 10));
    }
    push.payload = PayloadOf(values);
    worker.sent = true;
    bool needs_keys = false;
    const uint64_t exchange = worker.exchange;
    leader_->Push(
        std::move(push),
        [this, number, exchange](const absl::Status& status) {
          INFO(status);
          REQUIRE(status.ok());
          if (workers_[number - 1].exchange == exchange) workers_[number - 1].acknowledged = true;
        },
        &needs_keys);
    if (needs_keys) Send(number, is_whole, /*with_keys=*/true);
  }

  const Kind kind_;
  std::mt19937 random_;
  std::vector<Worker> workers_;
  std::shared_ptr<const Core> first_;
  CoreAgreement agreement_;
  std::vector<std::unique_ptr<Leader>> dead_;
  std::unique_ptr<Leader> leader_;
  std::shared_ptr<Standby> standby_;
};

std::vector<Kind> Kinds() {
  std::vector<Kind> kinds;
  for (const bool lockstep : {false, true}) {
    for (const uint64_t every : {1, 2, 5}) kinds.push_back({lockstep, {0.4, 0.2, every, 0}});
    // A core without entries, whose keys are no bytes.
    kinds.push_back({lockstep, {0.4, 0, 2, 0}});
  }
  return kinds;
}

TEST_CASE("a standby of a shard with cores has all of it, whenever it begins", "[standby][core]") {
  int in_selections = 0;
  for (const Kind& kind : Kinds()) {
    for (unsigned seed = 1; seed <= 60; ++seed) {
      INFO((kind.lockstep ? "lockstep" : "alone")
           << " every " << kind.share.every << " beta " << kind.share.beta << " seed " << seed);
      Run run(kind, seed);
      run.Begin();
      const uint64_t before = 20 + run.Below(400);
      for (uint64_t i = 0; i < before; ++i) run.Step();
      in_selections += run.is_selecting() ? 1 : 0;
      run.AddStandby();
      const uint64_t after = run.Below(200);
      for (uint64_t i = 0; i < after; ++i) run.Step();
      run.Settle();
      const std::optional<std::string> wanted = ImageOf(&run.shard());
      if (!wanted.has_value()) continue;
      REQUIRE(run.in_sync());
      const std::unique_ptr<Shard> copy = run.TakeCopy();
      REQUIRE(copy != nullptr);
      while (copy->Advance(absl::UnixEpoch())) {
      }
      CHECK((ImageOf(copy.get()) == wanted));
    }
  }
  CHECK(in_selections > 60);
}

TEST_CASE("a job with cores goes on however often its leader dies, and is protected again",
          "[standby][core]") {
  for (const Kind& kind : Kinds()) {
    int takeovers = 0, in_selections = 0;
    for (unsigned seed = 1; seed <= 20; ++seed) {
      INFO((kind.lockstep ? "lockstep" : "alone")
           << " every " << kind.share.every << " beta " << kind.share.beta << " seed " << seed);
      constexpr uint64_t kExchanges = 16;
      Run run(kind, seed);
      run.AddStandby();
      run.Begin();
      int bare = 0;
      for (int i = 0; i < 200000 && run.least() <= kExchanges; ++i) {
        run.Step();
        if (!run.has_standby() && run.Below(10) == 0) run.AddStandby();
        bare = run.in_sync() ? 0 : bare + 1;
        // Its members go on all the time, and so does what is copied.
        REQUIRE(bare < 1000);
        if (!run.in_sync() || run.Below(30) != 0) continue;
        in_selections += run.is_selecting() ? 1 : 0;
        if (run.Below(4) == 0) {
          run.DropStandby();
        } else {
          run.TakeOver();
          ++takeovers;
        }
      }
      REQUIRE(run.least() > kExchanges);
    }
    CHECK(takeovers > 20);
    CHECK(in_selections > 5);
  }
}

// What `change` makes of a good image of a shard that selects its second core while others push.
absl::Status Taken(const std::function<void(v1::ShardImage*, std::string*)>& change) {
  const Kind kind{false, {0.4, 0.2, 2, 0}};
  Run run(kind, 3);
  run.Begin();
  while (run.shard().cores()->core() == nullptr || !run.is_selecting() ||
         run.shard().cores()->questions().empty()) {
    run.Step();
  }
  std::optional<ImageEvent> image = ShardRecorder::ImageOf(&run.shard());
  REQUIRE(image.has_value());
  Payload payload;
  v1::LogEntry entry = ToMessage(*std::move(image), &payload);
  std::string values;
  for (const Payload::Piece& piece : payload.pieces()) {
    values.append(piece.data, static_cast<size_t>(piece.size));
  }
  change(entry.mutable_image(), &values);
  entry.set_position(1);
  entry.set_version(run.shard().counters().version.value());
  entry.set_payload_bytes(values.size());
  v1::LogChunk chunk;
  *chunk.add_entries() = entry;
  Payload sent;
  sent.Append({values.data(), static_cast<int64_t>(values.size())}, nullptr);
  FollowedShard copy(ShardOf(kind));
  const absl::Status status = copy.Take(chunk, std::move(sent), absl::UnixEpoch()).status();
  CHECK(status.ok() == (copy.TakeOver() != nullptr));
  return status;
}

TEST_CASE("an image of cores that cannot be is refused, and leaves no copy", "[standby][core]") {
  using Image = v1::ShardImage*;
  using Values = std::string*;
  const auto refused = [](const std::function<void(Image, Values)>& change) {
    const absl::Status status = Taken(change);
    INFO(status);
    return absl::IsInvalidArgument(status);
  };
  CHECK(Taken([](Image, Values) {}).ok());
  CHECK(refused([](Image image, Values) { image->clear_cores(); }));
  CHECK(refused([](Image, Values values) { values->resize(values->size() - 1); }));
  CHECK(refused([](Image, Values values) { values->append("1234"); }));
  CHECK(refused([](Image, Values values) { values->resize(8); }));
  CHECK(refused([](Image, Values values) { values->back() ^= 1; }));  // Other keys than are named.
  CHECK(refused([](Image image, Values) {
    image->mutable_cores()->mutable_known(0)->set_keys_bytes(~uint64_t{0});
  }));
  CHECK(refused(
      [](Image image, Values) { image->mutable_cores()->mutable_known(0)->set_key_form(7); }));
  CHECK(refused([](Image image, Values) {
    image->mutable_cores()->mutable_known(0)->set_signature("short");
  }));
  CHECK(refused([](Image image, Values) {
    image->mutable_cores()->mutable_selection()->set_has_values(
        !image->cores().selection().has_values());
  }));
  CHECK(refused(
      [](Image image, Values) { image->mutable_cores()->mutable_selection()->set_core(0); }));
  CHECK(refused([](Image image, Values) {
    v1::CoresImage::Selection& selection = *image->mutable_cores()->mutable_selection();
    *selection.add_questions() = selection.questions(0);
  }));
  CHECK(refused([](Image image, Values) {
    for (int i = 0; i < 5; ++i) *image->mutable_cores()->add_known() = image->cores().known(0);
  }));
}

}  // namespace
}  // namespace tessera
