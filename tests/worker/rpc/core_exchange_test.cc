// The parameter client and real servers, where exchanges move a core and explorers.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <memory>
#include <utility>
#include <vector>

#include "absl/time/clock.h"
#include "common/codec/bf16.h"
#include "common/codec/int8.h"
#include "common/consistency/none.h"
#include "common/keyset/key_set.h"
#include "server/core/core_agreement.h"
#include "tests/server/rpc/running_servers.h"
#include "tests/server/shard/thread_calls.h"
#include "worker/exchange/exchange_keys.h"
#include "worker/rpc/parameter_client_grpc.h"

namespace tessera {
namespace {

constexpr CoreShare kShare{0.3, 0.1, 4, 0};

// Two servers, with the coordinator's part between them, and a worker.
class CoreServers {
 public:
  explicit CoreServers(const CodecChoice& codecs = {}, const CoreShare& share = kShare)
      : share_(share),
        shape_(TestShape(61, 100)),
        servers_(
            shape_, 2, [] { return MakeNone(1.0f); }, 1, std::nullopt, false, codecs, share),
        agreement_({2, 2, static_cast<uint64_t>(shape_.size),
                    static_cast<uint64_t>(CoreCount(share, shape_.size)), 0}) {
    for (int s = 0; s < 2; ++s) {
      SetCoreListener(*servers_[s].thread, [this, s](const CoreReport& report) {
        absl::MutexLock lock(&mutex_);
        for (const auto& [to, question] : agreement_.OnReport(ShardId(s), report)) {
          AskCore(*servers_[static_cast<int>(to.value())].thread, question);
        }
      });
    }
    ParameterClientGrpc::Options options;
    options.servers = servers_.addresses();
    options.slices = servers_.slices();
    options.layout_hash = servers_.layout_hash();
    options.member = MemberId(1);
    options.generation = Generation(3);
    options.job_digest = kDigest;
    options.coding = {codecs, shape_, 7, Rank(0)};
    client_ = *ParameterClientGrpc::Create(std::move(options));
    for (const ParameterSpec& spec : shape_.parameters) {
      memory_.emplace_back(spec.size());
      changes_.emplace_back(spec.size(), 0.25f);
    }
    for (auto& values : memory_) values_.push_back(absl::MakeSpan(values));
    for (auto& change : changes_) update_.push_back(absl::MakeConstSpan(change));
  }
  ~CoreServers() { servers_.EndCoreListeners(); }

  Cores Ask(uint64_t number) {
    client_->AskCores(number);
    absl::StatusOr<Cores> cores = client_->TakeCores();
    INFO(cores.status());
    REQUIRE(cores.ok());
    return *std::move(cores);
  }

  KeySet KeysOf(uint64_t exchange, const Cores& cores) {
    KeySet keys = client_->dense_keys();
    for (int s = 0; s < 2; ++s) {
      const ExplorerPlace place{7, Rank(0), Exchange(exchange), ShardId(s)};
      keys.sparse.push_back(
          std::make_shared<const SparseKeys>(DrawKeys(share_, place, shape_.size, cores[s])));
    }
    return keys;
  }

  absl::StatusOr<ExchangeResult> Exchange_(uint64_t exchange, const KeySet& keys) {
    const bool is_full = PushesAll(share_, exchange);
    return client_->PushPull({Exchange(exchange), 1}, is_full ? client_->dense_keys() : keys,
                             update_, keys, values_);
  }

  // Exchanges until servers have that core. The next exchange.
  uint64_t ExchangeUntilCore(uint64_t last) {
    uint64_t e = 1;
    for (uint64_t number = 0; number < last; ++e) {
      const Cores cores = Ask(number);
      REQUIRE(Exchange_(e, KeysOf(e, cores)).ok());
      if (PushesAll(share_, e)) ++number;
    }
    Ask(last);
    return e;
  }

