// Exchanges with servers that all hold the whole model, over gRPC.
#include <atomic>
#include <cmath>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <catch2/catch.hpp>

#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "common/base/philox.h"
#include "common/codec/int8.h"
#include "common/codec/qsgd.h"
#include "common/codec/threshold.h"
#include "common/consistency/none.h"
#include "common/keyset/key_set.h"
#include "common/method/recipe.h"
#include "common/rpc/transport.h"
#include "proto/parameter_server.grpc.pb.h"
#include "server/rpc/replica_copier.h"
#include "tests/server/rpc/running_servers.h"
#include "tests/server/shard/thread_calls.h"
#include "worker/rpc/parameter_client_grpc.h"

namespace tessera {
namespace {

constexpr uint64_t kServerKey = 7;

using Arrays = std::vector<std::vector<float>>;

struct Site {
  std::unique_ptr<ShardThread> thread;
  std::unique_ptr<ParameterService> service;
  std::unique_ptr<GrpcServer> grpc;
};

// Replicas of one job on free ports. Server k has life k + 1; members are numbered from 1.
class Replicas {
 public:
  Replicas(const ModelShape& shape, int servers, const CodecChoice& codecs = {})
      : shape_(shape), codecs_(codecs) {
    for (int s = 0; s < servers; ++s) Start();
  }
  ~Replicas() {
    for (Site& site : sites_) site.grpc->Shutdown(absl::ZeroDuration());
  }

  void Start() {
    Shard::Options options;
    options.shape = shape_;
    options.seed = 7;
    options.kind = static_cast<int>(PayloadKind::kDelta);
    options.codecs = codecs_;
    options.placement = Placement::kReplicated;
    options.policy = MakeNone(1.0f);
    options.rule = MakeAdd();
    Site site;
    site.thread = std::make_unique<ShardThread>(std::make_unique<Shard>(std::move(options)));
    site.service = std::make_unique<ParameterService>(site.thread.get(), kDigest, Generation(1));
    site.service->SetServerKey(kServerKey);
    auto grpc = GrpcServer::Start({"127.0.0.1:0", {site.service->service()}});
    REQUIRE(grpc.ok());
    site.grpc = *std::move(grpc);
    sites_.push_back(std::move(site));
    lives_.push_back(sites_.size());
  }
  void SetMembers(int members) {
    Plan plan;
    plan.generation = Generation(++plan_);
    for (int m = 1; m <= members; ++m) {
      plan.members.push_back({MemberId(m), Rank(m - 1), Exchange(1)});
    }
    for (Site& site : sites_) SetPlan(*site.thread, plan);
  }
  // Nobody answers there any more.
  void Stop(int server) { sites_[server].grpc->Shutdown(absl::ZeroDuration()); }
  void Unlist(int server) { lives_[server] = 0; }

  v1::ServerList List() {
    v1::ServerList list;
    list.set_generation(++list_);
    for (size_t s = 0; s < sites_.size(); ++s) {
      if (lives_[s] == 0) continue;
      v1::ServerEntry& entry = *list.add_servers();
      entry.set_rank(s);
      entry.set_address(sites_[s].grpc->address());
      entry.set_life(lives_[s]);
    }
    return list;
  }
  std::unique_ptr<ParameterClientGrpc> Client(int rank) {
    ParameterClientGrpc::Options options;
    options.slices = {SlicesOf(shape_, ShardId(0), 1)};
    options.placement = Placement::kReplicated;
    options.home = rank;
    options.layout_hash = LayoutHash(shape_, 1);
    options.member = MemberId(rank + 1);
    options.generation = Generation(1);
    options.job_digest = kDigest;
    options.kind = v1::DELTA;
    options.coding = {codecs_, shape_, 7, Rank(rank), Placement::kReplicated};
    options.retry_time = absl::Seconds(20);
    auto client = ParameterClientGrpc::Create(std::move(options));
    REQUIRE(client.ok());
    (*client)->SetServers(List());
    return *std::move(client);
  }
  Site& operator[](int server) { return sites_[server]; }

  ShardCounters Counters(int server) {
    ShardCounters counters;
    absl::Notification asked;
    sites_[server].thread->Inspect(false, [&](const ShardThread::View& view) {
      counters = view.counters;
      asked.Notify();
    });
    asked.WaitForNotification();
    return counters;
  }
  std::vector<float> Values(int server) {
    std::vector<float> values;
    absl::Notification read;
    const auto take = [&](absl::StatusOr<ReadResult> result) {
      for (const auto& block : result->snapshot->blocks()) {
        values.insert(values.end(), block->data(), block->data() + block->size());
      }
      read.Notify();
    };
    ReadOutside(*sites_[server].thread, MemberId(1), Exchange(0), IdleNotice(), take);
    read.WaitForNotification();
    return values;
  }

