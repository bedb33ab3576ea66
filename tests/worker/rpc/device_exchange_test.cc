// Exchanges whose arrays are a device's against the same exchanges of the host's arrays: the servers end
// up with the same bits, and so do the workers. The device is a GPU that the host plays, or the host.
#include <cmath>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include <catch2/catch.hpp>

#include "common/base/philox.h"
#include "common/consistency/barrier.h"
#include "common/consistency/none.h"
#include "common/keyset/key_set.h"
#include "kernels/cuda/backend.h"
#include "kernels/devices.h"
#include "server/core/core_agreement.h"
#include "tests/common/codec/all_codecs.h"
#include "tests/server/rpc/running_servers.h"
#include "tests/server/shard/thread_calls.h"
#include "tests/worker/rpc/client_options.h"
#include "worker/exchange/exchange_keys.h"
#include "worker/rpc/parameter_client_grpc.h"

namespace tessera {
namespace {

using Arrays = std::vector<std::vector<float>>;

std::unique_ptr<ConsistencyPolicy> None() { return MakeNone(1); }

Codec ThresholdOf(double tau, double density, bool packed) {
  return ThresholdCodec({tau, density, packed});
}

std::unique_ptr<Backend> Device(bool gpu) {
  auto backend = gpu ? CreateCudaBackend(0) : CreateBackend("cpu", 1);
  REQUIRE(backend.ok());
  return *std::move(backend);
}

// Arrays of a model, on a device or in the host's memory.
class Side {
 public:
  Side(const ModelShape& shape, Backend* device) : device_(device) {
    for (const ParameterSpec& spec : shape.parameters) {
      host_.emplace_back(spec.size());
      if (device_ == nullptr) {
        values_.push_back(absl::MakeSpan(host_.back()));
        continue;
      }
      buffers_.push_back(*Buffer<float>::Create(device_->memory(), spec.size()));
      values_.emplace_back(buffers_.back().data(), spec.size());
    }
  }
  const ParameterArrays& values() const { return values_; }
  ConstParameterArrays update() const { return {values_.begin(), values_.end()}; }
  void Set(const Arrays& arrays) {
    for (size_t i = 0; i < arrays.size(); ++i) {
      host_[i] = arrays[i];
      if (device_ == nullptr) continue;
      device_->memory().CopyIn(host_[i].data(), buffers_[i].bytes(), buffers_[i].data());
    }
    if (device_ != nullptr) REQUIRE(device_->Finish().ok());
  }
  const Arrays& Get() {
    for (size_t i = 0; i < buffers_.size(); ++i) {
      device_->memory().CopyOut(buffers_[i].data(), buffers_[i].bytes(), host_[i].data());
    }
    return host_;
  }

