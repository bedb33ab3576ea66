// Exchanges of halves of the layers over gRPC, between workers that have different ones.
#include <cmath>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <catch2/catch.hpp>

#include "absl/strings/match.h"
#include "common/consistency/barrier.h"
#include "common/keyset/key_set.h"
#include "common/layout/layer_cut.h"
#include "tests/common/codec/all_codecs.h"
#include "tests/server/rpc/running_servers.h"
#include "tests/worker/rpc/scripted_server.h"
#include "worker/rpc/parameter_client_grpc.h"

namespace tessera {
namespace {

// Two parameters on each side of the cut; odd sizes, and rows that are several buckets.
ModelShape CutShape() {
  ModelShape shape;
  shape.parameters = {{"a", 37, 701, false, 0, 0.5f, 0},
                      {"b", 37, 1, true, 0, 0.5f, 0},
                      {"c", 5, 1303, false, 1, 0.5f, 0},
                      {"d", 5, 1, true, 1, 0.5f, 0}};
  for (const ParameterSpec& p : shape.parameters) shape.size += p.size();
  return shape;
}

LayerCut Cut() {
  LayerCut cut;
  cut.layer = 1;
  cut.parameter = 2;
  cut.layers = 2;
  cut.parameters = 4;
  return cut;
}

// Arrays of the parameters of `layers`; those of others are empty.
Replica Half(const ModelShape& shape, const ParameterRange& layers, float value = 0) {
  Replica replica(shape, value);
  for (int p = 0; p < static_cast<int>(shape.parameters.size()); ++p) {
    if (p < layers.begin || p >= layers.end) replica.data[p].clear();
  }
  return replica;
}

// One worker of a half.
struct Side {
  Side(const RunningServers& servers, uint64_t number, ParameterRange range,
       const CodecChoice& codecs)
      : member(number),
        layers(range),
        shape(servers.shape()),
        count(static_cast<int>(servers.addresses().size())),
        values(Half(shape, range, -1)) {
    ParameterClientGrpc::Options options = OptionsFor(servers, number);
    options.coding = {codecs, shape, 7, Rank(number - 1)};
    options.coding.layers = range;
    client = Client(std::move(options));
  }
  KeySet Keys() const { return LayerKeys(shape, count, layers); }
  absl::Status Pull() {
    const ParameterArrays arrays = values;
    return client->Pull(Exchange(0), Keys(), arrays).status();
  }
  absl::Status PushPull(uint64_t exchange, const Replica& update, const ParameterRange& pushed,
                        uint64_t summed = 1, bool flush = false) {
    OutgoingPush push{Exchange(exchange), 1};
    push.summed = summed;
    push.flush = flush;
    return client->PushPull(push, LayerKeys(shape, count, pushed), update, Keys(), values).status();
  }