 private:
  const ModelShape shape_;
  const CodecChoice codecs_;
  std::vector<Site> sites_;
  std::vector<uint64_t> lives_;
  uint64_t plan_ = 0;
  uint64_t list_ = 0;
};

struct Replica {
  explicit Replica(const ModelShape& shape) : keys(DenseKeys(shape, 1)) {
    for (const ParameterSpec& spec : shape.parameters) {
      arrays.emplace_back(spec.size());
      updates.emplace_back(spec.size());
    }
    for (auto& array : arrays) values.push_back(absl::MakeSpan(array));
    for (auto& array : updates) update.push_back(absl::MakeConstSpan(array));
  }
  // Of many magnitudes.
  void Draw(uint64_t number) {
    uint64_t b = 0;
    for (auto& array : updates) {
      for (float& x : array) {
        const PhiloxBlock random = Philox(number, Stream::kInitialValues, 99, b++);
        x = (UnitFloat(random[0]) - 0.5f) * std::ldexp(1.0f, -static_cast<int>(random[1] % 12));
      }
    }
  }
  absl::StatusOr<ExchangeResult> PushPull(ParameterClientGrpc* client, uint64_t exchange,
                                          bool flush = false) {
    OutgoingPush push;
    push.exchange = Exchange(exchange);
    push.examples = 1;
    push.flush = flush;
    return client->PushPull(push, keys, update, keys, values);
  }
  std::vector<float> Flat() const {
    std::vector<float> flat;
    for (const auto& array : arrays) flat.insert(flat.end(), array.begin(), array.end());
    return flat;
  }

