// Fetches and returns of subnets over gRPC: against real servers, and against one whose answers a test
// chooses.
#include <algorithm>
#include <atomic>
#include <catch2/catch.hpp>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/match.h"
#include "common/consistency/barrier.h"
#include "common/keyset/key_set.h"
#include "common/rpc/key_set_message.h"
#include "proto/parameter_server.grpc.pb.h"
#include "tests/server/rpc/running_servers.h"
#include "tests/worker/rpc/client_options.h"
#include "worker/rpc/parameter_client_grpc.h"

namespace tessera {
namespace {

// 6 - 9 - 5 - 4 with biases.
v1::Model TestModel() {
  v1::Model model;
  model.add_input(6);
  for (const int units : {9, 5, 4}) {
    v1::Linear* const linear = model.add_layers()->mutable_linear();
    linear->set_units(units);
    linear->set_bias(true);
  }
  return model;
}

SubnetPlace Place(uint64_t round, uint32_t site, uint32_t sites) {
  SubnetPlace place;
  place.seed = 7;
  place.round = round;
  place.site = site;
  place.shares.assign(sites, 1);
  return place;
}

// A site's arrays, and its keys.
struct Site {
  Site(const ModelShape& full, const NeuronGroups& groups, const SubnetPlace& place, int servers)
      : subnet(SubnetOf(full, groups, place)), keys(SubnetKeys(full, subnet, place, servers)) {
    for (const ParameterSpec& spec : subnet.shape.parameters) data.emplace_back(spec.size(), -1.0f);
  }
  ParameterArrays arrays() {
    ParameterArrays views;
    for (auto& d : data) views.push_back(absl::MakeSpan(d));
    return views;
  }
  ConstParameterArrays update() const {
    ConstParameterArrays views;
    for (const auto& d : data) views.push_back(absl::MakeConstSpan(d));
    return views;
  }
  uint64_t bytes() const { return 4 * subnet.shape.size; }

  Subnet subnet;
  KeySet keys;
  std::vector<std::vector<float>> data;
};

struct Servers {
  explicit Servers(int servers, int members, bool has_tail = false)
      : shape(*ShapeOf(TestModel())),
        groups(GroupsOf(shape)),
        running(shape, servers, MakeBarrier, members, groups, has_tail),
        count(servers) {}
  std::unique_ptr<ParameterClientGrpc> Client(uint64_t member) const {
    ParameterClientGrpc::Options options = OptionsFor(running, member);
    options.kind = v1::VALUE;
    auto client = ParameterClientGrpc::Create(std::move(options));
    REQUIRE(client.ok());
    return *std::move(client);
  }
  Site At(const SubnetPlace& place) const { return Site(shape, groups, place, count); }

  const ModelShape shape;
  const NeuronGroups groups;
  RunningServers running;
  const int count;
};

// Entry (row, column) of the full parameter p at the job's start.
float InitialEntry(const ModelShape& shape, int p, int64_t row, int64_t column) {
  std::vector<float> values(shape.parameters[p].columns);
  FillInitialRows(shape.parameters[p], p, 7, row, row + 1, values.data());
  return values[column];
}

constexpr float kMissing = -77.0f;

// Is told of parameters in their order, and finds each complete.
class Complete final : public ValueSink {
 public:
  explicit Complete(const Site* site) : site_(*site) {}
  void Take(size_t p) override {
    missing += p == told++ ? 0 : 1;
    for (const float x : site_.data[p]) missing += x == kMissing ? 1 : 0;
  }
  size_t told = 0;
  int missing = 0;

