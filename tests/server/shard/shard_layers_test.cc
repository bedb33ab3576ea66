// A shard where every member pushes one half of the layers.
#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <catch2/catch.hpp>

#include "common/codec/update_reader.h"
#include "server/shard/forms/form_table.h"
#include "server/shard/log/shard_recorder.h"
#include "tests/common/codec/all_codecs.h"
#include "tests/server/shard/cut_shard.h"

namespace tessera {
namespace {

using Values = std::vector<float>;

// Floats of very different sizes: their sums depend on the order.
Values Unruly(int64_t size, uint32_t seed) {
  std::mt19937 random(seed);
  Values values(size);
  for (float& x : values) {
    const float mantissa = static_cast<float>(random()) / 4294967296.0f - 0.5f;
    x = std::ldexp(mantissa, static_cast<int>(random() % 24) - 12);
  }
  return values;
}

int64_t SizeOf(const Shard& shard, const ParameterRange& layers) {
  return SlicesOfLayers(shard.slices(), layers).size;
}

// An update of the whole model, of which a shard's entries of `layers` are pushed.
Values PartOf(const Shard& shard, const ParameterRange& layers, uint32_t seed) {
  Values part;
  for (const Slice& slice : SlicesOfLayers(shard.slices(), layers).slices) {
    const Values whole = Unruly(shard.traits().shape.parameters[slice.parameter].size(),
                                100 * slice.parameter + seed);
    part.insert(part.end(), whole.begin() + slice.row_begin * slice.columns,
                whole.begin() + slice.row_end * slice.columns);
  }
  return part;
}

std::unique_ptr<Shard> Made(Shard::Options options, int members) {
  auto shard = std::make_unique<Shard>(std::move(options));
  shard->SetPlan(PlanOfFirst(members));
  return shard;
}

Values Sum(const std::vector<Values>& parts) {
  Values sum = parts[0];
  for (size_t k = 1; k < parts.size(); ++k) {
    for (size_t i = 0; i < sum.size(); ++i) sum[i] += parts[k][i];
  }
  return sum;
}

void Refuses(Shard* shard, ReceivedPush push, const std::string& message) {
  const absl::Status status = shard->Accept(std::move(push)).status();
  CHECK(status.code() == absl::StatusCode::kInvalidArgument);
  CHECK(status.message() == message);
}

TEST_CASE("both halves have the bits of a dense mean of the same updates, in any order of arrival",
          "[shard][layers]") {
  // Members 1 to 3 have the half in front; what member 4 pushes is the sum over their minibatches.
  std::vector<int> order = {1, 2, 3, 4};
  const int count = GENERATE(1, 2, 5);
  // Servers that have one of the halves alone, or a share of both.
  Sharding sharding(count);
  sharding.cut = MiddleOfCutShape().parameter;
  sharding.last = GENERATE(0, 1, 3);
  if (sharding.last >= count) return;
  do {
    for (int s = 0; s < count; ++s) {
      const std::unique_ptr<Shard> cut = Made(CutOptions(s, sharding), 4);
      Shard::Options whole = CutOptions(s, sharding);
      whole.cut.reset();
      const std::unique_ptr<Shard> dense = Made(std::move(whole), 3);
      for (uint32_t exchange = 1; exchange <= 3; ++exchange) {
        std::vector<Values> back;
        for (uint32_t k = 1; k <= 3; ++k) back.push_back(PartOf(*cut, kBack, 10 * exchange + k));
        for (const int member : order) {
          const bool is_front = member < 4;
          MustTake(cut.get(),
                   LayersPush(*cut, member, exchange, is_front ? kFront : kBack,
                              is_front ? PartOf(*cut, kFront, 10 * exchange + member) : Sum(back),
                              is_front ? 1 : 3));
        }
        for (uint32_t member = 1; member <= 3; ++member) {
          Values update = PartOf(*dense, kFront, 10 * exchange + member);
          update.insert(update.end(), back[member - 1].begin(), back[member - 1].end());
          ReceivedPush push;
          push.member = MemberId(member);
          push.exchange = Exchange(exchange);
          push.base = dense->counters().version;
          push.layout_hash = dense->layout_hash();
          push.payload = PayloadOf(update);
          MustTake(dense.get(), std::move(push));
        }
        REQUIRE(cut->counters().version == Version(exchange));
        REQUIRE(SameBits(AllOf(cut.get()), AllOf(dense.get())));
      }
    }
  } while (std::next_permutation(order.begin(), order.end()));
}

TEST_CASE(
    "a half's mean is over the updates that its own pushes sum, and one of a removed member counts",
    "[shard][layers]") {
  const std::unique_ptr<Shard> shard = Made(CutOptions(), 4);
  Shard::Options options = CutOptions();
  const std::unique_ptr<Shard> want = Made(std::move(options), 2);
  const int64_t front = SizeOf(*shard, kFront), back = SizeOf(*shard, kBack);
  MustTake(shard.get(), LayersPush(*shard, 1, 1, kFront, Values(front, 3)));
  MustTake(shard.get(), LayersPush(*shard, 2, 1, kBack, Values(back, 10), 4));
  MustTake(shard.get(), LayersPush(*shard, 3, 1, kBack, Values(back, 6), 1));
  CHECK(shard->counters().version == Version(0));
  CHECK_FALSE(ShardRecorder::ImageOf(shard.get()).has_value());
  // Two and three were folded; nothing comes of four.
  shard->SetPlan(PlanOf(2, {{1, 1}, {3, 1}}));
  Settle(shard.get());
  CHECK(shard->counters().version == Version(1));
  MustTake(want.get(), LayersPush(*want, 1, 1, kFront, Values(front, 3)));
  MustTake(want.get(), LayersPush(*want, 2, 1, kBack, Values(back, 16), 5));
  CHECK(SameBits(AllOf(shard.get()), AllOf(want.get())));
}

TEST_CASE(
    "a proposal holds the exchange before it, so that whoever reads for it knows of the joiner",
    "[shard][layers]") {
  const std::unique_ptr<Shard> shard = Made(CutOptions(), 2);
  const auto push = [&](uint64_t exchange) {
    MustTake(shard.get(), LayersPush(*shard, 1, exchange, kFront, PartOf(*shard, kFront, 1)));
    MustTake(shard.get(), LayersPush(*shard, 2, exchange, kBack, PartOf(*shard, kBack, 2)));
  };
  // 1 is open, and its end opens 2.
  CHECK(shard->Propose(1, Exchange(2)) == Exchange(4));
  shard->Withdraw(1);
  REQUIRE(shard->Propose(2, Exchange(3)) == Exchange(3));
  push(1);
  CHECK((**shard->Read(MemberId(1), Exchange(1))).plan == Generation(1));
  push(2);
  CHECK(shard->counters().version == Version(1));
  CHECK_FALSE((*shard->Read(MemberId(1), Exchange(2))).has_value());
  shard->SetPlan(PlanOf(5, {{1, 1}, {2, 1}, {3, 3}}));
  Settle(shard.get());
  CHECK(shard->counters().version == Version(2));
  CHECK((**shard->Read(MemberId(1), Exchange(2))).plan == Generation(5));
  push(3);
  CHECK(shard->counters().version == Version(2));
  MustTake(shard.get(), LayersPush(*shard, 3, 3, kFront, PartOf(*shard, kFront, 3)));
  CHECK(shard->counters().version == Version(3));
}

TEST_CASE("a half that nobody pushes stays as it is, momentum included", "[shard][layers]") {
  const ParameterRange idle = GENERATE(kFront, kBack);
  const ParameterRange busy = idle == kFront ? kBack : kFront;
  const std::unique_ptr<Shard> shard = Made(CutOptions(), 2);
  const std::unique_ptr<Shard> want = Made(CutOptions(), 2);
  const LayerParts& parts = LayerPartsOf(shard->traits());
  const auto both = [&](Shard* to, uint64_t exchange, uint32_t seed) {
    MustTake(to, LayersPush(*to, 1, exchange, idle, PartOf(*to, idle, seed)));
    MustTake(to, LayersPush(*to, 2, exchange, busy, PartOf(*to, busy, seed)));
  };
  const auto of = [&](const Values& all, const ParameterRange& layers) {
    const LayerPart& part = *parts.Find(layers);
    const int64_t size = shard->slices().size;
    Values values(all.begin() + part.run()->begin, all.begin() + part.run()->end);
    values.insert(values.end(), all.begin() + size + part.run()->begin,
                  all.begin() + size + part.run()->end);
    return values;
  };
  both(shard.get(), 1, 1);
  both(want.get(), 1, 1);
  const Values before = AllOf(shard.get());
  MustTake(shard.get(), LayersPush(*shard, 1, 2, kNothing, {}));
  MustTake(shard.get(), LayersPush(*shard, 2, 2, busy, PartOf(*shard, busy, 2)));
  const Values after = AllOf(shard.get());
  CHECK(shard->counters().version == Version(2));
  CHECK(SameBits(of(after, idle), of(before, idle)));
  CHECK_FALSE(SameBits(of(after, busy), of(before, busy)));
  // It goes on as if there had been no such update.
  both(shard.get(), 3, 3);
  both(want.get(), 2, 3);
  CHECK(SameBits(of(AllOf(shard.get()), idle), of(AllOf(want.get()), idle)));
  // Nobody has anything at all: an update of nothing.
  const Values last = AllOf(shard.get());
  for (const uint64_t member : {1, 2}) {
    MustTake(shard.get(), LayersPush(*shard, member, 4, ParameterRange{3, 3}, {}));
  }
  CHECK(shard->counters().version == Version(4));
  CHECK(SameBits(AllOf(shard.get()), last));
}

TEST_CASE("an empty push that is the last of an update commits what the others pushed",
          "[shard][layers]") {
  const std::unique_ptr<Shard> shard = Made(CutOptions(), 3);
  const std::unique_ptr<Shard> want = Made(CutOptions(), 2);
  for (const auto& [member, layers] : {std::pair(1, kFront), std::pair(2, kBack)}) {
    MustTake(shard.get(), LayersPush(*shard, member, 1, layers, PartOf(*shard, layers, member)));
    MustTake(want.get(), LayersPush(*want, member, 1, layers, PartOf(*want, layers, member)));
  }
  MustTake(shard.get(), LayersPush(*shard, 3, 1, kNothing, {}));
  CHECK(SameBits(AllOf(shard.get()), AllOf(want.get())));
}

TEST_CASE(
    "every codec's pushes of halves are folded as what a reader sees of them, on any number of "
    "servers",
    "[shard][layers][codec]") {
  std::vector<Codec> codecs = AllCodecs();
  codecs.push_back(ThresholdCodec({0.25, 0.002, /*packed=*/true}));
  codecs.push_back(ThresholdCodec({0.25, 0.002, /*packed=*/false}));
  // Of eight a server has rows of neither half, of five one has none behind the cut.
  const int count = GENERATE(1, 2, 5, 8);
  for (const Codec& codec : codecs) {
    INFO(codec->name() << ", " << count << " servers");
    for (int s = 0; s < count; ++s) {
      const std::unique_ptr<Shard> shard = Made(CutOptions(s, count, {codec, Codec()}), 3);
      const std::unique_ptr<Shard> want = Made(CutOptions(s, count), 3);
      for (uint32_t exchange = 1; exchange <= 2; ++exchange) {
        for (uint32_t member = 1; member <= 3; ++member) {
          const ParameterRange layers = member < 3 ? kFront : kBack;
          const Values sent = PartOf(*shard, layers, 10 * exchange + member);
          ReceivedPush push = LayersPush(*shard, member, exchange, layers, sent, 2, codec);
          Values seen(sent.size());
          if (!seen.empty()) {
            UpdateReader reader(codec,
                                LayerPartsOf(shard->traits()).Find(layers)->forms().Find(codec),
                                push.payload);
            reader.Assign(static_cast<int64_t>(seen.size()), 1.0f, seen.data());
          } else {
            CHECK(push.payload.size() == 0);
          }
          MustTake(shard.get(), std::move(push));
          MustTake(want.get(), LayersPush(*want, member, exchange, layers, seen, 2));
        }
      }
      REQUIRE(SameBits(AllOf(shard.get()), AllOf(want.get())));
    }
  }
}

TEST_CASE("blocks beyond one tile and one block, on both sides of the cut, fold like small ones",
          "[shard][layers]") {
  Shard::Options options = CutOptions();
  options.shape.parameters[0].rows = 700;
  options.shape.parameters[0].columns = 1201;
  options.shape.parameters[2].rows = 900;
  options.shape.size = 0;
  for (const ParameterSpec& p : options.shape.parameters) options.shape.size += p.size();
  options.rule = MakeSgd({1.0f, 0.0f, 0.0f, false});
  const std::unique_ptr<Shard> shard = Made(std::move(options), 3);
  const int64_t front = SizeOf(*shard, kFront), back = SizeOf(*shard, kBack);
  Values a(front), b(back), c(back);
  for (int64_t i = 0; i < front; ++i) a[i] = static_cast<float>(i % 1000);
  for (int64_t i = 0; i < back; ++i) b[i] = static_cast<float>(i % 77);
  for (int64_t i = 0; i < back; ++i) c[i] = static_cast<float>(i % 13);
  const Values before = ValuesOf(*shard->ReadNow().snapshot);
  // A reader that holds all blocks: those of the other half are not copied.
  const ReadResult held = shard->ReadNow();
  MustTake(shard.get(), LayersPush(*shard, 1, 1, kFront, a));
  MustTake(shard.get(), LayersPush(*shard, 3, 1, kBack, c));
  MustTake(shard.get(), LayersPush(*shard, 2, 1, kBack, b));
  const Values after = ValuesOf(*shard->ReadNow().snapshot);
  CHECK(ValuesOf(*held.snapshot) == before);
  for (int64_t i = 0; i < front; ++i) REQUIRE(after[i] == before[i] - a[i]);
  for (int64_t i = 0; i < back; ++i) {
    REQUIRE(after[front + i] == before[front + i] - 0.5f * (b[i] + c[i]));
  }
}

TEST_CASE("pushes of other keys than a half or nothing are refused by what is wanted",
          "[shard][layers]") {
  const std::unique_ptr<Shard> shard = Made(CutOptions(), 2);
  const int64_t front = SizeOf(*shard, kFront);
  const auto good = [&] { return LayersPush(*shard, 1, 1, kFront, Values(front, 1)); };
  const std::string where = "push from member 1 exchange 1: ";
  ReceivedPush push = good();
  push.keys = AllEntries();
  Refuses(shard.get(), std::move(push),
          where + "keys are dense, want some layers'; the job's methods differ");
  push = good();
  push.keys = SubnetPlace();
  Refuses(shard.get(), std::move(push),
          where + "keys are a subnet's, want some layers'; the job's methods differ");
  for (const ParameterRange& wrong :
       {ParameterRange{0, 4}, {0, 1}, {1, 2}, {2, 3}, {0, 9}, {2, 1}}) {
    push = good();
    push.keys = wrong;
    Refuses(shard.get(), std::move(push),
            where + "layers are parameters " + std::to_string(wrong.begin) + " to " +
                std::to_string(wrong.end) +
                ", want 0 to 2, 2 to 4 or none; the job's methods differ");
  }
  for (const uint64_t wrong : {uint64_t{0}, kSummedMax + 1}) {
    push = good();
    push.summed = wrong;
    Refuses(shard.get(), std::move(push),
            where + "summed is " + std::to_string(wrong) + ", want 1 to 65535");
  }
  push = good();
  push.keys = kBack;
  Refuses(shard.get(), std::move(push),
          where +
              "payload is 336 bytes, want 7224 (1806 entries as f32); layouts differ, compare "
              "layout_hash in status");
  push = good();
  push.keys = kNothing;
  Refuses(shard.get(), std::move(push),
          where +
              "payload is 336 bytes, want 0 (0 entries as f32); layouts differ, compare "
              "layout_hash in status");
  push = LayersPush(*shard, 1, 1, kBack, Values(SizeOf(*shard, kBack), 1));
  push.bad_entry = 601 + 5;
  Refuses(shard.get(), std::move(push),
          where + DescribeEntry(shard->traits().shape, shard->slices(), front + 601 + 5) +
              " is not finite; the training diverged, try a lower learning rate");
  CHECK(shard->counters().pushes == 0);
  push = good();
  push.summed = kSummedMax;
  CHECK(shard->Accept(std::move(push)).ok());

  Shard::Options whole = CutOptions();
  whole.cut.reset();
  const std::unique_ptr<Shard> dense = Made(std::move(whole), 1);
  Refuses(dense.get(), LayersPush(*dense, 1, 1, kFront, Values(front, 1)),
          where + "keys are some layers', want dense; the job's methods differ");
  push = LayersPush(*dense, 1, 1, kFront, Values(front, 1), 2);
  push.keys = AllEntries();
  Refuses(dense.get(), std::move(push), where + "summed is 2, want 1 where keys are dense");

  const Codec codec = ThresholdCodec({0.25, 0.002, false});
  const std::unique_ptr<Shard> coded = Made(CutOptions(0, 1, {codec, Codec()}), 1);
  push = LayersPush(*coded, 1, 1, kNothing, {}, 1, codec);
  push.payload = PayloadOf({1, 2});
  Refuses(coded.get(), std::move(push), where + "payload is 8 bytes, want 0 (0 entries)");
}

TEST_CASE("a shard that is yet to be made is said to have the same layers", "[shard][layers]") {
  const std::unique_ptr<Shard> shard = Made(CutOptions(1, 2, {Int8Codec(), Codec()}), 1);
  const ShardTraits before = TraitsOf(CutOptions(1, 2, {Int8Codec(), Codec()}));
  const ShardTraits& after = shard->traits();
  CHECK_FALSE(before.keys->OfPush(AllEntries(), 1).ok());
  CHECK_FALSE(after.keys->OfPush(AllEntries(), 1).ok());
  for (const ParameterRange& layers : {kFront, kBack, kNothing}) {
    const LayerPart& a = *LayerPartsOf(before).Find(layers);
    const LayerPart& b = *LayerPartsOf(after).Find(layers);
    CHECK((a.run()->begin == b.run()->begin && a.run()->end == b.run()->end));
    CHECK(a.forms().Find(Int8Codec())->bytes() == b.forms().Find(Int8Codec())->bytes());
  }
  CHECK(LayerPartsOf(after).front().run()->end == LayerPartsOf(after).back().run()->begin);
  CHECK_FALSE(ShardRecorder::CombinesPushes(*shard));
}

}  // namespace
}  // namespace tessera
