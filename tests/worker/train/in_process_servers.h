// Real shards with their threads, reached without a network: what a train loop needs to be tested
// whole.
#ifndef TESSERA_TESTS_WORKER_TRAIN_IN_PROCESS_SERVERS_H_
#define TESSERA_TESTS_WORKER_TRAIN_IN_PROCESS_SERVERS_H_

#include <algorithm>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "absl/synchronization/notification.h"
#include "common/base/check.h"
#include "common/keyset/key_set.h"
#include "common/keyset/rows.h"
#include "common/keyset/subnet.h"
#include "common/layout/fragment.h"
#include "common/layout/layer_cut.h"
#include "common/layout/parameters.h"
#include "common/layout/shard_map.h"
#include "common/method/recipe.h"
#include "proto/job.pb.h"
#include "server/shard/shard.h"
#include "server/shard/shard_thread.h"
#include "server/shard/forms/site_subnet.h"
#include "tests/server/shard/thread_calls.h"
#include "worker/exchange/parameter_client.h"

namespace tessera {

// All servers of one job.
class InProcessServers {
 public:
  InProcessServers(const v1::Job& job, const Recipe& recipe, int servers, int workers)
      : shape_(*ExchangedShape(job.model(), recipe)) {
    Plan plan;
    plan.generation = Generation(1);
    for (int k = 0; k < workers; ++k) {
      plan.members.push_back({MemberId(k + 1), Rank(k), Exchange(1)});
    }
    for (int s = 0; s < servers; ++s) {
      Shard::Options options;
      options.shape = shape_;
      options.shard = ShardId(s);
      options.sharding = servers;
      options.seed = job.seed();
      options.kind = static_cast<int>(recipe.payload);
      options.policy = recipe.make_policy();
      options.rule = recipe.make_rule();
      options.schedule = recipe.schedule;
      if (recipe.subnets) options.groups = GroupsOf(shape_, recipe.subnet_rules);
      if (recipe.split) options.cut = recipe.split->cut;
      if (recipe.fragments) options.fragments = recipe.fragments->count;
      if (recipe.tail_steps > 0) options.whole_kind = static_cast<int>(TailOf(recipe).payload);
      shards_.push_back(std::make_unique<ShardThread>(std::make_unique<Shard>(std::move(options))));
    }
    SetPlan(plan);
  }

  void SetPlan(const Plan& plan) {
    for (const auto& shard : shards_) {
      absl::Notification done;
      tessera::SetPlan(*shard, plan, [&](const std::vector<Shard::Removed>&) { done.Notify(); });
      done.WaitForNotification();
    }
  }

  const ModelShape& shape() const { return shape_; }
  const std::vector<std::unique_ptr<ShardThread>>& shards() const { return shards_; }

  // All parameters, one after the other.
  std::vector<float> Parameters();
  uint64_t Hash() {
    uint64_t sum = 0;
    for (const auto& shard : shards_) {
      absl::Notification done;
      shard->Inspect(true, [&](ShardThread::View view) {
        sum += view.parameters_hash;
        done.Notify();
      });
      done.WaitForNotification();
    }
    return sum;
  }

 private:
  const ModelShape shape_;
  std::vector<std::unique_ptr<ShardThread>> shards_;
};

// One member's client. Speaks to the servers one after the other, which a barrier allows because
// all pushes go out before the first read.
class InProcessClient final : public ParameterClient {
 public:
  InProcessClient(InProcessServers* servers, MemberId member, PayloadKind kind)
      : servers_(*servers), member_(member), kind_(kind), bases_(servers_.shards().size()) {}

  absl::StatusOr<ExchangeResult> Pull(Exchange after, const KeySet& keys,
                                      const ParameterArrays& values) override {
    return PullAs(after, IdleNotice(), keys, values);
  }