 private:
  const Site& site_;
};

TEST_CASE("subnets come straight into their arrays and go back to where they came from",
          "[rpc][client][subnet]") {
  const int servers = GENERATE(1, 2, 7);
  Servers all(servers, 2);
  std::atomic<int> failures{0};
  std::vector<std::thread> workers;
  std::vector<Traffic> traffic(2);
  uint64_t bytes[2][5] = {};
  for (uint32_t w = 0; w < 2; ++w) {
    workers.emplace_back([&, w] {
      const auto client = all.Client(w + 1);
      Site now = all.At(Place(1, w, 2));
      if (!client->Pull(Exchange(0), now.keys, now.arrays()).ok()) ++failures;
      for (uint64_t round = 1; round <= 3; ++round) {
        bytes[w][round] = now.bytes();
        for (size_t p = 0; p < now.data.size(); ++p) {
          const ParameterSpec& spec = now.subnet.shape.parameters[p];
          for (int64_t i = 0; i < spec.size(); ++i) {
            // What the other site changes meanwhile is not this site's.
            const int64_t column = spec.is_vector ? 0 : now.subnet.columns(p)[i % spec.columns];
            const float initial =
                InitialEntry(all.shape, p, now.subnet.rows(p)[i / spec.columns], column);
            if (round == 1 && now.data[p][i] != initial) ++failures;
            now.data[p][i] += 1;
          }
        }
        Site next = all.At(Place(round + 1, w, 2));
        bytes[w][round + 1] = next.bytes();
        for (auto& values : next.data) std::fill(values.begin(), values.end(), kMissing);
        Complete sink(&next);
        OutgoingPush push{Exchange(round), 10};
        push.sink = &sink;
        const auto result =
            client->PushPull(push, now.keys, now.update(), next.keys, next.arrays());
        if (!result.ok() || result->recut.has_value()) ++failures;
        if (sink.missing > 0 || sink.told != next.data.size()) ++failures;
        now = std::move(next);
      }
      traffic[w] = client->traffic();
    });
  }
  for (std::thread& worker : workers) worker.join();
  REQUIRE(failures == 0);
  for (int w = 0; w < 2; ++w) {
    const uint64_t pushed = bytes[w][1] + bytes[w][2] + bytes[w][3];
    CHECK(traffic[w].push_payload_bytes == pushed);
    CHECK(traffic[w].pull_payload_bytes == pushed + bytes[w][4]);
    CHECK(traffic[w].pull_wire_bytes > traffic[w].pull_payload_bytes);
    CHECK(traffic[w].exchanges == 3);
  }
  // Every entry grew by one for each round in which it was some site's.
  const auto client = all.Client(1);
  Site whole = all.At(Place(4, 0, 1));
  REQUIRE(client->Read(Exchange(3), IdleNotice(), whole.arrays()).ok());
  for (size_t p = 0; p < whole.data.size(); ++p) {
    const ParameterSpec& spec = all.shape.parameters[p];
    std::vector<float> want(spec.size());
    FillInitialRows(spec, p, 7, 0, spec.rows, want.data());
    for (uint64_t round = 1; round <= 3; ++round) {
      for (uint32_t site = 0; site < 2; ++site) {
        const Site part = all.At(Place(round, site, 2));
        if (part.subnet.is_shared(p) && site > 0) continue;  // The mean of both is one more.
        for (const int32_t row : part.subnet.rows(p)) {
          if (spec.is_vector) {
            want[row] += 1;
            continue;
          }
          for (const int32_t column : part.subnet.columns(p)) {
            want[row * spec.columns + column] += 1;
          }
        }
      }
    }
    CHECK(whole.data[p] == want);
  }
  CHECK(client->traffic().other_payload_bytes == 4 * static_cast<uint64_t>(all.shape.size));
}

TEST_CASE("rows come from all servers that own some, straight into their place, and count apart",
          "[rpc][client][rows]") {
  const int servers = GENERATE(1, 2, 7);
  Servers all(servers, 2);
  const auto client = all.Client(1);
  uint64_t bytes = 0;
  for (int p = 0; p < static_cast<int>(all.shape.parameters.size()); ++p) {
    const ParameterSpec& spec = all.shape.parameters[p];
    for (int64_t begin = 0; begin <= spec.rows; ++begin) {
      for (int64_t end = begin; end <= spec.rows; end += 2) {
        std::vector<float> want((end - begin) * spec.columns);
        FillInitialRows(spec, p, 7, begin, end, want.data());
        std::vector<float> got(want.size(), -1);
        REQUIRE(client->ReadRows({p, begin, end}, absl::MakeSpan(got)).ok());
        REQUIRE(got == want);
        bytes += 4 * want.size();
      }
    }
  }
  CHECK(client->traffic().other_payload_bytes == bytes);
  CHECK(client->traffic().pull_payload_bytes == 0);
  // What comes after is dense again, or a subnet's.
  Site whole = all.At(Place(1, 0, 1));
  REQUIRE(client->Read(Exchange(0), IdleNotice(), whole.arrays()).ok());
  CHECK(whole.data[2][7] == InitialEntry(all.shape, 2, 0, 7));
  Site mine = all.At(Place(1, 0, 2));
  REQUIRE(client->Pull(Exchange(0), mine.keys, mine.arrays()).ok());
  CHECK(client->traffic().pull_payload_bytes == mine.bytes());
}

TEST_CASE("who asks for another cut is told the one in force", "[rpc][client][subnet]") {
  Servers all(2, 2);
  const auto client = all.Client(2);
  SubnetPlace wrong = Place(1, 2, 3);
  const bool by_shares = GENERATE(true, false);
  if (by_shares) {
    wrong = Place(1, 1, 2);
    wrong.shares = {1, 3};
  }
  Site guess = all.At(wrong);
  const auto first = client->Pull(Exchange(0), guess.keys, guess.arrays());
  REQUIRE(first.ok());
  REQUIRE(first->recut.has_value());
  CHECK(*first->recut == Place(1, 1, 2));
  CHECK(client->traffic().pull_payload_bytes == 0);
  Site right = all.At(*first->recut);
  const auto second = client->Pull(Exchange(0), right.keys, right.arrays());
  REQUIRE(second.ok());
  CHECK_FALSE(second->recut.has_value());
  CHECK(right.data[0][0] == InitialEntry(all.shape, 0, right.subnet.rows(0)[0], 0));
}

TEST_CASE("another round's fetch or return is refused by both numbers", "[rpc][client][subnet]") {
  Servers all(1, 1);
  const auto client = all.Client(1);
  Site one = all.At(Place(1, 0, 1)), two = all.At(Place(2, 0, 1));
  REQUIRE(client->Pull(Exchange(0), one.keys, one.arrays()).ok());
  REQUIRE(client->PushPull({Exchange(1), 1}, one.keys, one.update(), two.keys, two.arrays()).ok());
  const absl::Status late = client->Pull(Exchange(0), one.keys, one.arrays()).status();
  INFO(late);
  CHECK(late.code() == absl::StatusCode::kFailedPrecondition);
  CHECK(absl::StrContains(late.message(), "round 1"));
  CHECK(absl::StrContains(late.message(), "2"));
  const absl::Status early =
      client->Push(Exchange(3), 1, all.At(Place(3, 0, 1)).keys, two.update()).status();
  INFO(early);
  CHECK(early.code() == absl::StatusCode::kFailedPrecondition);
}

TEST_CASE("the last subnet goes up and the whole model comes down, which is then exchanged",
          "[rpc][client][subnet][tail]") {
  const int servers = GENERATE(1, 3);
  Servers all(servers, 1, /*has_tail=*/true);
  const auto client = all.Client(1);
  Site one = all.At(Place(1, 0, 1));
  REQUIRE(client->Pull(Exchange(0), one.keys, one.arrays()).ok());
  for (auto& values : one.data) {
    for (float& x : values) x += 1;
  }
  const KeySet dense = DenseKeys(all.shape, servers);
  std::vector<std::vector<float>> pulled, change;
  ParameterArrays pulled_arrays;
  ConstParameterArrays change_arrays;
  for (const ParameterSpec& spec : all.shape.parameters) {
    pulled.emplace_back(spec.size());
    change.emplace_back(spec.size(), 0.25f);
  }
  for (size_t p = 0; p < pulled.size(); ++p) {
    pulled_arrays.push_back(absl::MakeSpan(pulled[p]));
    change_arrays.push_back(absl::MakeConstSpan(change[p]));
  }
  OutgoingPush push{Exchange(1), 10};
  push.whole_next = true;
  const auto changed = client->PushPull(push, one.keys, one.update(), dense, pulled_arrays);
  INFO(changed.status());
  REQUIRE(changed.ok());
  CHECK_FALSE(changed->is_whole);
  // One site has all of it.
  CHECK(pulled == one.data);

  // Who still fetches is told, and gets nothing.
  Site two = all.At(Place(2, 0, 1));
  const auto fetched = client->Pull(Exchange(1), two.keys, two.arrays());
  REQUIRE(fetched.ok());
  CHECK(fetched->is_whole);
  CHECK_FALSE(fetched->recut.has_value());
  CHECK(two.data[0][0] == -1);

  OutgoingPush whole{Exchange(2), 10};
  const absl::Status as_value =
      client->PushPull(whole, dense, change_arrays, dense, pulled_arrays).status();
  CHECK(absl::StrContains(as_value.message(), "payload kind is 2, want 1"));
  whole.kind = PayloadKind::kDelta;
  REQUIRE(client->PushPull(whole, dense, change_arrays, dense, pulled_arrays).ok());
  for (size_t p = 0; p < pulled.size(); ++p) {
    for (size_t i = 0; i < pulled[p].size(); ++i) {
      REQUIRE(pulled[p][i] == one.data[p][i] + 0.25f);
    }
  }
  const auto bytes = static_cast<uint64_t>(4 * all.shape.size);
  CHECK(client->traffic().pull_payload_bytes == one.bytes() + 2 * bytes);
}

// A server whose answers to fetches a test chooses.
class ScriptedServer final : public v1::ParameterServer::Service {
 public:
  std::function<void(grpc::ServerWriter<v1::Chunk>*)> on_fetch;
  v1::SubnetRequest request;
  v1::PushHeader header;

