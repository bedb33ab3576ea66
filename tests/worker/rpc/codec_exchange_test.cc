// Coded pushes and pulls over gRPC, against what the codec's own encoder and reader say.
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <catch2/catch.hpp>

#include "absl/strings/match.h"
#include "common/base/philox.h"
#include "common/codec/decoder.h"
#include "common/codec/encoder.h"
#include "common/codec/threshold_payload.h"
#include "common/consistency/barrier.h"
#include "common/consistency/none.h"
#include "common/keyset/key_set.h"
#include "tests/common/codec/all_codecs.h"
#include "tests/server/rpc/running_servers.h"
#include "tests/worker/rpc/client_options.h"
#include "worker/rpc/parameter_client_grpc.h"

namespace tessera {
namespace {

using Arrays = std::vector<std::vector<float>>;

std::unique_ptr<ConsistencyPolicy> None() { return MakeNone(1); }

ParameterArrays Views(Arrays& arrays) {
  ParameterArrays views;
  for (auto& a : arrays) views.push_back(absl::MakeSpan(a));
  return views;
}
ConstParameterArrays ConstViews(const Arrays& arrays) {
  ConstParameterArrays views;
  for (const auto& a : arrays) views.push_back(absl::MakeConstSpan(a));
  return views;
}

Arrays Zeros(const ModelShape& shape) {
  Arrays arrays;
  for (const ParameterSpec& spec : shape.parameters) arrays.emplace_back(spec.size());
  return arrays;
}

Arrays Initial(const ModelShape& shape) {
  Arrays arrays = Zeros(shape);
  for (size_t i = 0; i < arrays.size(); ++i) {
    FillInitialRows(shape.parameters[i], i, 7, 0, shape.parameters[i].rows, arrays[i].data());
  }
  return arrays;
}

// Of many magnitudes.
Arrays Update(const ModelShape& shape, uint64_t number) {
  Arrays arrays = Zeros(shape);
  uint64_t b = 0;
  for (auto& array : arrays) {
    for (float& x : array) {
      const PhiloxBlock random = Philox(number, Stream::kInitialValues, 99, b++);
      x = (UnitFloat(random[0]) - 0.5f) * std::ldexp(1.0f, -static_cast<int>(random[1] % 12));
    }
  }
  return arrays;
}

// What a reader sees of the rows of `slices` in `arrays`, written by `codec`.
void Pass(const Codec& codec, const ModelShape& shape, const ShardSlices& slices,
          const PayloadRandom& random, const Arrays& arrays, Arrays* seen) {
  const CodedKeys keys(codec, slices, shape);
  std::vector<float> entries;
  for (const Slice& slice : slices.slices) {
    const float* const begin = arrays[slice.parameter].data() + slice.row_begin * slice.columns;
    entries.insert(entries.end(), begin, begin + slice.size());
  }
  std::vector<char> bytes(keys.bytes());
  Encoder encoder(keys, random);
  const int64_t count = static_cast<int64_t>(entries.size());
  const auto step = encoder.Encode(entries.data(), count, bytes.data(), keys.bytes());
  REQUIRE(step.entries == count);
  REQUIRE(step.bytes == keys.bytes());
  Payload payload;
  payload.Append({bytes.data(), keys.bytes()}, nullptr);
  PayloadReader(keys, payload).Assign(count, 1.0f, entries.data());
  const float* from = entries.data();
  for (const Slice& slice : slices.slices) {
    std::copy_n(from, slice.size(),
                (*seen)[slice.parameter].data() + slice.row_begin * slice.columns);
    from += slice.size();
  }
}

int64_t BytesOf(const Codec& codec, const ModelShape& shape, const std::vector<ShardSlices>& all) {
  int64_t bytes = 0;
  for (const ShardSlices& slices : all) bytes += CodedKeys(codec, slices, shape).bytes();
  return bytes;
}

std::unique_ptr<ParameterClientGrpc> Client(const RunningServers& servers,
                                            const CodecChoice& codecs, uint64_t member = 1) {
  ParameterClientGrpc::Options options = OptionsFor(servers, member);
  options.coding = {codecs, servers.shape(), 7, Rank(member - 1)};
  auto client = ParameterClientGrpc::Create(std::move(options));
  REQUIRE(client.ok());
  return *std::move(client);
}

bool Same(const Arrays& a, const Arrays& b) {
  for (size_t i = 0; i < a.size(); ++i) {
    if (std::memcmp(a[i].data(), b[i].data(), a[i].size() * sizeof(float)) != 0) return false;
  }
  return true;
}

TEST_CASE("every codec moves what its own reader sees of its own bytes", "[rpc][codec]") {
  const Codec f32;
  const std::vector<CodecChoice> choices = {
      {Bf16Codec(), f32},        {f32, F16Codec()},  {Int8Codec(), Bf16Codec()},
      {F16Codec(), Int8Codec()}, {QsgdCodec(), f32}, {QsgdCodec(3, 100, true), QsgdCodec(5, 64)},
  };
  for (const CodecChoice& codecs : choices) {
    for (const int count : {1, 3}) {
      // Odd sizes, rows that are several buckets; a large one that is sent in many chunks.
      for (const ModelShape& shape : {TestShape(37, 701), TestShape(2100, 1003)}) {
        INFO(Describe(codecs) << ", " << count << " servers, " << shape.size << " entries");
        RunningServers servers(shape, count, None, 1, std::nullopt, false, codecs);
        const auto client = Client(servers, codecs);
        Arrays home = Initial(shape), values = Zeros(shape), want = Zeros(shape);
        REQUIRE(client->Pull(Exchange(0), client->dense_keys(), Views(values)).ok());
        for (const ShardSlices& slices : servers.slices()) {
          Pass(codecs.pull, shape, slices, PayloadRandom::OfValues(7, Version(0), slices.shard),
               home, &want);
        }
        CHECK(Same(values, want));
        for (uint64_t exchange = 1; exchange <= 2; ++exchange) {
          const Arrays update = Update(shape, exchange);
          Arrays seen = Zeros(shape);
          for (const ShardSlices& slices : servers.slices()) {
            Pass(codecs.push, shape, slices,
                 PayloadRandom::OfPush(7, Rank(0), Exchange(exchange), slices.shard), update,
                 &seen);
          }
          for (size_t i = 0; i < home.size(); ++i) {
            for (size_t j = 0; j < home[i].size(); ++j) home[i][j] += seen[i][j];
          }
          REQUIRE(client
                      ->PushPull({Exchange(exchange), 1}, client->dense_keys(), ConstViews(update),
                                 client->dense_keys(), Views(values))
                      .status()
                      .message() == "");
          for (const ShardSlices& slices : servers.slices()) {
            Pass(codecs.pull, shape, slices,
                 PayloadRandom::OfValues(7, Version(exchange), slices.shard), home, &want);
          }
          CHECK(Same(values, want));
        }
        // Reads outside an exchange bring what the servers have, exactly.
        REQUIRE(client->Read(Exchange(2), IdleNotice(), Views(values)).ok());
        CHECK(Same(values, home));
        const Traffic traffic = client->traffic();
        CHECK(traffic.push_payload_bytes == 2 * BytesOf(codecs.push, shape, servers.slices()));
        CHECK(traffic.pull_payload_bytes == 3 * BytesOf(codecs.pull, shape, servers.slices()));
        CHECK(traffic.other_payload_bytes == 4 * static_cast<uint64_t>(shape.size));
      }
    }
  }
}

TEST_CASE("subnets go and come as any codec writes them", "[rpc][codec][subnet]") {
  v1::Model model;
  model.add_input(60);
  for (const int units : {90, 150, 40}) {
    v1::Linear* const linear = model.add_layers()->mutable_linear();
    linear->set_units(units);
    linear->set_bias(true);
  }
  const ModelShape full = *ShapeOf(model);
  const NeuronGroups groups = GroupsOf(full);
  const std::vector<CodecChoice> choices = {
      {Bf16Codec(), F16Codec()},
      {Int8Codec(), Int8Codec()},
      {QsgdCodec(4, 32), QsgdCodec(6, 48, true)},
  };
  for (const CodecChoice& codecs : choices) {
    for (const int count : {1, 2, 5}) {
      INFO(Describe(codecs) << ", " << count << " servers");
      RunningServers servers(full, count, MakeBarrier, 1, groups, false, codecs);
      ParameterClientGrpc::Options options;
      options.servers = servers.addresses();
      options.slices = servers.slices();
      options.layout_hash = servers.layout_hash();
      options.member = MemberId(1);
      options.generation = Generation(3);
      options.job_digest = kDigest;
      options.kind = v1::VALUE;
      options.coding = {codecs, full, 7, Rank(0)};
      const auto client = *ParameterClientGrpc::Create(std::move(options));
      const auto keys_of = [&](uint64_t round) {
        SubnetPlace place;
        place.seed = 7;
        place.round = round;
        place.shares = {1};
        return SubnetKeys(full, SubnetOf(full, groups, place), place, count);
      };
      // One site has all of it, in the order of its own rows and columns, which are ascending.
      Arrays values = Zeros(full), want = Zeros(full), home = Initial(full);
      REQUIRE(client->Pull(Exchange(0), keys_of(1), Views(values)).status().message() == "");
      for (const ShardSlices& slices : servers.slices()) {
        Pass(codecs.pull, full, slices, PayloadRandom::OfValues(7, Version(0), slices.shard), home,
             &want);
      }
      CHECK(Same(values, want));
      const Arrays update = Update(full, 5);
      for (const ShardSlices& slices : servers.slices()) {
        Pass(codecs.push, full, slices,
             PayloadRandom::OfPush(7, Rank(0), Exchange(1), slices.shard), update, &home);
      }
      REQUIRE(client
                  ->PushPull({Exchange(1), 1}, keys_of(1), ConstViews(update), keys_of(2),
                             Views(values))
                  .status()
                  .message() == "");
      for (const ShardSlices& slices : servers.slices()) {
        Pass(codecs.pull, full, slices, PayloadRandom::OfValues(7, Version(1), slices.shard), home,
             &want);
      }
      CHECK(Same(values, want));
    }
  }
}

// Sums in f64 of what was to be sent, to compare with what the servers have.
struct Sums {
  explicit Sums(const ModelShape& shape) {
    for (const ParameterSpec& spec : shape.parameters) sums.emplace_back(spec.size());
  }
  void Add(const Arrays& arrays) {
    for (size_t i = 0; i < arrays.size(); ++i) {
      for (size_t j = 0; j < arrays[i].size(); ++j) sums[i][j] += arrays[i][j];
    }
  }
  double WorstAgainst(const Arrays& arrays) const {
    double worst = 0;
    for (size_t i = 0; i < arrays.size(); ++i) {
      for (size_t j = 0; j < arrays[i].size(); ++j) {
        worst = std::max(worst, std::fabs(arrays[i][j] - sums[i][j]));
      }
    }
    return worst;
  }
  std::vector<std::vector<double>> sums;
};

TEST_CASE("what is held back comes with the flush, whatever was sent until then", "[rpc][codec]") {
  const Codec led = ThresholdCodec({0, 0.01, false});
  const Codec fixed = ThresholdCodec({0.25, 0.002, /*packed=*/true});
  const ModelShape shape = TestShape(41, 307);
  const std::vector<CodecChoice> choices = {{led, Codec(), false, true},
                                            {fixed, Bf16Codec(), false, true},
                                            {Int8Codec(), Codec(), true, true},
                                            {Bf16Codec(), Codec(), true, true}};
  const int count = GENERATE(1, 3);
  for (const CodecChoice& codecs : choices) {
    INFO(Describe(codecs) << ", " << count << " servers");
    RunningServers servers(shape, count, None, 1, std::nullopt, false, codecs);
    const auto client = Client(servers, codecs);
    Arrays values = Zeros(shape);
    Sums sums(shape);
    sums.Add(Initial(shape));
    REQUIRE(client->Pull(Exchange(0), client->dense_keys(), Views(values)).ok());
    constexpr uint64_t kExchanges = 60;
    uint64_t before_last = 0;
    for (uint64_t exchange = 1; exchange <= kExchanges; ++exchange) {
      const Arrays update = Update(shape, exchange);
      sums.Add(update);
      OutgoingPush push{Exchange(exchange), 1};
      push.flush = exchange == kExchanges;
      if (push.flush) {
        before_last = client->traffic().push_payload_bytes;
        Arrays read = Zeros(shape);
        REQUIRE(client->Read(Exchange(exchange - 1), IdleNotice(), Views(read)).ok());
        // Something is held back, or this would show nothing.
        CHECK(sums.WorstAgainst(read) > 1e-4);
      }
      REQUIRE(client
                  ->PushPull(push, client->dense_keys(), ConstViews(update), client->dense_keys(),
                             Views(values))
                  .status()
                  .message() == "");
    }
    REQUIRE(client->Read(Exchange(kExchanges), IdleNotice(), Views(values)).ok());
    CHECK(sums.WorstAgainst(values) < 2e-6);
    CHECK(client->traffic().push_payload_bytes - before_last ==
          4 * static_cast<uint64_t>(shape.size));
    if (codecs.push == led) {
      const double per_push = static_cast<double>(before_last) / (kExchanges - 1);
      CHECK(per_push < 2 * 0.01 * 4 * static_cast<double>(shape.size));
      CHECK(per_push > 0.5 * 0.01 * 4 * static_cast<double>(shape.size));
    }
  }
}

TEST_CASE("an update that is not finite is refused in every codec", "[rpc][codec]") {
  const ModelShape shape = TestShape(20, 601);
  std::vector<Codec> all = {QsgdCodec(), ThresholdCodec(), TopkCodec()};
  for (const Codec& codec : AllCodecs()) {
    if (codec->name() == codec->kind()) all.push_back(codec);
  }
  for (const Codec& codec : all) {
    for (const float bad :
         {std::numeric_limits<float>::quiet_NaN(), -std::numeric_limits<float>::infinity()}) {
      const CodecChoice codecs{codec, Codec()};
      INFO(Describe(codecs) << " " << bad);
      RunningServers servers(shape, 2, None, 1, std::nullopt, false, codecs);
      const auto client = Client(servers, codecs);
      Arrays values = Zeros(shape), update = Update(shape, 1);
      REQUIRE(client->Pull(Exchange(0), client->dense_keys(), Views(values)).ok());
      update[0][19 * 601 + 77] = bad;
      const absl::Status status =
          client
              ->PushPull({Exchange(1), 1}, client->dense_keys(), ConstViews(update),
                         client->dense_keys(), Views(values))
              .status();
      CHECK(status.code() == absl::StatusCode::kInvalidArgument);
      CHECK(absl::StrContains(status.message(), "finite"));
    }
  }
}

TEST_CASE("a job's codec and f32 are understood, another is refused with both names",
          "[rpc][codec]") {
  const ModelShape shape = TestShape(20, 601);
  const CodecChoice codecs{Int8Codec(), Bf16Codec()};
  RunningServers servers(shape, 1, None, 3, std::nullopt, false, codecs);
  Arrays values = Zeros(shape);
  const Arrays update = Update(shape, 1);
  const auto exchange = [&](const CodecChoice& spoken, uint64_t member) {
    const auto client = Client(servers, spoken, member);
    return client
        ->PushPull({Exchange(1), 1}, client->dense_keys(), ConstViews(update), client->dense_keys(),
                   Views(values))
        .status();
  };
  CHECK(exchange(codecs, 1).message() == "");
  CHECK(exchange({}, 2).message() == "");
  const absl::Status push = exchange({QsgdCodec(), Codec()}, 3);
  CHECK(push.code() == absl::StatusCode::kInvalidArgument);
  CHECK(absl::StrContains(push.message(),
                          "push from member 3 exchange 1: codec is \"qsgd (8 bits, buckets of 512, "
                          "max norm)\", want int8 or f32"));
  const absl::Status pull = exchange({Codec(), F16Codec()}, 3);
  CHECK(pull.code() == absl::StatusCode::kInvalidArgument);
  CHECK(absl::StrContains(pull.message(), "codec is \"f16\", want bf16 or f32"));
}

}  // namespace
}  // namespace tessera