  absl::StatusOr<ExchangeResult> PullAs(Exchange after, IdleNotice word, const KeySet& keys,
                                        const ParameterArrays& values) {
    ExchangeResult pulled;
    for (size_t s = 0; s < bases_.size(); ++s) {
      ShardThread& shard = *servers_.shards()[s];
      ReadResult read;
      if (keys.subnet.has_value()) {
        TESSERA_ASSIGN_OR_RETURN(read, Await<ReadResult>([&](auto done) {
                                   shard.Read<ReadResult>(
                                       member_, after, word,
                                       [this, after, place = *keys.subnet](Shard& s) {
                                         return s.Read(member_, after, place);
                                       },
                                       std::move(done));
                                 }));
        if (read.entries == nullptr) {
          pulled.is_whole = true;
          continue;
        }
        if (keys.waits_only) {
          bases_[s] = read.version;
          continue;
        }
        const auto own = std::get<SubnetPlace>(read.entries->name());
        if (own == *keys.subnet) {
          TakeSubnet(read, keys.slices[s], values);
        } else {
          pulled.recut = own;
        }
      } else {
        TESSERA_ASSIGN_OR_RETURN(read, Await<ReadResult>([&](auto done) {
                                   tessera::Read(shard, member_, after, word, std::move(done));
                                 }));
        Take(s, keys, read, values);
        traffic_.pull_payload_bytes += PartOf(shard.traits().slices, keys).bytes();
      }
      bases_[s] = read.version;
      pulled.job_examples = std::max(pulled.job_examples, read.examples);
      pulled.plan = std::max(pulled.plan, read.plan);
    }
    return pulled;
  }

  absl::StatusOr<ExchangeResult> PushPull(const OutgoingPush& note, const KeySet& update_keys,
                                          const ConstParameterArrays& update,
                                          const KeySet& value_keys,
                                          const ParameterArrays& values) override {
    for (size_t s = 0; s < bases_.size(); ++s) {
      ShardThread& shard = *servers_.shards()[s];
      ReceivedPush push;
      push.keys = update_keys.On(s);
      push.summed = note.summed;
      push.member = member_;
      push.exchange = note.exchange;
      push.base = bases_[s];
      push.kind = static_cast<int>(note.kind.value_or(kind_));
      push.whole_next = note.whole_next;
      push.layout_hash = shard.traits().layout_hash;
      push.examples = note.examples;
      // Dense, whatever number of servers the learner was told of.
      const ShardSlices slices = update_keys.subnet.has_value()
                                     ? update_keys.slices[s]
                                     : PartOf(shard.traits().slices, update_keys);
      traffic_.push_payload_bytes += slices.bytes();
      for (const Slice& slice : slices.slices) {
        const float* begin = update[slice.parameter].data() + slice.row_begin * slice.columns;
        push.payload.Append({reinterpret_cast<const char*>(begin), slice.size() * 4}, nullptr);
      }
      TESSERA_RETURN_IF_ERROR(Await<PushAccepted>([&](auto done) {
                                Accept(shard, std::move(push), std::move(done));
                              }).status());
    }
    ++traffic_.exchanges;
    // As if a server had to be asked again in between: what was there first is not what counts.
    const size_t early = note.sink != nullptr && !value_keys.waits_only ? values.size() : 0;
    for (size_t p = 0; p < early; ++p) {
      std::fill(values[p].begin(), values[p].end(), 17.0f);
      note.sink->Take(p);
    }
    TESSERA_ASSIGN_OR_RETURN(ExchangeResult pulled,
                             PullAs(note.exchange, note.rest, value_keys, values));
    if (pulled.recut.has_value() || pulled.is_whole) return pulled;
    for (size_t p = 0; p < early; ++p) note.sink->Take(p);
    return pulled;
  }

  absl::StatusOr<ExchangeResult> Read(Exchange after, IdleNotice word,
                                      const ParameterArrays& values) override {
    ExchangeResult read;
    for (size_t s = 0; s < bases_.size(); ++s) {
      TESSERA_ASSIGN_OR_RETURN(const ReadResult result, Await<ReadResult>([&](auto done) {
                                 ReadOutside(*servers_.shards()[s], member_, after, word,
                                             std::move(done));
                               }));
      Take(s, KeySet(), result, values);
      bases_[s] = result.version;
      read.job_examples = std::max(read.job_examples, result.examples);
    }
    return read;
  }