  grpc::Status FetchSubnet(grpc::ServerContext*, const v1::SubnetRequest* asked,
                           grpc::ServerWriter<v1::Chunk>* writer) override {
    request = *asked;
    on_fetch(writer);
    return grpc::Status::OK;
  }
  grpc::Status Push(grpc::ServerContext*, grpc::ServerReader<v1::PushChunk>* reader,
                    v1::PushReply*) override {
    v1::PushChunk chunk;
    while (reader->Read(&chunk)) {
      if (chunk.has_header()) header = chunk.header();
    }
    return grpc::Status::OK;
  }
};

struct Scripted {
  Scripted() : shape(*ShapeOf(TestModel())), groups(GroupsOf(shape)) {
    auto started = GrpcServer::Start({"127.0.0.1:0", {&server}});
    REQUIRE(started.ok());
    grpc = *std::move(started);
    ParameterClientGrpc::Options options;
    options.servers = {grpc->address()};
    options.slices = {SlicesOf(shape, ShardId(0), 1)};
    options.layout_hash = 5;
    options.member = MemberId(1);
    options.kind = v1::VALUE;
    client = *ParameterClientGrpc::Create(options);
  }
  // An answer in this cut, with so many entries.
  static v1::Chunk Answer(const SubnetPlace& place, int64_t entries) {
    v1::Chunk chunk;
    chunk.mutable_header()->set_layout_hash(5);
    *chunk.mutable_header()->mutable_subnet() = ToMessage(place);
    chunk.set_payload(std::string(4 * entries, '\0'));
    return chunk;
  }
  const ModelShape shape;
  const NeuronGroups groups;
  ScriptedServer server;
  std::unique_ptr<GrpcServer> grpc;
  std::unique_ptr<ParameterClientGrpc> client;
};

TEST_CASE("a fetch and a return say which subnet they are of", "[rpc][client][subnet]") {
  Scripted scripted;
  SubnetPlace place = Place(3, 1, 2);
  const bool equal = GENERATE(true, false);
  if (!equal) place.shares = {2, 5};
  Site site(scripted.shape, scripted.groups, place, 1);
  scripted.server.on_fetch = [&](auto* writer) {
    writer->Write(Scripted::Answer(place, site.subnet.shape.size));
  };
  REQUIRE(scripted.client->Pull(Exchange(2), site.keys, site.arrays()).ok());
  const v1::SubnetRequest& request = scripted.server.request;
  CHECK(request.caller().member() == 1);
  CHECK(request.seed() == 7);
  CHECK(request.round() == 3);
  CHECK(request.site() == 1);
  CHECK(request.sites() == 2);
  CHECK(std::vector<uint32_t>(request.shares().begin(), request.shares().end()) ==
        (equal ? std::vector<uint32_t>() : std::vector<uint32_t>{2, 5}));
  REQUIRE(scripted.client->Push(Exchange(3), 1, site.keys, site.update()).ok());
  CHECK(scripted.server.header.payload_bytes() == site.bytes());
  CHECK(*PlaceOf(scripted.server.header.keys().subnet()) == place);
  CHECK(scripted.server.header.kind() == v1::VALUE);
  CHECK_FALSE(scripted.server.header.whole_next());
}

TEST_CASE("an answer to a fetch that is not what was asked for is refused",
          "[rpc][client][subnet]") {
  Scripted scripted;
  const SubnetPlace place = Place(3, 1, 2);
  Site site(scripted.shape, scripted.groups, place, 1);
  const auto fetch = [&](const std::function<void(grpc::ServerWriter<v1::Chunk>*)>& answer) {
    scripted.server.on_fetch = answer;
    const std::string message(
        scripted.client->Pull(Exchange(2), site.keys, site.arrays()).status().message());
    const std::string where = "server 0 at " + scripted.grpc->address() + ": ";
    return absl::StartsWith(message, where) ? message.substr(where.size())
                                            : "elsewhere: " + message;
  };
  const int64_t size = site.subnet.shape.size;
  CHECK(fetch([&](auto* w) { w->Write(Scripted::Answer(Place(4, 1, 2), 0)); }) ==
        "pull: answer is of round 4 (seed 7), want round 3 (seed 7)");
  CHECK(fetch([&](auto* w) {
          SubnetPlace other = place;
          other.seed = 8;
          w->Write(Scripted::Answer(other, size));
        }) == "pull: answer is of round 3 (seed 8), want round 3 (seed 7)");
  CHECK(fetch([&](auto* w) { w->Write(Scripted::Answer(Place(3, 1, 3), 10)); }) ==
        "pull: answer has 40 bytes of another cut than was asked for, want none");
  CHECK(fetch([&](auto* w) { w->Write(Scripted::Answer(Place(3, 4, 3), 0)); }) ==
        "subnet: site is 4, want less than the 3 sites that have a share");
  CHECK(fetch([&](auto* w) {
          SubnetPlace other = place;
          other.shares = {1, 0};
          w->Write(Scripted::Answer(other, 0));
        }) == "subnet: shares are not each at least 1 with a sum below 2^31");
  CHECK(fetch([&](auto* w) {
          v1::Chunk chunk = Scripted::Answer(place, size);
          chunk.mutable_header()->clear_subnet();
          w->Write(chunk);
        }) == "pull: answer has no subnet, want how the round is cut");
  CHECK(fetch([&](auto* w) {
          v1::Chunk chunk = Scripted::Answer(place, 2);
          chunk.mutable_header()->set_whole_model(true);
          w->Write(chunk);
        }) == "pull: answer has 8 bytes of the whole model, which was not asked for, want none");
  CHECK(fetch([&](auto* w) { w->Write(Scripted::Answer(place, size - 1)); }) ==
        "pull: answer ended after " + std::to_string(4 * (size - 1)) + " of " +
            std::to_string(4 * size) + " bytes");
}

}  // namespace
}  // namespace tessera
