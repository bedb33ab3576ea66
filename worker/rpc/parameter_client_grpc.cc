#include "worker/rpc/parameter_client_grpc.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/steady_clock.h"
#include "common/rpc/key_set_message.h"
#include "common/rpc/transport.h"
#include "worker/rpc/device_update_coder.h"
#include "worker/rpc/update_coder.h"

namespace tessera {
namespace {

// How long the memory of an ended call may stay with a connection that does not move, before the
// connection is given up.
constexpr absl::Duration kLetGoTime = absl::Seconds(1);

}  // namespace

absl::StatusOr<std::unique_ptr<ParameterClientGrpc>> ParameterClientGrpc::Create(Options options) {
  if (options.placement == Placement::kReplicated && options.slices.size() != 1) {
    return absl::InvalidArgumentError(absl::StrCat("parameter client: slices are of ",
                                                   options.slices.size(),
                                                   " shards, want one, which all servers hold"));
  }
  if (options.placement == Placement::kSharded &&
      (options.servers.empty() || options.servers.size() != options.slices.size())) {
    return absl::InvalidArgumentError(
        absl::StrCat("parameter client: servers are ", options.servers.size(),
                     ", want one or more, one for each of the ", options.slices.size(), " shards"));
  }
  if (options.channels_per_server < 1 || options.channels_per_server > 2) {
    return absl::InvalidArgumentError(absl::StrCat("parameter client: channels_per_server is ",
                                                   options.channels_per_server, ", want 1 or 2"));
  }
  const CodingOptions& coding = options.coding;
  std::shared_ptr<DeviceEntrySets> sets;
  if (coding.device != nullptr) sets = std::make_shared<DeviceEntrySets>(&coding.device->memory());
  std::unique_ptr<PushCoder> coder;
  if (coding.sides.update) {
    TESSERA_ASSIGN_OR_RETURN(coder, DeviceUpdateCoder::Create(coding, sets));
  } else {
    coder = std::make_unique<UpdateCoder>(coding);
  }
  std::unique_ptr<DeviceValues> device_values;
  if (coding.sides.values) device_values = std::make_unique<DeviceValues>(coding.device, sets);
  return std::unique_ptr<ParameterClientGrpc>(
      new ParameterClientGrpc(std::move(options), std::move(coder), std::move(device_values)));
}

ParameterClientGrpc::ParameterClientGrpc(Options options, std::unique_ptr<PushCoder> coder,
                                         std::unique_ptr<DeviceValues> device_values)
    : options_(std::move(options)),
      dense_keys_{std::nullopt, options_.slices, false, {}, std::nullopt},
      coder_(std::move(coder)),
      device_values_(std::move(device_values)),
      requests_(OwnCaller(), options_.layout_hash, options_.coding.codecs.pull),
      cores_(CoreOptions()) {
  servers_.resize(options_.servers.size());
  for (size_t s = 0; s < servers_.size(); ++s) {
    servers_[s].address = options_.servers[s];
    Connect(&servers_[s]);
  }
}

v1::Caller ParameterClientGrpc::OwnCaller() const {
  v1::Caller caller;
  caller.set_member(options_.member.value());
  caller.set_job_digest(options_.job_digest);
  caller.set_generation(options_.generation.value());
  return caller;
}

CoreCalls::Options ParameterClientGrpc::CoreOptions() {
  CoreCalls::Options cores;
  cores.caller = OwnCaller();
  cores.layout_hash = options_.layout_hash;
  for (const ShardSlices& slices : options_.slices) cores.entries.push_back(slices.size);
  cores.retry_time = options_.retry_time;
  cores.names_shards = options_.has_standbys;
  cores.look_around = [this] { FollowLeaders(); };
  cores.stub = [this](size_t server) { return servers_[server].stubs.back().get(); };
  return cores;
}

void ParameterClientGrpc::Connect(Server* server) {
  server->stubs.clear();
  for (int i = 0; i < options_.channels_per_server; ++i) {
    server->stubs.push_back(std::make_unique<grpc::GenericStub>(OpenChannel(server->address)));
  }
}

absl::StatusOr<ExchangeResult> ParameterClientGrpc::Pull(Exchange after, const KeySet& keys,
                                                         const ParameterArrays& values) {
  requests_.AskValues(keys, after, RestWord());
  TESSERA_RETURN_IF_ERROR(AddPulls(keys, values));
  return RunTasks(SteadyNow());
}

absl::StatusOr<ExchangeResult> ParameterClientGrpc::PushPull(const OutgoingPush& push,
                                                             const KeySet& update_keys,
                                                             const ConstParameterArrays& update,
                                                             const KeySet& value_keys,
                                                             const ParameterArrays& values) {
  const absl::Time begin = SteadyNow();
  TESSERA_RETURN_IF_ERROR(BeginPushPull(push, update_keys, update, value_keys, values));
  return EndExchange(begin);
}

absl::Status ParameterClientGrpc::BeginPushPull(const OutgoingPush& push, const KeySet& update_keys,
                                                const ConstParameterArrays& update,
                                                const KeySet& value_keys,
                                                const ParameterArrays& values) {
  TESSERA_RETURN_IF_ERROR(PreparePush(push, update_keys, update));
  requests_.AskValues(value_keys, push.exchange, push.rest);
  AddPushes(update_keys);
  TESSERA_RETURN_IF_ERROR(AddPulls(value_keys, values));
  WatchValues(push.sink, value_keys);
  // gRPC's threads go on with it. What must be tried again is, in EndPushPull.
  if (!cancelled_.load(std::memory_order_acquire) && !away_.load(std::memory_order_acquire)) {
    StartDue(SteadyNow());
  }
  return absl::OkStatus();
}

absl::StatusOr<ExchangeResult> ParameterClientGrpc::EndPushPull() {
  return EndExchange(SteadyNow());
}

absl::StatusOr<ExchangeResult> ParameterClientGrpc::EndExchange(absl::Time begin) {
  absl::StatusOr<ExchangeResult> result = RunTasks(begin);
  if (result.ok()) ++traffic_.exchanges;
  return result;
}

void ParameterClientGrpc::DropPushPull() {
  RunTasks(SteadyNow(), absl::CancelledError("parameter client: dropped")).IgnoreError();
}

absl::StatusOr<ExchangeResult> ParameterClientGrpc::Read(Exchange after, RestWord word,
                                                         const ParameterArrays& values) {
  requests_.AskOutside(dense_keys_, after, word);
  TESSERA_RETURN_IF_ERROR(AddPulls(dense_keys_, values));
  return RunTasks(SteadyNow());
}

absl::Status ParameterClientGrpc::ReadRows(const RowRange& rows, absl::Span<float> values) {
  requests_.AskRows(dense_keys_, rows);
  const ParameterArrays arrays = {values};
  int64_t entries = 0;
  if (replicated()) FollowServers(/*between_exchanges=*/true);
  for (size_t s = 0; s < servers_.size(); ++s) {
    if (!pulls_from(s)) continue;
    Slice owned = OwnedRows(options_.slices[replicated() ? 0 : s], rows);
    if (owned.size() == 0) continue;
    // In the caller's memory, which begins with the first of the rows.
    owned.parameter = 0;
    owned.row_begin -= rows.row_begin;
    owned.row_end -= rows.row_begin;
    ShardSlices slices;
    slices.slices = {owned};
    slices.size = owned.size();
    AddPull(s, slices, arrays);
    entries += owned.size();
  }
  TESSERA_CHECK(entries == static_cast<int64_t>(values.size()));
  return RunTasks(SteadyNow()).status();
}

absl::StatusOr<ExchangeResult> ParameterClientGrpc::Push(Exchange exchange, uint64_t examples,
                                                         const KeySet& keys,
                                                         const ConstParameterArrays& update) {
  TESSERA_RETURN_IF_ERROR(PreparePush({exchange, examples}, keys, update));
  AddPushes(keys);
  return RunTasks(SteadyNow());
}

void ParameterClientGrpc::SetAway(bool away) {
  away_.store(away, std::memory_order_release);
  board_.Notify();
  cores_.SetAway(away);
}

void ParameterClientGrpc::Cancel() {
  cancelled_.store(true, std::memory_order_release);
  board_.Notify();
  cores_.Cancel();
}

absl::Status ParameterClientGrpc::PreparePush(const OutgoingPush& push, const KeySet& keys,
                                              const ConstParameterArrays& update) {
  TESSERA_RETURN_IF_ERROR(coder_->Begin(push, keys, update));
  requests_.SetPush(push, keys, coder_->codec(), options_.kind);
  return absl::OkStatus();
}

void ParameterClientGrpc::AddTask(size_t server, bool is_push) {
  const uint64_t call = server << 1 | (is_push ? 1 : 0);
  tasks_.push_back(
      {server, is_push, Retry(ServerRetry(options_.retry_time), options_.member, call)});
}

void ParameterClientGrpc::AddPushes(const KeySet& keys) {
  FollowServers(/*between_exchanges=*/true);
  sparse_push_ = keys.is_sparse() ? &keys : nullptr;
  TESSERA_CHECK(replicated() || keys.slices.size() == servers_.size());
  for (size_t s = 0; s < servers_.size(); ++s) {
    if (replicated() && servers_[s].life == 0) continue;
    servers_[s].payload = coder_->Make(replicated() ? 0 : s, &servers_[s].update);
    servers_[s].sends_keys = false;
    AddTask(s, /*is_push=*/true);
  }
}

absl::Status ParameterClientGrpc::AddPulls(const KeySet& keys, const ParameterArrays& values) {
  if (tasks_.empty()) FollowServers(/*between_exchanges=*/true);
  if (device_values_ != nullptr && !requests_.is_outside()) return AddDevicePulls(keys, values);
  if (replicated()) {
    TESSERA_CHECK(keys.slices.size() == 1);
    // Without a server beside it this worker is no member any more, which its lease will say.
    if (options_.home < servers_.size() && servers_[options_.home].life != 0) {
      AddPull(options_.home, keys.slices[0], values);
    }
    return absl::OkStatus();
  }
  TESSERA_CHECK(keys.slices.size() == servers_.size());
  if (!keys.is_sparse()) {
    for (size_t s = 0; s < servers_.size(); ++s) AddPull(s, keys.slices[s], values);
    return absl::OkStatus();
  }
  sparse_pull_ = &keys;
  sparse_values_ = &values;
  for (size_t s = 0; s < servers_.size(); ++s) AddSparsePull(s, *keys.sparse[s]);
  return absl::OkStatus();
}

void ParameterClientGrpc::AddPull(size_t server, const ShardSlices& slices,
                                  const ParameterArrays& values) {
  servers_[server].values.Assign(slices, values);
  servers_[server].value_keys.reset();
  const Codec& codec = options_.coding.codecs.pull;
  if (!requests_.is_outside() && codec != Codec()) {
    servers_[server].value_keys.emplace(codec, slices, options_.coding.shape);
  }
  AddTask(server, /*is_push=*/false);
}

std::unique_ptr<PullFromServer> ParameterClientGrpc::MakePull(Server* server) {
  server->values.Rewind();
  if (sparse_pull_ != nullptr) {
    *requests_.pull()->mutable_keys()->mutable_sparse() =
        ToMessage(sparse_pull_->sparse[server - servers_.data()]->core->name);
  }
  ValueWriter values =
      device_pull_ != nullptr
          ? ValueWriter(server->received, server->value_keys->bytes())
          : ValueWriter(&server->values, server->value_keys ? &*server->value_keys : nullptr);
  const auto shard = static_cast<size_t>(server - servers_.data());
  if (requests_.subnet().has_value()) {
    NameShard(shard, requests_.fetch()->mutable_caller());
    return std::make_unique<PullFromServer>(&board_, *requests_.fetch(), *requests_.subnet(),
                                            options_.layout_hash, std::move(values));
  }
  NameShard(shard, requests_.pull()->mutable_caller());
  return std::make_unique<PullFromServer>(&board_, *requests_.pull(), options_.layout_hash,
                                          std::move(values));
}

absl::StatusOr<ExchangeResult> ParameterClientGrpc::RunTasks(absl::Time begin,
                                                             absl::Status failed) {
  pushed_time_ = begin;
  first_value_time_ = absl::InfiniteFuture();
  answer_ = ExchangeResult();
  const bool pulls = !tasks_.empty() && !tasks_.back().is_push;
  while (true) {
    const absl::Time now = SteadyNow();
    if (failed.ok() && cancelled_.load(std::memory_order_acquire)) {
      failed = absl::CancelledError("parameter client: cancelled");
    }
    FollowServers(/*between_exchanges=*/false);
    FollowLeaders();
    const bool is_away = away_.load(std::memory_order_acquire);
    bool all_done = true;
    bool any_running = false;
    absl::Time wake = absl::InfiniteFuture();
    for (Task& task : tasks_) {
      // What fails meanwhile is tried anew, for the whole time.
      if (is_away) task.retry.Forgive();
      if (task.given_up && !task.done) {
        if (task.call != nullptr) task.call->Cancel();
        if (task.call == nullptr && task.is_push) task.done = true;
      }
      if (task.call != nullptr && task.call->answered()) task.call->LetGo();
      if (task.call != nullptr && task.call->ended()) {
        const absl::Status status = Collect(&task, now);
        if (failed.ok()) failed = status;
      } else if (task.call != nullptr && task.call->answered()) {
        const absl::Time let_go = task.call->end_time() + kLetGoTime;
        if (let_go <= now) Connect(&servers_[task.server]);
        wake = std::min(wake, std::max(let_go, now + kLetGoTime));
      }
      if (task.call != nullptr) any_running = true;
      if (!task.done) all_done = false;
    }
    if (failed.ok() && watch_.is_on()) TellValues();
    if (all_done || (!failed.ok() && !any_running)) break;
    if (!failed.ok()) {
      for (Task& task : tasks_) {
        if (task.call != nullptr) task.call->Cancel();
      }
    } else if (!is_away) {
      wake = std::min(wake, StartDue(now));
    }
    board_.WaitUntil(wake);
  }
  tasks_.clear();
  const bool has_values = !answer_.needs_all && !answer_.recut.has_value() && !answer_.is_whole;
  if (failed.ok() && device_pull_ == nullptr && sparse_pull_ != nullptr && has_values) {
    ScatterValues();
  }
  watch_.End();
  sparse_push_ = nullptr;
  sparse_pull_ = nullptr;
  device_pull_ = nullptr;
  if (!failed.ok()) return failed;
  if (pulls && !requests_.is_rows()) RememberVersions();
  const absl::Time end = SteadyNow();
  const absl::Time first_value = std::min(end, std::max(pushed_time_, first_value_time_));
  ExchangeResult result = answer_;
  result.push_seconds = absl::ToDoubleSeconds(pushed_time_ - begin);
  result.wait_seconds = absl::ToDoubleSeconds(first_value - pushed_time_);
  result.pull_seconds = absl::ToDoubleSeconds(end - first_value);
  return result;
}

// Returns when the next one is due that is not yet.
absl::Time ParameterClientGrpc::StartDue(absl::Time now) {
  absl::Time next = absl::InfiniteFuture();
  for (Task& task : tasks_) {
    if (task.done || task.call != nullptr) continue;
    if (task.retry.due() > now) {
      next = std::min(next, task.retry.due());
      continue;
    }
    Server& server = servers_[task.server];
    if (task.is_push) {
      v1::PushHeader& header = *requests_.push();
      header.set_from_peer(is_peer(task.server));
      header.set_base_version(is_peer(task.server) ? 0 : server.base.value());
      server.payload->Rewind();
      header.set_payload_bytes(server.payload->bytes());
      if (sparse_push_ != nullptr) NameCore(task.server);
      NameShard(task.server, header.mutable_caller());
      task.push = std::make_unique<PushToServer>(&board_, header, server.payload.get());
      task.call = task.push.get();
      task.push->Start(server.stubs.front().get());
    } else {
      watch_.Restart();
      task.pull = MakePull(&server);
      if (watch_.is_on()) task.pull->TellWritten();
      task.call = task.pull.get();
      task.pull->Start(server.stubs.back().get());
    }
  }
  return next;
}

// Counts an attempt that has ended, and plans the next one where it may help.
absl::Status ParameterClientGrpc::Collect(Task* task, absl::Time now) {
  Server& server = servers_[task->server];
  const ServerCall& call = *std::exchange(task->call, nullptr);
  if (task->is_push) {
    // What goes to the server beside this worker leaves no machine.
    if (!replicated() || is_peer(task->server)) {
      traffic_.push_payload_bytes += call.payload_bytes();
      traffic_.push_wire_bytes += call.wire_bytes();
    }
  } else if (requests_.is_outside()) {
    traffic_.other_payload_bytes += call.payload_bytes();
  } else {
    traffic_.pull_payload_bytes += call.payload_bytes();
    traffic_.pull_wire_bytes += call.wire_bytes();
  }
  const absl::Status& status = call.status();
  if (status.ok() && task->is_push && task->push->need_keys()) return AddKeys(task->server);
  if (status.ok()) {
    task->done = true;
    if (task->is_push) {
      pushed_time_ = std::max(pushed_time_, call.end_time());
    } else {
      first_value_time_ = std::min(first_value_time_, call.first_byte_time());
      server.pulled = Version(task->pull->version());
      // Where servers differ, the next pull goes by one of them and finds the others agreed.
      if (task->pull->recut().has_value()) answer_.recut = task->pull->recut();
      // One that lost all its members on the way may not have heard of it.
      answer_.is_whole = answer_.is_whole || task->pull->is_whole();
      answer_.job_examples = std::max(answer_.job_examples, task->pull->job_examples());
      answer_.plan = std::max(answer_.plan, Generation(task->pull->plan()));
      answer_.needs_all = answer_.needs_all || task->pull->needs_all();
      answer_.cores = std::max(answer_.cores, task->pull->cores());
      if (task->pull->checkpoint_number() > answer_.checkpoint_number) {
        answer_.checkpoint_number = task->pull->checkpoint_number();
        answer_.checkpoint_step = task->pull->checkpoint_step();
      }
      if (device_pull_ != nullptr && task->pull->has_values()) {
        return WriteDeviceValues(task->server);
      }
    }
    return absl::OkStatus();
  }
  if (task->given_up && task->is_push) {
    task->done = true;
    return absl::OkStatus();
  }
  if (task->retry.OnFailure(status.code(), now) == Retry::Verdict::kAgain) {
    if (options_.on_trouble) options_.on_trouble();
    return absl::OkStatus();
  }
  const int attempts = task->retry.failures();
  const std::string tries = attempts > 1 ? absl::StrCat(" (", attempts, " attempts)") : "";
  return absl::Status(status.code(), absl::StrCat("server ", task->server, " at ", server.address,
                                                  ": ", status.message(), tries));
}

void ParameterClientGrpc::RememberVersions() {
  for (Server& server : servers_) server.base = server.pulled;
}

}  // namespace tessera