  absl::Status ReadRows(const RowRange& rows, absl::Span<float> values) override {
    for (size_t s = 0; s < bases_.size(); ++s) {
      const Slice owned = OwnedRows(servers_.shards()[s]->traits().slices, rows);
      if (owned.size() == 0) continue;
      TESSERA_ASSIGN_OR_RETURN(const ReadResult result, Await<ReadResult>([&](auto done) {
                                 ReadOutside(*servers_.shards()[s], member_, Exchange(0),
                                             IdleNotice(), std::move(done));
                               }));
      std::vector<float> dense = DenseOf(result);
      std::copy_n(dense.begin() + owned.offset, owned.size(),
                  values.begin() + (owned.row_begin - rows.row_begin) * owned.columns);
      traffic_.other_payload_bytes += 4 * owned.size();
    }
    return absl::OkStatus();
  }

  // Payloads of exchanges, and of rows that were read.
  Traffic traffic() const override { return traffic_; }

 private:
  // Waits for the answer of a call that begin(done) makes.
  template <typename Result, typename Begin>
  static absl::StatusOr<Result> Await(Begin begin) {
    absl::StatusOr<Result> answer;
    absl::Notification done;
    begin([&](absl::StatusOr<Result> result) {
      answer = std::move(result);
      done.Notify();
    });
    done.WaitForNotification();
    return answer;
  }

  void TakeSubnet(const ReadResult& result, const ShardSlices& slices,
                  const ParameterArrays& values) {
    SubnetGather gather(std::static_pointer_cast<const SiteSubnet>(result.entries),
                        result.snapshot);
    for (const Slice& slice : slices.slices) {
      gather.Next(slice.size(), values[slice.parameter].data() + slice.row_begin * slice.columns);
    }
    TESSERA_CHECK(gather.left() == 0);
    traffic_.pull_payload_bytes += slices.bytes();
  }

  static std::vector<float> DenseOf(const ReadResult& result) {
    std::vector<float> dense;
    for (const auto& block : result.snapshot->blocks()) {
      dense.insert(dense.end(), block->data(), block->data() + block->size());
    }
    return dense;
  }

  // What `keys`, which are dense, of layers or of a fragment, are of all that a shard owns.
  static ShardSlices PartOf(const ShardSlices& all, const KeySet& keys) {
    if (keys.fragment.has_value()) return SlicesOfFragment(all, *keys.fragment);
    return keys.layers.has_value() ? SlicesOfLayers(all, *keys.layers) : all;
  }

  void Take(size_t s, const KeySet& keys, const ReadResult& result, const ParameterArrays& values) {
    const std::vector<float> dense = DenseOf(result);
    const ShardSlices& all = servers_.shards()[s]->traits().slices;
    const int64_t begin = keys.fragment.has_value() ? BeginOf(all, *keys.fragment) : 0;
    const ShardSlices owned = keys.fragment.has_value() ? PartOf(all, keys) : all;
    for (const Slice& slice : owned.slices) {
      const int p = slice.parameter;
      if (keys.layers.has_value() && (p < keys.layers->begin || p >= keys.layers->end)) continue;
      std::copy_n(dense.begin() + begin + slice.offset, slice.size(),
                  values[slice.parameter].begin() + slice.row_begin * slice.columns);
    }
  }

  InProcessServers& servers_;
  const MemberId member_;
  const PayloadKind kind_;
  std::vector<Version> bases_;
  Traffic traffic_;
};

inline std::vector<float> InProcessServers::Parameters() {
  std::vector<std::vector<float>> arrays;
  ParameterArrays views;
  for (const ParameterSpec& spec : shape_.parameters) arrays.emplace_back(spec.size());
  for (std::vector<float>& array : arrays) views.push_back(absl::MakeSpan(array));
  InProcessClient client(this, MemberId(1), PayloadKind::kGradient);
  const absl::Status read = client.Read(Exchange(0), IdleNotice(), views).status();
  std::vector<float> all;
  for (const std::vector<float>& array : arrays) all.insert(all.end(), array.begin(), array.end());
  return read.ok() ? all : std::vector<float>();
}

}  // namespace tessera

#endif  // TESSERA_TESTS_WORKER_TRAIN_IN_PROCESS_SERVERS_H_