  const CoreShare share_;
  const ModelShape shape_;
  absl::Mutex mutex_;
  RunningServers servers_;
  CoreAgreement agreement_;
  std::unique_ptr<ParameterClientGrpc> client_;
  std::vector<std::vector<float>> memory_, changes_;
  ParameterArrays values_;
  ConstParameterArrays update_;
};

TEST_CASE("an exchange moves the entries of a core and an explorer, and no others",
          "[client][core]") {
  CoreServers job;
  REQUIRE(job.client_->Pull(Exchange(0), job.client_->dense_keys(), job.values_).ok());
  const std::vector<std::vector<float>> first = job.memory_;
  const Cores cores = job.Ask(0);
  const Traffic before = job.client_->traffic();
  const KeySet keys = job.KeysOf(1, cores);
  // What is not moved is the worker's own.
  for (auto& values : job.memory_) std::fill(values.begin(), values.end(), -9.0f);
  const auto result = job.Exchange_(1, keys);
  INFO(result.status());
  REQUIRE(result.ok());
  CHECK(result->cores == 1);
  int64_t moved = 0;
  const std::vector<ShardSlices> all = job.servers_.slices();
  for (int s = 0; s < 2; ++s) {
    for (const Slice& slice : all[s].slices) {
      for (int64_t i = 0; i < slice.size(); ++i) {
        const int64_t at = slice.row_begin * slice.columns + i;
        const bool is_in = keys.sparse[s]->entries.Contains(slice.offset + i);
        moved += is_in;
        REQUIRE(job.memory_[slice.parameter][at] ==
                (is_in ? first[slice.parameter][at] + 0.25f : -9.0f));
      }
    }
  }
  CHECK(moved <= EntriesOf(0.3, job.shape_.size));
  CHECK(moved >= EntriesOf(0.3, job.shape_.size) - 2);
  const Traffic after = job.client_->traffic();
  CHECK(after.push_payload_bytes - before.push_payload_bytes == static_cast<uint64_t>(4 * moved));
  CHECK(after.pull_payload_bytes - before.pull_payload_bytes == static_cast<uint64_t>(4 * moved));
}

TEST_CASE("what an exchange does not move is held back, and comes with a later one",
          "[client][core][codec]") {
  CodecChoice codecs;
  codecs.error_feedback = true;
  codecs.push = GENERATE(Codec(), Bf16Codec(), Int8Codec());
  const bool loses = codecs.push != Codec();
  CoreServers job(codecs);
  for (size_t p = 0; p < job.changes_.size(); ++p) {
    for (size_t i = 0; i < job.changes_[p].size(); ++i) {
      job.changes_[p][i] = (loses ? 0.3f : 0.25f) * static_cast<float>((p + 7 * i) % 13);
    }
    std::fill(job.memory_[p].begin(), job.memory_[p].end(), 0.0f);
  }
  REQUIRE(job.client_->Pull(Exchange(0), job.client_->dense_keys(), job.values_).ok());
  const std::vector<std::vector<float>> first = job.memory_;
  const auto held = [&] { return *job.client_->held_back(); };
  // Some pushes of all entries among them, and some changes of the core.
  constexpr uint64_t kExchanges = 11;
  for (uint64_t e = 1; e <= kExchanges; ++e) {
    const Cores cores = job.Ask(CoreOf(kShare, e));
    const KeySet keys = job.KeysOf(e, cores);
    const bool is_last = e == kExchanges;
    OutgoingPush push{Exchange(e), 1};
    push.flush = is_last;
    const bool is_full = is_last || PushesAll(kShare, e);
    const auto result = job.client_->PushPull(push, is_full ? job.client_->dense_keys() : keys,
                                              job.update_, keys, job.values_);
    INFO(result.status());
    REQUIRE(result.ok());
    REQUIRE(job.client_->Read(Exchange(e), IdleNotice(), job.values_).ok());
    bool holds_some = false;
    for (size_t p = 0; p < first.size(); ++p) {
      for (size_t i = 0; i < first[p].size(); ++i) {
        const double wanted = first[p][i] + static_cast<double>(e) * job.changes_[p][i];
        const double found = static_cast<double>(job.memory_[p][i]) + held()[p][i];
        REQUIRE(std::fabs(found - wanted) <= e * 2e-7 * (1 + std::fabs(wanted)));
        holds_some = holds_some || held()[p][i] != 0;
      }
    }
    CHECK(holds_some == (is_last ? false : !is_full || loses));
  }
}

TEST_CASE("a core that servers have forgotten comes with the push, once", "[client][core]") {
  CoreServers job;
  REQUIRE(job.client_->Pull(Exchange(0), job.client_->dense_keys(), job.values_).ok());
  const Cores old = job.Ask(0);
  uint64_t e = job.ExchangeUntilCore(6);
  Traffic before = job.client_->traffic();
  const KeySet keys = job.KeysOf(e, old);
  const int64_t entries = keys.sparse[0]->entries.count() + keys.sparse[1]->entries.count();
  uint64_t key_bytes = 0;
  for (const auto& core : old) key_bytes += EncodeKeys(core->keys).bytes.size();
  REQUIRE(job.Exchange_(e, keys).ok());
  Traffic after = job.client_->traffic();
  const uint64_t pushed = after.push_payload_bytes - before.push_payload_bytes;
  // The attempt that was answered with a question may have sent its payload with the first message.
  CHECK(pushed >= 4 * static_cast<uint64_t>(entries) + key_bytes);
  CHECK(pushed <= 8 * static_cast<uint64_t>(entries) + key_bytes);
  ++e;
  if (PushesAll(kShare, e)) return;
  before = after;
  REQUIRE(job.Exchange_(e, job.KeysOf(e, old)).ok());
  after = job.client_->traffic();
  CHECK(after.push_payload_bytes - before.push_payload_bytes ==
        4 * static_cast<uint64_t>(job.KeysOf(e, old).sparse[0]->entries.count() +
                                  job.KeysOf(e, old).sparse[1]->entries.count()));
}

TEST_CASE("a core without entries comes without keys, however old it is", "[client][core]") {
  CoreServers job({}, {0.3, 0, 4, 0});
  REQUIRE(job.client_->Pull(Exchange(0), job.client_->dense_keys(), job.values_).ok());
  const Cores old = job.Ask(0);
  CHECK(old[0]->keys.count() == 0);
  uint64_t e = job.ExchangeUntilCore(6);
  const uint64_t before = job.client_->traffic().push_payload_bytes;
  const KeySet keys = job.KeysOf(e, old);
  const int64_t entries = keys.sparse[0]->entries.count() + keys.sparse[1]->entries.count();
  const auto result = job.Exchange_(e, keys);
  INFO(result.status());
  REQUIRE(result.ok());
  CHECK(job.client_->traffic().push_payload_bytes - before == 4 * static_cast<uint64_t>(entries));
}

TEST_CASE("a pull of a core that no server knows says so and brings nothing", "[client][core]") {
  CoreServers job;
  REQUIRE(job.client_->Pull(Exchange(0), job.client_->dense_keys(), job.values_).ok());
  Cores cores = job.Ask(0);
  auto forged = std::make_shared<Core>(*cores[1]);
  forged->name.signature.high ^= 4;
  cores[1] = std::move(forged);
  const std::vector<std::vector<float>> before = job.memory_;
  const auto result = job.client_->Pull(Exchange(0), job.KeysOf(1, cores), job.values_);
  REQUIRE(result.ok());
  CHECK(result->needs_all);
  CHECK(job.memory_ == before);
}

TEST_CASE("asking for a core that never comes ends with the client", "[client][core]") {
  CoreServers job;
  job.client_->AskCores(7);
  job.client_->Cancel();
  CHECK(job.client_->TakeCores().status().code() == absl::StatusCode::kCancelled);
}

TEST_CASE("the keys of a worker's exchanges follow from its cores", "[client][core]") {
  CoreServers job;
  const Cores cores = job.Ask(0);
  ExchangeKeys keys({job.shape_, 2, kShare, 7, Rank(0), Exchange(3), true});
  CHECK_FALSE(keys.value_keys().is_sparse());
  CHECK(keys.wanted() == uint64_t{0});
  keys.Adopt(cores);
  CHECK_FALSE(keys.wanted().has_value());
  const KeySet wanted = job.KeysOf(3, cores);
  for (int s = 0; s < 2; ++s) {
    CHECK(keys.update_keys().sparse[s]->entries == wanted.sparse[s]->entries);
  }
  CHECK(&keys.update_keys() == &keys.value_keys());
  keys.Advance();
  // The fourth pushes all, and pulls a part.
  CHECK_FALSE(keys.update_keys().is_sparse());
  CHECK(keys.value_keys().sparse[1]->entries == job.KeysOf(4, cores).sparse[1]->entries);
  keys.Advance();
  keys.PushAll();
  CHECK_FALSE(keys.update_keys().is_sparse());
  CHECK(keys.value_keys().is_sparse());
  keys.Advance();
  CHECK(keys.wanted() == uint64_t{1});
  keys.Drop();
  CHECK_FALSE(keys.value_keys().is_sparse());
}

}  // namespace
}  // namespace tessera
