#include "worker/rpc/parameter_client_grpc.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/steady_clock.h"
#include "common/rpc/key_set_message.h"
#include "common/rpc/shared_memory/shared_arena.h"
#include "worker/rpc/device_update_coder.h"
#include "worker/rpc/device_values.h"
#include "worker/rpc/update_coder.h"

namespace tessera {
namespace {

// How long an ended call may hold on to a connection that does not move, or the connection to its memory, before that
// is given up.
constexpr absl::Duration kLetGoTime = absl::Seconds(1);

}  // namespace

absl::StatusOr<std::unique_ptr<ParameterClientGrpc>> ParameterClientGrpc::Create(Options options) {
  // With replicated placement all servers hold one shard with everything.
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
  // Pushes and pulls have the same places of a core: the device holds them once.
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

// The keys of all that servers own.
KeySet ParameterClientGrpc::AllOf(const std::vector<ShardSlices>& slices) {
  KeySet keys;
  keys.slices = slices;
  return keys;
}

ParameterClientGrpc::ParameterClientGrpc(Options options, std::unique_ptr<PushCoder> coder,
                                         std::unique_ptr<DeviceValues> device_values)
    : options_(std::move(options)),
      dense_keys_(AllOf(options_.slices)),
      links_(LinkOptions()),
      update_(std::move(coder)),
      values_(options_.coding, options_.slices, std::move(device_values)),
      requests_(OwnCaller(), options_.layout_hash, options_.coding.codecs.pull),
      cores_(CoreOptions()),
      versions_(links_.size()) {}

v1::Caller ParameterClientGrpc::OwnCaller() const {
  v1::Caller caller;
  caller.set_member(options_.member.value());
  // Servers refuse callers of another job, and members that the coordinator has dropped.
  caller.set_job_digest(options_.job_digest);
  caller.set_generation(options_.generation.value());
  return caller;
}

ServerLinks::Options ParameterClientGrpc::LinkOptions() const {
  ServerLinks::Options links;
  links.addresses = options_.servers;
  links.placement = options_.placement;
  links.home = options_.home;
  links.has_standbys = options_.has_standbys;
  links.channels_per_server = options_.channels_per_server;
  // Where the system does not let this process share memory nobody is asked.
  if (options_.shares_memory && SharedArena::OfProcess() != nullptr) {
    links.shares_memory = OwnCaller();
  }
  return links;
}

CoreCalls::Options ParameterClientGrpc::CoreOptions() {
  CoreCalls::Options cores;
  cores.caller = OwnCaller();
  cores.layout_hash = options_.layout_hash;
  for (const ShardSlices& slices : options_.slices) cores.entries.push_back(slices.size);
  cores.retry_time = options_.retry_time;
  cores.names_shards = options_.has_standbys;
  cores.look_around = [this] {
    // A pull of a core's keys follows its shard to another server.
    for (const size_t shard : links_.Move()) RepeatAt(shard);
  };
  cores.stub = [this](size_t server) { return links_.pulls(server); };
  return cores;
}

void ParameterClientGrpc::SetServers(const v1::ServerList& list) {
  if (!links_.Set(list)) return;
  // Both boards have a thread that waits, at one time or another.
  board_.Notify();
  cores_.Notify();
}

void ParameterClientGrpc::TakeUpServers() {
  links_.TakeUp();
  versions_.resize(links_.size());
}

void ParameterClientGrpc::FollowServers() {
  // A server that is gone answers nothing more: its pushes count as made.
  for (const size_t server : links_.Gone()) {
    for (Task& task : tasks_) task.given_up = task.given_up || task.server == server;
  }
  for (const size_t shard : links_.Move()) RepeatAt(shard);
}

void ParameterClientGrpc::RepeatAt(size_t shard) {
  const bool pushes = std::any_of(tasks_.begin(), tasks_.end(), [shard](const Task& task) {
    return task.server == shard && task.is_push && !task.done;
  });
  for (Task& task : tasks_) {
    if (task.server != shard) continue;
    // What it answered while the push was open may have been lost with it.
    // The standby has the shard as of an earlier exchange, and both are made once more.
    if (pushes && !task.is_push) task.done = false;
    if (task.done) continue;
    task.retry.Restart();
    if (task.call != nullptr) task.call->Cancel();
  }
  cores_.Repeat(shard);
}

absl::StatusOr<ExchangeResult> ParameterClientGrpc::Pull(Exchange after, const KeySet& keys,
                                                         const ParameterArrays& values) {
  requests_.AskValues(keys, after, IdleNotice());
  TESSERA_RETURN_IF_ERROR(AddPulls(keys, values));
  return RunTasks(SteadyNow());
}

// The keys of the update and of the values differ where parts are sent.
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
  // The pull waits at the server for the exchange that the push completes, and is sent with it.
  requests_.AskValues(value_keys, push.exchange, push.rest);
  AddPushes(update_keys);
  TESSERA_RETURN_IF_ERROR(AddPulls(value_keys, values));
  values_.Watch(push.sink);
  // gRPC's threads go on with it. What must be tried again is, in EndPushPull, which also decides where this is
  // cancelled or the coordinator is away.
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
  // Exchanges that failed are not counted.
  if (result.ok()) ++traffic_.exchanges;
  return result;
}

void ParameterClientGrpc::DropPushPull() {
  // The status ends all calls, and the answers are dropped.
  RunTasks(SteadyNow(), absl::CancelledError("parameter client: dropped")).IgnoreError();
}

absl::StatusOr<ExchangeResult> ParameterClientGrpc::Read(Exchange after, IdleNotice word,
                                                         const ParameterArrays& values) {
  requests_.AskOutside(dense_keys_, after, word);
  TESSERA_RETURN_IF_ERROR(AddPulls(dense_keys_, values));
  return RunTasks(SteadyNow());
}

absl::Status ParameterClientGrpc::ReadRows(const RowRange& rows, absl::Span<float> values) {
  requests_.AskRows(dense_keys_, rows);
  const ParameterArrays arrays = {values};
  int64_t entries = 0;
  TakeUpServers();
  for (size_t s = 0; s < links_.size(); ++s) {
    // Where placement is replicated, rows are read from the server beside this worker.
    if (links_.is_peer(s)) continue;
    Slice owned = OwnedRows(options_.slices[links_.part_of(s)], rows);
    if (owned.size() == 0) continue;
    // In the caller's memory, which begins with the first of the rows.
    owned.parameter = 0;
    owned.row_begin -= rows.row_begin;
    owned.row_end -= rows.row_begin;
    ShardSlices slices;
    slices.slices = {owned};
    slices.size = owned.size();
    values_.AwaitSlices(s, slices, arrays);
    AddTask(s, /*is_push=*/false);
    entries += owned.size();
  }
  // Every row is owned by one server.
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
  TESSERA_RETURN_IF_ERROR(update_.Begin(push, keys, update));
  requests_.SetPush(push, keys, update_.codec(), options_.kind);
  return absl::OkStatus();
}

void ParameterClientGrpc::AddTask(size_t server, bool is_push) {
  // A number of its own for each call, so that pauses after failures differ.
  const uint64_t call = server << 1 | (is_push ? 1 : 0);
  tasks_.push_back(
      {server, is_push, Retry(ServerRetry(options_.retry_time), options_.member, call)});
}

void ParameterClientGrpc::AddPushes(const KeySet& keys) {
  TakeUpServers();
  TESSERA_CHECK(links_.is_replicated() || keys.slices.size() == links_.size());
  for (size_t s = 0; s < links_.size(); ++s) {
    if (!links_.is_there(s)) continue;
    update_.Make(s, links_.part_of(s), links_.size());
    AddTask(s, /*is_push=*/true);
  }
}

absl::Status ParameterClientGrpc::AddPulls(const KeySet& keys, const ParameterArrays& values) {
  // Servers that were taken up with the pushes stay the same in their pulls.
  if (tasks_.empty()) TakeUpServers();
  TESSERA_CHECK(keys.slices.size() == (links_.is_replicated() ? 1 : links_.size()));
  absl::Status status = values_.Begin(keys, values, requests_.is_outside());
  // Where placement is replicated and no server is beside it this worker is no member any more, which its lease will
  // say.
  for (size_t s = 0; s < links_.size() && status.ok(); ++s) {
    if (!links_.is_pulled_from(s)) continue;
    status = values_.Await(s, links_.part_of(s));
    AddTask(s, /*is_push=*/false);
  }
  // Pushes that were added before are dropped with it, as nothing was sent yet.
  if (!status.ok()) tasks_.clear();
  return status;
}

absl::StatusOr<ExchangeResult> ParameterClientGrpc::RunTasks(absl::Time begin,
                                                             absl::Status failed) {
  answers_.Begin(begin);
  const bool pulls = !tasks_.empty() && !tasks_.back().is_push;
  while (true) {
    TakePackets();
    const absl::Time now = SteadyNow();
    // Cancelled calls end with their own error, which is not the reason.
    if (failed.ok() && cancelled_.load(std::memory_order_acquire)) {
      failed = absl::CancelledError("parameter client: cancelled");
    }
    // A new list may have come at any time.
    FollowServers();
    const bool is_away = away_.load(std::memory_order_acquire);
    bool all_done = true;
    bool any_running = false;
    absl::Time wake = absl::InfiniteFuture();
    for (Task& task : tasks_) {
      // What fails meanwhile is tried anew, for the whole time.
      if (is_away) task.retry.Forgive();
      if (task.given_up && !task.done) {
        if (task.call != nullptr) task.call->Cancel();
        // A push that was never sent is done with.
        if (task.call == nullptr && task.is_push) task.done = true;
      }
      if (task.call != nullptr && task.call->answered()) task.call->LetGo();
      if (task.call != nullptr && task.call->ended()) {
        const absl::Status status = Collect(&task, now);
        if (failed.ok()) failed = status;
      } else if (task.call != nullptr && task.call->answered()) {
        // gRPC still holds the memory of a call whose connection stands still: it is closed, and lets go of it.
        const absl::Time let_go = task.call->end_time() + kLetGoTime;
        if (let_go <= now) links_.Reconnect(task.server);
        wake = std::min(wake, std::max(let_go, now + kLetGoTime));
      }
      if (task.call != nullptr) wake = std::min(wake, task.call->EndOthers(now, kLetGoTime));
      if (task.call != nullptr && task.is_push) wake = std::min(wake, task.push->Continue(now));
      if (task.call != nullptr) any_running = true;
      if (!task.done) all_done = false;
    }
    // Layers whose values are complete may go on before the last one is there.
    if (failed.ok() && values_.is_watched()) TellValues();
    // Calls that are under way hold memory of the caller, also after a failure.
    if (all_done || (!failed.ok() && !any_running)) break;
    if (!failed.ok()) {
      for (Task& task : tasks_) {
        if (task.call != nullptr) task.call->Cancel();
      }
    } else if (!is_away) {
      wake = std::min(wake, StartDue(now));
    }
    board_.WaitUntil(wake, PacketSockets());
  }
  tasks_.clear();
  // Values are only complete where all servers have answered with them.
  values_.End(failed.ok() && answers_.have_values());
  update_.End();
  if (!failed.ok()) return failed;
  // The base of the next push is the version that this worker has now.
  if (pulls && !requests_.is_rows()) {
    for (Versions& versions : versions_) versions.base = versions.pulled;
  }
  return answers_.Result(SteadyNow());
}

void ParameterClientGrpc::TakePackets() {
  for (const Task& task : tasks_) {
    if (task.call != nullptr && task.call->local() != nullptr) task.call->local()->Take();
  }
}

// What their calls that are under way are answered by.
std::vector<int> ParameterClientGrpc::PacketSockets() const {
  std::vector<int> sockets;
  for (const Task& task : tasks_) {
    if (task.call == nullptr || task.call->local() == nullptr) continue;
    const int socket = task.call->local()->link()->connection();
    if (std::find(sockets.begin(), sockets.end(), socket) == sockets.end()) {
      sockets.push_back(socket);
    }
  }
  return sockets;
}

// Returns when the next one is due that is not yet.
absl::Time ParameterClientGrpc::StartDue(absl::Time now) {
  absl::Time next = absl::InfiniteFuture();
  for (Task& task : tasks_) {
    // An attempt that is under way, or a task that is done, is nobody's turn.
    if (task.done || task.call != nullptr) continue;
    if (task.retry.due() > now) {
      next = std::min(next, task.retry.due());
    } else if (task.is_push) {
      StartPush(&task);
    } else {
      StartPull(&task);
    }
  }
  return next;
}

void ParameterClientGrpc::StartPush(Task* task) {
  const size_t server = task->server;
  UpdatePayload* const payload = update_.Payload(server);
  // Servers reckon staleness from the version that the update was computed on.
  v1::PushHeader& header = *requests_.push();
  header.set_from_peer(links_.is_peer(server));
  header.set_base_version(links_.is_peer(server) ? 0 : versions_[server].base.value());
  header.set_payload_bytes(payload->bytes());
  update_.NameCore(server, &header);
  links_.Name(server, header.mutable_caller());
  std::shared_ptr<LocalCaller> local = links_.memory(server);
  std::shared_ptr<MemoryLink> link = local == nullptr ? nullptr : local->link();
  header.mutable_caller()->set_link(link == nullptr ? 0 : link->number());
  task->is_local = link != nullptr;
  const bool is_short = payload->bytes() <= kLocalPayloadBytesMax;
  task->push = std::make_unique<PushToServer>(&board_, header, payload, std::move(link));
  task->call = task->push.get();
  // What takes several messages is moved by gRPC's threads meanwhile.
  if (local != nullptr && is_short) return task->push->StartBy(std::move(local));
  if (!task->is_local) {
    task->push->StripeOver(links_.stripes(server).For(payload->bytes(), SteadyNow()));
  }
  task->push->Start(links_.pushes(server));
}

void ParameterClientGrpc::StartPull(Task* task) {
  const size_t server = task->server;
  // What an attempt before has written is written once more.
  values_.Restart();
  if (const Core* const core = values_.core(server); core != nullptr) {
    *requests_.pull()->mutable_keys()->mutable_sparse() = ToMessage(core->name);
  }
  std::shared_ptr<LocalCaller> local = links_.memory(server);
  std::shared_ptr<MemoryLink> link = local == nullptr ? nullptr : local->link();
  const uint64_t number = link == nullptr ? 0 : link->number();
  task->is_local = link != nullptr;
  ValueWriter writer = values_.Writer(server);
  const int64_t bytes = writer.bytes();
  const bool is_short = bytes <= kLocalPayloadBytesMax;
  if (requests_.subnet().has_value()) {
    links_.Name(server, requests_.fetch()->mutable_caller());
    requests_.fetch()->mutable_caller()->set_link(number);
    task->pull = std::make_unique<PullFromServer>(&board_, *requests_.fetch(), *requests_.subnet(),
                                                  options_.layout_hash, std::move(writer));
  } else {
    links_.Name(server, requests_.pull()->mutable_caller());
    requests_.pull()->mutable_caller()->set_link(number);
    task->pull = std::make_unique<PullFromServer>(&board_, *requests_.pull(), options_.layout_hash,
                                                  std::move(writer));
  }
  task->pull->ReadFrom(std::move(link));
  if (values_.is_watched()) task->pull->TellWritten();
  task->call = task->pull.get();
  if (local != nullptr && is_short) return task->pull->StartBy(std::move(local));
  if (!task->is_local) task->pull->StripeOver(links_.stripes(server).For(bytes, SteadyNow()));
  task->pull->Start(links_.pulls(server));
}

void ParameterClientGrpc::TellValues() {
  written_.assign(values_.parts(), 0);
  for (const Task& task : tasks_) {
    if (task.is_push) continue;
    const int64_t so_far = task.call == nullptr ? 0 : task.pull->written();
    // All that a task has written is there, or what its attempt has written so far.
    written_[links_.part_of(task.server)] =
        task.done ? std::numeric_limits<int64_t>::max() : so_far;
  }
  values_.Tell(written_);
}

void ParameterClientGrpc::Count(const Task& task, const ServerCall& call) {
  shared_bytes_ += call.shared_bytes();
  if (call.is_striped()) ++striped_calls_;
  // What goes to a replica's own server is no part of the traffic.
  if (task.is_push && links_.is_replicated() && !links_.is_peer(task.server)) return;
  // Small payloads go in messages there, too.
  if (task.is_local) traffic_.shared_memory_bytes += call.payload_bytes();
  if (task.is_push) {
    traffic_.push_payload_bytes += call.payload_bytes();
    traffic_.push_wire_bytes += call.wire_bytes();
  } else if (requests_.is_outside()) {
    traffic_.other_payload_bytes += call.payload_bytes();
  } else {
    traffic_.pull_payload_bytes += call.payload_bytes();
    traffic_.pull_wire_bytes += call.wire_bytes();
  }
}

// Counts an attempt that has ended, and plans the next one where it may help.
absl::Status ParameterClientGrpc::Collect(Task* task, absl::Time now) {
  const size_t server = task->server;
  // The call itself is still there: task owns it by its kind.
  const ServerCall& call = *std::exchange(task->call, nullptr);
  Count(*task, call);
  const absl::Status& status = call.status();
  if (call.connections() > 0) links_.stripes(server).Allow(call.connections());
  if (call.is_striped()) links_.stripes(server).OnEnd(status, now);
  // What was lent for this attempt may lie in messages that nobody reads.
  if (!status.ok() || (task->is_push && task->push->need_keys())) links_.LeaveMemory(server);
  // The server has forgotten the core: the push is repeated at once, with its keys.
  if (status.ok() && task->is_push && task->push->need_keys()) {
    if (update_.AddKeys(server)) return absl::OkStatus();
    return absl::InternalError(absl::StrCat("server ", server, " at ", links_.address(server),
                                            ": wants the keys of a core that came with the push"));
  }
  if (status.ok()) {
    task->done = true;
    if (task->is_push) {
      answers_.OnPushed(call.end_time());
      return absl::OkStatus();
    }
    const ServerAnswer& answer = task->pull->answer();
    answers_.OnAnswer(answer, call.first_byte_time());
    // The version that came is the base only when the whole exchange has succeeded.
    versions_[server].pulled = answer.version;
    return answer.has_values() ? values_.OnAnswer(server) : absl::OkStatus();
  }
  // Its server has gone.
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
  return absl::Status(status.code(), absl::StrCat("server ", server, " at ", links_.address(server),
                                                  ": ", status.message(), tries));
}

}  // namespace tessera