 private:
  Backend* const device_;
  Arrays host_;
  std::vector<Buffer<float>> buffers_;
  ParameterArrays values_;
};

// Of many magnitudes.
Arrays UpdateOf(const ModelShape& shape, uint64_t number) {
  Arrays arrays;
  uint64_t b = 0;
  for (const ParameterSpec& spec : shape.parameters) {
    arrays.emplace_back(spec.size());
    for (float& x : arrays.back()) {
      const PhiloxBlock random = Philox(number, Stream::kInitialValues, 99, b++);
      x = (UnitFloat(random[0]) - 0.5f) * std::ldexp(1.0f, -static_cast<int>(random[1] % 12));
    }
  }
  return arrays;
}

bool Same(const Arrays& a, const Arrays& b) {
  for (size_t i = 0; i < a.size(); ++i) {
    if (std::memcmp(a[i].data(), b[i].data(), a[i].size() * sizeof(float)) != 0) return false;
  }
  return a.size() == b.size();
}

std::unique_ptr<ParameterClientGrpc> Client(const RunningServers& servers,
                                            const CodecChoice& codecs, DeviceSides sides,
                                            Backend* device, v1::PayloadKind kind = v1::GRADIENT) {
  ParameterClientGrpc::Options options = OptionsFor(servers, 1);
  options.kind = kind;
  options.coding = {codecs, servers.shape(), 7, Rank(0), Placement::kSharded, sides, device};
  auto client = ParameterClientGrpc::Create(std::move(options));
  INFO(client.status());
  REQUIRE(client.ok());
  return *std::move(client);
}

}  // namespace

TEST_CASE("what a device codes is what the host would have, in both directions and over time",
          "[rpc][device]") {
  const bool gpu = GENERATE(true, false);
  const int count = GENERATE(1, 3);
  const Codec f32;
  const std::vector<CodecChoice> choices = {
      {Bf16Codec(), f32},
      {f32, F16Codec()},
      {Int8Codec(), Bf16Codec()},
      {F16Codec(), Int8Codec()},
      {QsgdCodec(), f32},
      {QsgdCodec(3, 100, true), QsgdCodec(5, 64)},
      {Int8Codec(), f32, true, true},
      {QsgdCodec(4, 700), Int8Codec(), true, true},
      {ThresholdOf(0, 0.01, false), f32, false, true},
      {ThresholdOf(0.25, 0, true), Bf16Codec(), false, true},
      {TopkCodec(), f32, false, true},
      {TopkCodec({700}), Bf16Codec(), false, true},
  };
  for (const CodecChoice& codecs : choices) {
    for (const ModelShape& shape : {TestShape(37, 701), TestShape(210, 1003)}) {
      INFO(Describe(codecs) << ", " << count << " servers, " << shape.size << " entries");
      const std::unique_ptr<Backend> device = Device(gpu);
      const DeviceSides sides{codecs.push != f32, codecs.pull != f32};
      RunningServers one(shape, count, None, 1, std::nullopt, false, codecs),
          other(shape, count, None, 1, std::nullopt, false, codecs);
      const auto want = Client(one, codecs, {}, nullptr),
                 got = Client(other, codecs, sides, device.get());
      Side want_update(shape, nullptr), want_values(shape, nullptr),
          got_update(shape, sides.update ? device.get() : nullptr),
          got_values(shape, sides.values ? device.get() : nullptr);
      REQUIRE(want->Pull(Exchange(0), want->dense_keys(), want_values.values()).ok());
      REQUIRE(got->Pull(Exchange(0), got->dense_keys(), got_values.values()).ok());
      REQUIRE(Same(got_values.Get(), want_values.Get()));
      constexpr uint64_t kExchanges = 5;
      for (uint64_t exchange = 1; exchange <= kExchanges; ++exchange) {
        const Arrays update = UpdateOf(shape, exchange);
        want_update.Set(update);
        got_update.Set(update);
        OutgoingPush push{Exchange(exchange), 1};
        push.flush = codecs.flush && exchange == kExchanges;
        REQUIRE(want->PushPull(push, want->dense_keys(), want_update.update(), want->dense_keys(),
                               want_values.values())
                    .ok());
        REQUIRE(got->PushPull(push, got->dense_keys(), got_update.update(), got->dense_keys(),
                              got_values.values())
                    .status()
                    .message() == "");
        REQUIRE(Same(got_values.Get(), want_values.Get()));
        const auto held = want->held_back(), kept = got->held_back();
        REQUIRE((held.ok() && kept.ok()));
        REQUIRE(kept->size() == held->size());
        for (size_t p = 0; p < held->size(); ++p) REQUIRE((*kept)[p] == (*held)[p]);
        if (exchange != 3 || held->empty()) continue;
        // As a restored checkpoint would.
        for (const auto& views : {*held, *kept}) {
          for (size_t p = 0; p < views.size(); ++p) {
            for (float& x : views[p]) x = x * 0.5f + 0.001f * static_cast<float>(p);
          }
        }
        REQUIRE(want->AdoptHeldBack().ok());
        REQUIRE(got->AdoptHeldBack().ok());
      }
      Side want_all(shape, nullptr), got_all(shape, nullptr);
      REQUIRE(want->Read(Exchange(kExchanges), IdleNotice(), want_all.values()).ok());
      REQUIRE(got->Read(Exchange(kExchanges), IdleNotice(), got_all.values()).ok());
      CHECK(Same(got_all.Get(), want_all.Get()));
      const Traffic a = want->traffic(), b = got->traffic();
      CHECK(a.push_payload_bytes == b.push_payload_bytes);
      CHECK(a.pull_payload_bytes == b.pull_payload_bytes);
      CHECK(a.other_payload_bytes == b.other_payload_bytes);
    }
  }
}

TEST_CASE("a subnet's payloads are coded on the device, too", "[rpc][device][subnet]") {
  const bool gpu = GENERATE(true, false);
  v1::Model model;
  model.add_input(60);
  for (const int units : {90, 150, 40}) {
    v1::Linear* const linear = model.add_layers()->mutable_linear();
    linear->set_units(units);
    linear->set_bias(true);
  }
  const ModelShape full = *ShapeOf(model);
  const NeuronGroups groups = GroupsOf(full);
  const CodecChoice codecs{QsgdCodec(4, 32), Int8Codec()};
  const std::unique_ptr<Backend> device = Device(gpu);
  const int count = 2;
  RunningServers one(full, count, MakeBarrier, 1, groups, false, codecs),
      other(full, count, MakeBarrier, 1, groups, false, codecs);
  const auto want = Client(one, codecs, {}, nullptr, v1::VALUE),
             got = Client(other, codecs, {true, true}, device.get(), v1::VALUE);
  const auto place_of = [&](uint64_t round) {
    SubnetPlace place;
    place.seed = 7;
    place.round = round;
    place.shares = {1};
    return place;
  };
  const auto keys_of = [&](uint64_t round) {
    return SubnetKeys(full, SubnetOf(full, groups, place_of(round)), place_of(round), count);
  };
  Side want_update(full, nullptr), want_values(full, nullptr), got_update(full, device.get()),
      got_values(full, device.get());
  REQUIRE(want->Pull(Exchange(0), keys_of(1), want_values.values()).ok());
  REQUIRE(got->Pull(Exchange(0), keys_of(1), got_values.values()).status().message() == "");
  REQUIRE(Same(got_values.Get(), want_values.Get()));
  for (uint64_t round = 1; round <= 2; ++round) {
    const Arrays update = UpdateOf(full, round);
    want_update.Set(update);
    got_update.Set(update);
    // After the last round nothing is fetched.
    const KeySet next = round == 2 ? NoKeys(place_of(3), count) : keys_of(round + 1);
    REQUIRE(want->PushPull({Exchange(round), 1}, keys_of(round), want_update.update(), next,
                           want_values.values())
                .ok());
    REQUIRE(got->PushPull({Exchange(round), 1}, keys_of(round), got_update.update(), next,
                          got_values.values())
                .status()
                .message() == "");
    REQUIRE(Same(got_values.Get(), want_values.Get()));
  }
}

namespace {

constexpr CoreShare kShare{0.3, 0.1, 4, 0};

// Two servers, with the coordinator's part between them, and a worker.
class CoreJob {
 public:
  CoreJob(const CodecChoice& codecs, DeviceSides sides, Backend* device)
      : shape(TestShape(61, 200)),
        servers_(shape, 2, None, 1, std::nullopt, false, codecs, kShare),
        agreement_({2, 2, static_cast<uint64_t>(shape.size),
                    static_cast<uint64_t>(CoreCount(kShare, shape.size)), 0}),
        update(shape, sides.update ? device : nullptr),
        values(shape, sides.values ? device : nullptr),
        client(Client(servers_, codecs, sides, device)) {
    for (int s = 0; s < 2; ++s) {
      SetCoreListener(*servers_[s].thread, [this, s](const CoreReport& report) {
        absl::MutexLock lock(&mutex_);
        for (const auto& [to, question] : agreement_.OnReport(ShardId(s), report)) {
          AskCore(*servers_[static_cast<int>(to.value())].thread, question);
        }
      });
    }
  }
  ~CoreJob() {
    for (int s = 0; s < 2; ++s) SetCoreListener(*servers_[s].thread, nullptr);
  }