  const uint64_t member;
  const ParameterRange layers;
  const ModelShape shape;
  const int count;
  Replica values;
  std::unique_ptr<ParameterClientGrpc> client;
};

// Runs all at once, as members of a barrier do.
template <typename... Calls>
void Together(Calls... calls) {
  std::vector<std::thread> threads;
  (threads.emplace_back([calls] { calls(); }), ...);
  for (std::thread& thread : threads) thread.join();
}

Replica Initial(const ModelShape& shape) {
  Replica replica(shape);
  for (size_t p = 0; p < replica.data.size(); ++p) {
    FillInitialRows(shape.parameters[p], static_cast<int>(p), 7, 0, shape.parameters[p].rows,
                    replica.data[p].data());
  }
  return replica;
}

Replica All(Side& side) {
  Replica all(side.shape);
  REQUIRE(side.client->Read(Exchange(0), IdleNotice(), all).ok());
  return all;
}

const ParameterRange kFront = Cut().front(), kBack = Cut().back();
constexpr ParameterRange kNothing;

TEST_CASE("workers of different halves push and pull their own, and each half has its own mean",
          "[rpc][client][layers]") {
  const ModelShape shape = CutShape();
  // Of 50 servers most own nothing behind the cut, and some nothing at all.
  const int count = GENERATE(1, 3, 50);
  RunningServers servers(shape, count, MakeBarrier, 3, std::nullopt, false, {}, std::nullopt,
                         Cut());
  Side one(servers, 1, kFront, {}), two(servers, 2, kFront, {}), back(servers, 3, kBack, {});
  Replica want = Initial(shape);
  for (Side* side : {&one, &two, &back}) REQUIRE(side->Pull().message() == "");
  for (int p = 0; p < 4; ++p) {
    CHECK((p < 2 ? one : back).values.data[p] == want.data[p]);
  }
  const uint64_t payload =
      4 * static_cast<uint64_t>(shape.parameters[0].size() + shape.parameters[1].size());
  CHECK(one.client->traffic().pull_payload_bytes == payload);
  for (uint64_t exchange = 1; exchange <= 3; ++exchange) {
    // The second worker of the front has nothing in the second exchange.
    const bool has_nothing = exchange == 2;
    absl::Status status[3];
    Together([&] { status[0] = one.PushPull(exchange, Half(shape, kFront, 3.0f), kFront); },
             [&] {
               status[1] = two.PushPull(exchange, Half(shape, kFront, 5.0f),
                                        has_nothing ? kNothing : kFront);
             },
             [&] { status[2] = back.PushPull(exchange, Half(shape, kBack, 8.0f), kBack, 4); });
    for (const absl::Status& s : status) REQUIRE(s.message() == "");
    for (int p = 0; p < 4; ++p) {
      for (float& x : want.data[p]) x += p >= 2 ? 2.0f : has_nothing ? 3.0f : 4.0f;
      CHECK((p < 2 ? one : back).values.data[p] == want.data[p]);
      if (p < 2) CHECK(two.values.data[p] == want.data[p]);
    }
  }
  CHECK(SameBits(All(two), want));
  CHECK(one.client->traffic().push_payload_bytes == 3 * payload);
  CHECK(two.client->traffic().push_payload_bytes == 2 * payload);
  std::vector<float> rows(2 * 1303);
  REQUIRE(one.client->ReadRows({2, 1, 3}, absl::MakeSpan(rows)).ok());
  CHECK(rows == std::vector<float>(want.data[2].begin() + 1303, want.data[2].begin() + 3 * 1303));
}

TEST_CASE("halves go and come as any codec writes them, and what is held back is of the half alone",
          "[rpc][client][layers][codec]") {
  const Codec led = ThresholdCodec({0, 0.05, false});
  const Codec fixed = ThresholdCodec({0.25, 0.002, /*packed=*/true});
  const std::vector<CodecChoice> choices = {{Int8Codec(), Bf16Codec(), true, true},
                                            {QsgdCodec(4, 64), Int8Codec(), true, true},
                                            {F16Codec(), QsgdCodec(6, 48), true, true},
                                            {led, Codec(), false, true},
                                            {fixed, Bf16Codec(), false, true}};
  const ModelShape shape = CutShape();
  const int count = GENERATE(1, 3, 50);
  for (const CodecChoice& codecs : choices) {
    INFO(Describe(codecs) << ", " << count << " servers");
    RunningServers servers(shape, count, MakeBarrier, 2, std::nullopt, false, codecs, std::nullopt,
                           Cut());
    Side front(servers, 1, kFront, codecs), back(servers, 2, kBack, codecs);
    Replica want = Initial(shape);
    for (Side* side : {&front, &back}) REQUIRE(side->Pull().message() == "");
    constexpr uint64_t kExchanges = 6;
    for (uint64_t exchange = 1; exchange <= kExchanges; ++exchange) {
      const bool has_nothing = exchange == 3;
      Replica update(shape);
      for (size_t p = 0; p < 4; ++p) {
        for (size_t i = 0; i < update.data[p].size(); ++i) {
          update.data[p][i] =
              std::ldexp(std::sin(static_cast<float>(i * exchange + p)), -static_cast<int>(i % 7));
          if (!(has_nothing && p < 2)) want.data[p][i] += update.data[p][i];
        }
      }
      Replica of[2] = {update, update};
      for (size_t p = 0; p < 4; ++p) of[p < 2 ? 1 : 0].data[p].clear();
      const auto held = *front.client->held_back();
      REQUIRE(held.size() == 4);
      CHECK((held[0].size() == update.data[0].size() && held[3].empty()));
      const std::vector<float> before(held[0].begin(), held[0].end());
      absl::Status status[2];
      Together(
          [&] {
            status[0] = front.PushPull(exchange, of[0], has_nothing ? kNothing : kFront, 1,
                                       exchange == kExchanges);
          },
          [&] { status[1] = back.PushPull(exchange, of[1], kBack, 1, exchange == kExchanges); });
      for (const absl::Status& s : status) REQUIRE(s.message() == "");
      const std::vector<float> after(held[0].begin(), held[0].end());
      CHECK((after == before) == has_nothing);
    }
    // All that was held back came with the last push, and what is read outside is exact.
    const Replica all = All(front);
    double worst = 0;
    for (size_t p = 0; p < 4; ++p) {
      for (size_t i = 0; i < want.data[p].size(); ++i) {
        worst = std::max<double>(worst, std::fabs(all.data[p][i] - want.data[p][i]));
        const float got = (p < 2 ? front : back).values.data[p][i];
        REQUIRE(got == Approx(all.data[p][i]).margin(0.3));
      }
    }
    CHECK(worst < 1e-5);
    const uint64_t pushed = front.client->traffic().push_payload_bytes;
    CHECK(pushed < 4 * kExchanges * static_cast<uint64_t>(shape.parameters[0].size()));
  }
}

TEST_CASE("an update of a half that is not finite is refused by the entry of the whole model",
          "[rpc][client][layers]") {
  const ModelShape shape = CutShape();
  for (const Codec& codec : {Codec(), Int8Codec(), ThresholdCodec()}) {
    const CodecChoice codecs{codec, Codec()};
    RunningServers servers(shape, 1, MakeBarrier, 1, std::nullopt, false, codecs, std::nullopt,
                           Cut());
    Side back(servers, 1, kBack, codecs);
    REQUIRE(back.Pull().ok());
    Replica update = Half(shape, kBack, 1);
    update.data[2][3 * 1303] = std::nanf("");
    const absl::Status status = back.PushPull(1, update, kBack);
    CHECK(status.code() == absl::StatusCode::kInvalidArgument);
    INFO(status);
    CHECK(absl::StrContains(status.message(), "finite"));
    if (codec->selective() == nullptr) {
      const int64_t entry = shape.parameters[0].size() + shape.parameters[1].size() + 3 * 1303;
      CHECK(absl::StrContains(status.message(),
                              DescribeEntry(shape, servers.slices()[0], entry) + " is not finite"));
    }
  }
}

TEST_CASE("who sends values on is told of the half's parameters alone", "[rpc][client][layers]") {
  struct Sink final : ValueSink {
    void Take(size_t parameter) override { taken.push_back(parameter); }
    std::vector<size_t> taken;
  };
  const ModelShape shape = CutShape();
  RunningServers servers(shape, 3, MakeBarrier, 1, std::nullopt, false, {}, std::nullopt, Cut());
  Side back(servers, 1, kBack, {});
  REQUIRE(back.Pull().ok());
  Sink sink;
  OutgoingPush push{Exchange(1), 1};
  push.sink = &sink;
  REQUIRE(back.client->PushPull(push, back.Keys(), Half(shape, kBack, 1), back.Keys(), back.values)
              .ok());
  REQUIRE(sink.taken.size() >= 2);
  for (const size_t parameter : sink.taken) CHECK(parameter >= 2);
  CHECK(sink.taken.back() == 3);
}

}  // namespace
}  // namespace tessera
