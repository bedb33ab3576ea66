// A standby of a shard whose members push halves of the layers: it is sent every push, and has the same bits.
#include <memory>
#include <random>
#include <utility>
#include <vector>

#include <catch2/catch.hpp>

#include "server/shard/log/shard_recorder.h"
#include "tests/common/codec/all_codecs.h"
#include "tests/server/rpc/led_shard.h"
#include "tests/server/shard/cut_shard.h"

namespace tessera {
namespace {

constexpr uint64_t kMembers = 3;

std::unique_ptr<Shard> Made(const CodecChoice& codecs) {
  return std::make_unique<Shard>(CutOptions(0, 1, codecs));
}

// Members that push, one of two halves or nothing, in an order by chance; what is on its way arrives by chance, too.
class Run {
 public:
  Run(const CodecChoice& codecs, unsigned seed)
      : codecs_(codecs), random_(seed), leader_(std::make_unique<Leader>(Made(codecs))) {
    leader_->SetPlan(PlanOfFirst(kMembers));
  }

  bool Chance(int of) { return std::uniform_int_distribution<int>(1, of)(random_) == 1; }
  void AddStandby() {
    standby_ = std::make_shared<Standby>(Made(codecs_));
    leader_->gate.SetStandby(standby_);
  }
  void Step() {
    if (Chance(2)) leader_->Advance(absl::UnixEpoch());
    if (standby_ != nullptr && Chance(2)) standby_->Deliver(&leader_->gate);
    const uint64_t member = 1 + random_() % kMembers;
    const Exchange exchange(done_[member - 1] + 1);
    if (leader_->shard->counters().version.value() + 1 != exchange.value()) return;
    ++done_[member - 1];
    ParameterRange layers = member < kMembers ? kFront : kBack;
    if (Chance(5)) layers = kNothing;
    std::vector<float> values(SlicesOfLayers(leader_->shard->slices(), layers).size);
    for (float& x : values) x = std::uniform_real_distribution<float>(-1, 1)(random_);
    leader_->Push(LayersPush(*leader_->shard, member, exchange.value(), layers, values,
                             1 + random_() % 4, codecs_.push),
                  [](const absl::Status& status) {
                    INFO(status);
                    REQUIRE(status.ok());
                  });
  }
  void Drain() {
    while (leader_->Advance(absl::UnixEpoch())) {
    }
    while (standby_->Deliver(&leader_->gate)) {
    }
  }
  // The standby leads from now on.
  void TakeOver() {
    std::unique_ptr<Shard> shard = standby_->TakeOver();
    REQUIRE(shard != nullptr);
    dead_.push_back(std::move(leader_));
    leader_ = std::make_unique<Leader>(std::move(shard));
    leader_->SetPlan(PlanOfFirst(kMembers));
  }
  bool in_sync() const { return standby_->in_sync; }
  Shard& shard() { return *leader_->shard; }

 private:
  const CodecChoice codecs_;
  std::mt19937 random_;
  uint64_t done_[kMembers] = {};
  std::vector<std::unique_ptr<Leader>> dead_;
  std::unique_ptr<Leader> leader_;
  std::shared_ptr<Standby> standby_;
};

TEST_CASE(
    "a standby of halves has the bits of its leader after any schedule, and goes on with them",
    "[standby][layers]") {
  const Codec threshold = ThresholdCodec({0.25, 0.002, false});
  const Codec push = GENERATE_COPY(values({Codec(), Int8Codec(), threshold}));
  for (unsigned seed = 1; seed <= 30; ++seed) {
    INFO(push->name() << ", seed " << seed);
    Run run({push, Codec()}, seed);
    if (seed % 2 == 0) run.AddStandby();
    for (unsigned i = 0; i < 200 + seed; ++i) {
      // From an image, which is taken between updates, and has no counts of the halves' pushes.
      if (i == 60 && seed % 2 == 1) run.AddStandby();
      run.Step();
    }
    run.Drain();
    REQUIRE(run.in_sync());
    const Version version = run.shard().counters().version;
    const std::vector<float> values = ValuesOf(*run.shard().ReadNow().snapshot);
    const std::optional<ImageEvent> image = ShardRecorder::ImageOf(&run.shard());
    const std::vector<float> all = image.has_value() ? AllOf(&run.shard()) : std::vector<float>();
    CHECK(version.value() > 3);
    run.TakeOver();
    CHECK(run.shard().counters().version == version);
    CHECK(SameBits(ValuesOf(*run.shard().ReadNow().snapshot), values));
    if (image.has_value()) CHECK(SameBits(AllOf(&run.shard()), all));
    // What was half collected is there, too.
    for (int i = 0; i < 100; ++i) run.Step();
    CHECK(run.shard().counters().version > version);
  }
}

TEST_CASE("a logged push says its layers and how many updates it sums", "[standby][layers]") {
  const std::unique_ptr<Shard> shard = Made({});
  for (const ParameterRange& layers : {kFront, kBack, ParameterRange{3, 3}}) {
    const std::vector<float> values(SlicesOfLayers(shard->slices(), layers).size, 1.5f);
    Payload payload;
    const v1::LogEntry entry =
        ToMessage(PushEvent{LayersPush(*shard, 2, 7, layers, values, 65535)}, &payload);
    const absl::StatusOr<ShardEvent> event = FromMessage(entry, std::move(payload), Codec());
    REQUIRE(event.ok());
    const ReceivedPush& push = std::get<PushEvent>(*event).push;
    CHECK(std::get<ParameterRange>(push.keys) == layers);
    CHECK(push.summed == 65535);
    CHECK(push.payload.size() == static_cast<int64_t>(values.size() * sizeof(float)));
  }
  v1::LogEntry entry;
  entry.mutable_push()->mutable_header()->mutable_keys()->mutable_layers()->set_parameter_begin(1);
  CHECK(absl::IsInvalidArgument(FromMessage(entry, Payload(), Codec()).status()));
}

}  // namespace
}  // namespace tessera