  KeySet KeysOf(uint64_t exchange) {
    client->AskCores(CoreOf(kShare, exchange));
    const absl::StatusOr<Cores> cores = client->TakeCores();
    REQUIRE(cores.ok());
    KeySet keys = client->dense_keys();
    for (int s = 0; s < 2; ++s) {
      const ExplorerPlace place{7, Rank(0), Exchange(exchange), ShardId(s)};
      keys.sparse.push_back(
          std::make_shared<const SparseKeys>(DrawKeys(kShare, place, shape.size, (*cores)[s])));
    }
    return keys;
  }

  const ModelShape shape;

 private:
  absl::Mutex mutex_;
  RunningServers servers_;
  CoreAgreement agreement_;

 public:
  Side update, values;
  const std::unique_ptr<ParameterClientGrpc> client;
};

}  // namespace

TEST_CASE("entries of a core and an explorer are taken out and put back on the device",
          "[rpc][device][core]") {
  const bool gpu = GENERATE(true, false);
  const CodecChoice codecs = GENERATE(
      CodecChoice{}, CodecChoice{Int8Codec(), Bf16Codec()}, CodecChoice{QsgdCodec(), Codec()},
      CodecChoice{Codec(), Codec(), true, true}, CodecChoice{Int8Codec(), Codec(), true, true});
  const std::unique_ptr<Backend> device = Device(gpu);
  CoreJob want(codecs, {}, nullptr), got(codecs, {true, true}, device.get());
  for (CoreJob* const job : {&want, &got}) {
    const auto pulled =
        job->client->Pull(Exchange(0), job->client->dense_keys(), job->values.values());
    REQUIRE(pulled.status().message() == "");
  }
  REQUIRE(Same(got.values.Get(), want.values.Get()));
  for (uint64_t exchange = 1; exchange <= 6; ++exchange) {
    CAPTURE(exchange, Describe(codecs));
    for (CoreJob* const job : {&want, &got}) {
      job->update.Set(UpdateOf(job->shape, exchange));
      const KeySet keys = job->KeysOf(exchange);
      const bool is_full = PushesAll(kShare, exchange);
      REQUIRE(job->client
                  ->PushPull({Exchange(exchange), 1}, is_full ? job->client->dense_keys() : keys,
                             job->update.update(), keys, job->values.values())
                  .status()
                  .message() == "");
    }
    REQUIRE(Same(got.values.Get(), want.values.Get()));
    const auto held = want.client->held_back(), kept = got.client->held_back();
    REQUIRE((held.ok() && kept.ok() && kept->size() == held->size()));
    CHECK(held->empty() == !codecs.holds_back());
    for (size_t p = 0; p < held->size(); ++p) REQUIRE((*kept)[p] == (*held)[p]);
  }
  CHECK(got.client->traffic().push_payload_bytes == want.client->traffic().push_payload_bytes);
  CHECK(got.client->traffic().pull_payload_bytes == want.client->traffic().pull_payload_bytes);
}

}  // namespace tessera