  const KeySet keys;
  Arrays arrays;
  Arrays updates;
  ParameterArrays values;
  ConstParameterArrays update;
};

CodecChoice ChoiceOf(const Codec& push, bool feedback = false) {
  CodecChoice codecs;
  codecs.push = push;
  codecs.error_feedback = feedback;
  codecs.flush = true;
  return codecs;
}

TEST_CASE("the own replica applies exactly what the peers receive", "[rpc][replica]") {
  const ModelShape shape = TestShape(60, 300);
  const auto [codecs, share] =
      GENERATE(table<CodecChoice, double>({{ChoiceOf(Codec()), 1.0},
                                           {ChoiceOf(ThresholdCodec({0, 0.05, false})), 0.2},
                                           {ChoiceOf(Int8Codec(), /*feedback=*/true), 0.3},
                                           {ChoiceOf(QsgdCodec()), 0.3}}));
  Replicas replicas(shape, 3, codecs);
  replicas.SetMembers(3);
  const auto client = replicas.Client(1);
  Replica own(shape);
  REQUIRE(client->Pull(Exchange(0), own.keys, own.values).ok());
  const std::vector<float> initial = own.Flat();
  CHECK(initial == replicas.Values(0));
  std::vector<double> sum(initial.begin(), initial.end());
  constexpr uint64_t kExchanges = 12;
  uint64_t bytes_before_last = 0;
  for (uint64_t e = 1; e <= kExchanges; ++e) {
    own.Draw(e);
    size_t at = 0;
    for (const auto& array : own.updates) {
      for (const float x : array) sum[at++] += x;
    }
    bytes_before_last = client->traffic().push_payload_bytes;
    REQUIRE(own.PushPull(client.get(), e, /*flush=*/e == kExchanges).ok());
    CHECK(own.Flat() == replicas.Values(1));
    CHECK(replicas.Values(0) == replicas.Values(1));
    CHECK(replicas.Values(2) == replicas.Values(1));
  }
  // At the end nothing is held back; qsgd's noise stays.
  if (codecs.push != QsgdCodec()) {
    double worst = 0;
    for (size_t i = 0; i < sum.size(); ++i) {
      worst = std::max(worst, std::abs(sum[i] - own.Flat()[i]));
    }
    CHECK(worst < 1e-5);
  }
  // Two of the three are peers.
  const Traffic traffic = client->traffic();
  CHECK(traffic.exchanges == kExchanges);
  CHECK(traffic.pull_payload_bytes == (kExchanges + 1) * initial.size() * 4);
  CHECK(bytes_before_last <= (kExchanges - 1) * 2 * initial.size() * 4 * share);
  if (share == 1.0) {
    CHECK(traffic.push_payload_bytes == kExchanges * 2 * initial.size() * 4);
  }
}

TEST_CASE("a push to a server that has gone is given up once the list says so", "[rpc][replica]") {
  const ModelShape shape = TestShape(8, 4);
  Replicas replicas(shape, 3);
  replicas.SetMembers(1);
  const auto client = replicas.Client(0);
  Replica own(shape);
  own.Draw(1);
  REQUIRE(client->Pull(Exchange(0), own.keys, own.values).ok());
  replicas.Stop(2);
  const absl::Time begin = absl::Now();
  std::atomic<bool> told{false};
  std::thread teller([&] {
    // Those that are there have it.
    while (replicas.Counters(0).pushes + replicas.Counters(1).pushes < 2) {
      absl::SleepFor(absl::Milliseconds(5));
    }
    replicas.Unlist(2);
    told = true;
    client->SetServers(replicas.List());
  });
  const auto first = own.PushPull(client.get(), 1);
  const bool waited = told;
  teller.join();
  REQUIRE(first.ok());
  CHECK(waited);
  CHECK(absl::Now() - begin < absl::Seconds(10));
  CHECK(replicas.Values(0) == replicas.Values(1));
  REQUIRE(own.PushPull(client.get(), 2).ok());
  CHECK(replicas.Values(0) == replicas.Values(1));
  CHECK(own.Flat() == replicas.Values(0));
  // An older list changes nothing.
  v1::ServerList old;
  old.set_generation(1);
  client->SetServers(old);
  CHECK(own.PushPull(client.get(), 3).ok());
}

TEST_CASE("a replica that joins is the same as the others from its copy on", "[rpc][replica]") {
  const ModelShape shape = TestShape(600, 400);  // more than one chunk's worth of blocks
  Replicas replicas(shape, 2, ChoiceOf(ThresholdCodec({0, 0.05, false})));
  replicas.SetMembers(2);
  const auto a = replicas.Client(0), b = replicas.Client(1);
  Replica at_a(shape), at_b(shape);
  at_a.Draw(1);
  at_b.Draw(2);
  for (uint64_t e = 1; e <= 3; ++e) REQUIRE(at_a.PushPull(a.get(), e).ok());
  REQUIRE(at_b.PushPull(b.get(), 1).ok());

  replicas.Start();
  replicas[2].thread->Post([](ServedShard& served) { served.shard().replica().AwaitCopy(); });
  replicas.SetMembers(2);
  ReplicaCopier copier(replicas[2].thread.get(), kDigest, [] { return kServerKey; });
  copier.CopyFrom(replicas[1].grpc->address());
  const v1::ServerList list = replicas.List();
  a->SetServers(list);
  b->SetServers(list);
  REQUIRE(at_a.PushPull(a.get(), 4).ok());
  // The other one has not pushed to it yet: no copy would do.
  bool heard = true;
  absl::Notification asked;
  replicas[2].thread->Post([&](ServedShard& served) {
    heard = served.shard().replica().WantsCopy();
    asked.Notify();
  });
  asked.WaitForNotification();
  CHECK_FALSE(heard);
  CHECK_FALSE(replicas.Counters(2).copied);
  REQUIRE(at_b.PushPull(b.get(), 2).ok());
  const absl::Time limit = absl::Now() + absl::Seconds(20);
  while (!replicas.Counters(2).copied && absl::Now() < limit) {
    absl::SleepFor(absl::Milliseconds(5));
  }
  REQUIRE(replicas.Counters(2).copied);
  REQUIRE(at_b.PushPull(b.get(), 3).ok());
  const std::vector<float> first = replicas.Values(0), last = replicas.Values(2);
  double worst = 0;
  for (size_t i = 0; i < first.size(); ++i) {
    worst = std::max<double>(worst, std::abs(first[i] - last[i]));
  }
  // Sums in another order.
  CHECK(worst < 1e-5);
  CHECK(replicas.Values(1) == last);
  CHECK(replicas[1].service->traffic().copied_payload_bytes == first.size() * 4);
  CHECK(replicas[1].service->traffic().other_payload_bytes == 0);
}

TEST_CASE("a copy is refused to another job, to who is no server, and by one that holds a part",
          "[rpc][replica][strangers]") {
  const ModelShape shape = TestShape(8, 4);
  RunningServers parts(
      shape, 2, [] { return MakeNone(1); }, 1);
  Replicas replicas(shape, 1);
  replicas.SetMembers(1);
  const auto ask = [&](const std::string& address, const std::string& digest, uint64_t key) {
    const auto stub = v1::ParameterServer::NewStub(OpenChannel(address));
    grpc::ClientContext context;
    v1::PullRequest request;
    request.mutable_caller()->set_job_digest(digest);
    request.set_copies_replica(true);
    request.set_server_key(key);
    const auto stream = stub->Pull(&context, request);
    v1::Chunk chunk;
    while (stream->Read(&chunk)) {
    }
    return stream->Finish().error_code();
  };
  CHECK(ask(replicas[0].grpc->address(), kDigest, kServerKey) == grpc::StatusCode::OK);
  CHECK(ask(replicas[0].grpc->address(), kDigest, 0) == grpc::StatusCode::FAILED_PRECONDITION);
  CHECK(ask(replicas[0].grpc->address(), "other", kServerKey) ==
        grpc::StatusCode::INVALID_ARGUMENT);
  CHECK(ask(parts.addresses()[0], kDigest, 0) == grpc::StatusCode::INVALID_ARGUMENT);
}

}  // namespace
}  // namespace tessera
