// Real servers of one job in this process: a shard, its thread and gRPC on a free port each.
#ifndef TESSERA_TESTS_SERVER_RPC_RUNNING_SERVERS_H_
#define TESSERA_TESTS_SERVER_RPC_RUNNING_SERVERS_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <catch2/catch.hpp>

#include "absl/synchronization/notification.h"
#include "common/consistency/policy.h"
#include "common/keyset/core_share.h"
#include "common/keyset/subnet.h"
#include "common/layout/layer_cut.h"
#include "common/layout/parameters.h"
#include "common/layout/shard_map.h"
#include "common/rpc/grpc_server.h"
#include "common/rule/add.h"
#include "server/rpc/parameter_service.h"
#include "server/shard/shard.h"
#include "server/shard/shard_thread.h"
#include "tests/server/shard/thread_calls.h"

namespace tessera {

inline const std::string kDigest = std::string(64, 'd');

// A matrix [rows, columns] and a vector [rows].
inline ModelShape TestShape(int64_t rows, int64_t columns) {
  ModelShape shape;
  ParameterSpec weight;
  weight.name = "layers.0.weight";
  weight.rows = rows;
  weight.columns = columns;
  weight.initial_bound = 1;
  ParameterSpec bias;
  bias.name = "layers.0.bias";
  bias.rows = rows;
  bias.is_vector = true;
  bias.initial_constant = 0.5f;
  shape.parameters = {weight, bias};
  shape.widths = {columns, rows};
  shape.size = weight.size() + bias.size();
  return shape;
}

// Servers that add what is pushed, or, with `groups`, that train subnets and, `has_tail`, may end with
// the mean of what is pushed, or, with `core`, that exchange a core and explorers, or, with `cut`, halves of
// the layers. Values travel as `codecs` say. Members are numbered from 1.
class RunningServers {
 public:
  struct One {
    std::unique_ptr<ShardThread> thread;
    std::unique_ptr<ParameterService> service;
    std::unique_ptr<GrpcServer> grpc;
  };

  RunningServers(const ModelShape& shape, int shard_count,
                 const std::function<std::unique_ptr<ConsistencyPolicy>()>& policy, int members,
                 const std::optional<NeuronGroups>& groups = std::nullopt, bool has_tail = false,
                 const CodecChoice& codecs = {},
                 const std::optional<CoreShare>& core = std::nullopt,
                 const std::optional<LayerCut>& cut = std::nullopt)
      : shape_(shape), codecs_(codecs), servers_(shard_count) {
    for (int s = 0; s < shard_count; ++s) {
      Shard::Options options;
      options.shape = shape;
      options.shard = ShardId(s);
      options.sharding = shard_count;
      options.seed = 7;
      options.policy = policy();
      options.rule = MakeAdd();
      options.codecs = codecs;
      options.groups = groups;
      options.core = core;
      options.cut = cut;
      options.kind = groups ? 2 : 0;
      if (has_tail) options.whole_kind = 1;
      servers_[s].thread =
          std::make_unique<ShardThread>(std::make_unique<Shard>(std::move(options)));
      servers_[s].service =
          std::make_unique<ParameterService>(servers_[s].thread.get(), kDigest, Generation(3));
      auto grpc = GrpcServer::Start({"127.0.0.1:0", {servers_[s].service->service()}});
      REQUIRE(grpc.ok());
      servers_[s].grpc = *std::move(grpc);
    }
    SetMembers(members);
  }

  void SetMembers(int members) {
    Plan plan;
    plan.generation = Generation(++plan_);
    for (int m = 1; m <= members; ++m) {
      plan.members.push_back({MemberId(m), Rank(m - 1), Exchange(1)});
    }
    for (One& server : servers_) {
      SetPlan(*server.thread, plan);
    }
  }

  One& operator[](int s) { return servers_[s]; }
  // No listener is called any more when this returns.
  void EndCoreListeners() {
    for (One& server : servers_) {
      absl::Notification ended;
      SetCoreListener(*server.thread, nullptr);
      server.thread->Inspect(false, [&ended](const ShardThread::View&) { ended.Notify(); });
      ended.WaitForNotification();
    }
  }
  const ModelShape& shape() const { return shape_; }
  const CodecChoice& codecs() const { return codecs_; }
  uint64_t layout_hash() const { return servers_[0].thread->traits().layout_hash; }
  std::vector<std::string> addresses() const {
    std::vector<std::string> result;
    for (const One& server : servers_) result.push_back(server.grpc->address());
    return result;
  }
  std::vector<ShardSlices> slices() const {
    std::vector<ShardSlices> result;
    for (const One& server : servers_) result.push_back(server.thread->traits().slices);
    return result;
  }

  ~RunningServers() {
    for (One& server : servers_) server.grpc->Shutdown(absl::ZeroDuration());
  }

 private:
  const ModelShape shape_;
  const CodecChoice codecs_;
  std::vector<One> servers_;
  uint64_t plan_ = 0;
};

}  // namespace tessera

#endif  // TESSERA_TESTS_SERVER_RPC_RUNNING_SERVERS_H_
