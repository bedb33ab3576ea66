#include "deploy/simulate/simulated_client.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "server/shard/forms/site_subnet.h"

namespace tessera {
namespace {

std::vector<const ShardTraits*> TraitsOf(
    const std::vector<std::unique_ptr<SimulatedServer>>& servers) {
  std::vector<const ShardTraits*> traits;
  for (const auto& server : servers) traits.push_back(&server->shard().traits());
  return traits;
}

std::vector<const ShardSlices*> SlicesOf(
    const std::vector<std::unique_ptr<SimulatedServer>>& servers) {
  std::vector<const ShardSlices*> slices;
  for (const auto& server : servers) slices.push_back(&server->shard().slices());
  return slices;
}

// What nobody looks at need not be held back.
SimulatedClientOptions WithoutIdleFeedback(SimulatedClientOptions options) {
  // A residual costs memory for each worker, and thousands are simulated.
  if (!options.moves_values) options.codecs.error_feedback = false;
  return options;
}

}  // namespace

SimulatedClient::SimulatedClient(SimulatedClientOptions options, SimulatedWorld* world,
                                 SimulatedProcess* process,
                                 const std::vector<std::unique_ptr<SimulatedServer>>* servers)
    : options_(WithoutIdleFeedback(std::move(options))),
      world_(*world),
      process_(*process),
      servers_(servers->size()),
      updates_(&options_, TraitsOf(*servers), servers->front()->shard().cores() != nullptr),
      values_(&options_, SlicesOf(*servers)),
      cores_(&options_, world, process, servers) {
  for (size_t s = 0; s < servers_.size(); ++s) {
    servers_[s].server = (*servers)[s].get();
    // Sizes of messages without keys are the same in each exchange.
    servers_[s].dense =
        SizesOf(servers_[s].server->shard().slices(), options_.member, options_.job_digest);
  }
}

absl::StatusOr<ExchangeResult> SimulatedClient::Pull(Exchange after, const KeySet& keys,
                                                     const ParameterArrays& values) {
  Begin(Kind::kPull, {after, 0, IdleNotice()}, nullptr, keys, values);
  return End();
}

absl::StatusOr<ExchangeResult> SimulatedClient::PushPull(const OutgoingPush& push,
                                                         const KeySet& update_keys,
                                                         const ConstParameterArrays& update,
                                                         const KeySet& value_keys,
                                                         const ParameterArrays& values) {
  TESSERA_RETURN_IF_ERROR(BeginPushPull(push, update_keys, update, value_keys, values));
  return EndPushPull();
}

absl::Status SimulatedClient::BeginPushPull(const OutgoingPush& push, const KeySet& update_keys,
                                            const ConstParameterArrays& update,
                                            const KeySet& value_keys,
                                            const ParameterArrays& values) {
  updates_.Begin(push, update_keys, update);
  Begin(Kind::kPushPull, push, &update_keys, value_keys, values);
  return absl::OkStatus();
}

absl::StatusOr<ExchangeResult> SimulatedClient::EndPushPull() {
  absl::StatusOr<ExchangeResult> result = End();
  if (result.ok()) ++traffic_.exchanges;
  return result;
}

absl::StatusOr<ExchangeResult> SimulatedClient::Read(Exchange after, IdleNotice word,
                                                     const ParameterArrays& values) {
  static const KeySet* const dense = new KeySet();
  Begin(Kind::kReadOutside, {after, 0, word}, nullptr, *dense, values);
  return End();
}

// Simulated learners evaluate with the whole model, which they hold.
absl::Status SimulatedClient::ReadRows(const RowRange&, absl::Span<float>) {
  return absl::UnimplementedError("simulation: evaluation in blocks is not simulated");
}

// The server says the size of an answer where subnets are fetched.
ExchangeSizes SimulatedClient::SizesAt(size_t server) const {
  ExchangeSizes sizes = servers_[server].dense;
  const KeySet& pulled = *value_keys_;
  if (!pulled.is_sparse() && !pulled.is_part()) return sizes;
  const v1::Caller caller = CallerOf(options_.member, options_.job_digest);
  sizes.pull_request_wire_bytes =
      pulled.subnet.has_value() ? FetchWireBytes(caller, pulled) : PullWireBytes(caller, pulled);
  // Bytes of the layers or of the fragment, as far as the server has them.
  if (pulled.layers.has_value() || pulled.fragment.has_value()) {
    sizes.pull_payload_bytes = pulled.slices[server].bytes();
    sizes.pull_wire_bytes = AnswerWireBytes(nullptr, sizes.pull_payload_bytes);
  }
  return sizes;
}

void SimulatedClient::SetPushBytes(size_t server, int64_t payload_bytes) {
  ExchangeSizes& sizes = servers_[server].sizes;
  const KeySet& keys = *update_keys_;
  const bool is_dense = !keys.is_part() && !keys.is_sparse();
  if (is_dense && payload_bytes == sizes.push_payload_bytes) return;
  sizes.push_payload_bytes = payload_bytes;
  sizes.push_wire_bytes =
      PushWireBytes(CallerOf(options_.member, options_.job_digest), keys, payload_bytes);
}

void SimulatedClient::Begin(Kind kind, const OutgoingPush& push, const KeySet* update_keys,
                            const KeySet& value_keys, const ParameterArrays& values) {
  // Answers to earlier calls are told apart by this number.
  ++call_;
  kind_ = kind;
  push_ = push;
  update_keys_ = update_keys;
  value_keys_ = &value_keys;
  values_.Begin(value_keys, values, /*outside=*/kind == Kind::kReadOutside);
  answers_.Begin(world_.time());
  pushes_left_ = kind == Kind::kPushPull ? servers_.size() : 0;
  // Where placement is replicated values come from the server beside the worker alone.
  pulls_left_ = options_.is_replicated() ? 1 : servers_.size();
  failed_ = absl::OkStatus();
  for (uint32_t s = 0; s < servers_.size(); ++s) {
    servers_[s].sizes = SizesAt(s);
    const auto arrive = [this, s, call = call_] { Arrive(s, call); };
    const int to = servers_[s].server->machine();
    if (kind == Kind::kPushPull) {
      SetPushBytes(s, updates_.Encode(s));
      world_.network.Send(options_.machine, to, servers_[s].sizes.push_wire_bytes, arrive);
    } else if (!options_.is_peer(s)) {
      // A pull is short: it takes the latency only.
      world_.network.Signal(options_.machine, to, arrive);
    }
  }
}

absl::StatusOr<ExchangeResult> SimulatedClient::End() {
  // Nothing was waited for what came while the caller was at something else.
  answers_.WaitFrom(world_.time());
  bool woken = true;
  if (is_under_way()) {
    ticket_ = process_.Ticket();
    woken = process_.WaitInterruptibly();
  }
  ++call_;  // What is still on its way is of no use.
  if (!woken) return absl::CancelledError("parameter client: cancelled");
  if (!failed_.ok()) return failed_;
  // The next push is of what has been trained on these versions.
  for (Server& server : servers_) server.base = server.answer.version;
  return answers_.Result(world_.time());
}

void SimulatedClient::Arrive(uint32_t server, uint64_t call) {
  // What a process that crashed had not sent to the end is lost.
  if (call != call_ || process_.crashed()) return;
  const Server& to = servers_[server];
  SimulatedServer::Request request;
  request.kind = options_.is_peer(server) ? Kind::kPush : kind_;
  request.rest = push_.rest;
  request.read = {options_.member, push_.exchange, this, call,
                  value_keys_->On(options_.part_of(server))};
  if (kind_ == Kind::kPushPull) {
    request.push = updates_.Make(server, to.base);
    // What goes to the server beside this worker leaves no machine.
    if (!options_.is_replicated() || options_.is_peer(server)) {
      traffic_.push_payload_bytes += to.sizes.push_payload_bytes;
      traffic_.push_wire_bytes += to.sizes.push_wire_bytes;
      CountShared(to, to.sizes.push_payload_bytes);
    }
  }
  to.server->Take(std::move(request));
}

// Servers beside a worker pass it values in memory.
void SimulatedClient::CountShared(const Server& server, int64_t payload_bytes) {
  if (server.server->machine() == options_.machine) traffic_.shared_memory_bytes += payload_bytes;
}

void SimulatedClient::Fail(ShardId server, const absl::Status& why) {
  if (!failed_.ok()) return;
  failed_ = absl::Status(why.code(), absl::StrCat("server ", server.value(), ": ", why.message()));
}

void SimulatedClient::Acknowledged(ShardId server, uint64_t call, const absl::Status& accepted) {
  if (call != call_) return;
  if (!accepted.ok()) Fail(server, accepted);
  world_.network.Signal(servers_[server.value()].server->machine(), options_.machine,
                        [this, call] { OnAcknowledged(call); });
}

void SimulatedClient::NeedKeys(ShardId server, uint64_t call) {
  if (call != call_) return;
  const auto s = static_cast<uint32_t>(server.value());
  world_.network.Signal(servers_[s].server->machine(), options_.machine,
                        [this, s, call] { SendWithKeys(s, call); });
}

// Sends the same payload behind the core's keys, as worker/rpc/parameter_client_grpc.cc does.
// The payload that was sent without keys was dropped by the server.
void SimulatedClient::SendWithKeys(uint32_t server, uint64_t call) {
  if (call != call_ || process_.crashed()) return;
  const Server& to = servers_[server];
  SetPushBytes(server, to.sizes.push_payload_bytes + updates_.AddKeys(server));
  world_.network.Send(options_.machine, to.server->machine(), to.sizes.push_wire_bytes,
                      [this, server, call] { Arrive(server, call); });
}

void SimulatedClient::OnAcknowledged(uint64_t call) {
  if (call != call_) return;
  if (--pushes_left_ == 0) answers_.OnPushed(world_.time());
  if (!is_under_way()) process_.Wake(ticket_);
}

int64_t SimulatedClient::Served(ShardId server, uint64_t call, absl::StatusOr<ReadResult> result) {
  // The caller has given up, or gone on.
  if (call != call_) return 0;
  const auto s = static_cast<uint32_t>(server.value());
  Server& from = servers_[s];
  const int machine = from.server->machine();
  if (!result.ok()) {
    Fail(server, result.status());
    // One wait ends, as the exchange has failed.
    world_.network.Signal(machine, options_.machine, [this, call] {
      if (call == call_) process_.Wake(ticket_);
    });
    return 0;
  }
  from.answer = ServerAnswer();
  const int64_t payload_bytes = values_.Take(s, *result, &from.answer);
  ExchangeSizes& sizes = from.sizes;
  // A fetch is told how the round is cut.
  const SiteSubnet* const site = value_keys_->subnet.has_value()
                                     ? static_cast<const SiteSubnet*>(result->entries.get())
                                     : nullptr;
  // Coded payloads differ in size from exchange to exchange.
  if (site != nullptr || payload_bytes != sizes.pull_payload_bytes) {
    sizes.pull_payload_bytes = payload_bytes;
    sizes.pull_wire_bytes = AnswerWireBytes(site, payload_bytes);
  }
  world_.network.Send(machine, options_.machine, sizes.pull_wire_bytes,
                      [this, s, call] { OnValues(s, call); });
  return payload_bytes;
}

void SimulatedClient::OnValues(uint32_t server, uint64_t call) {
  if (call != call_) return;
  const Server& from = servers_[server];
  CountShared(from, from.sizes.pull_payload_bytes);
  if (kind_ == Kind::kReadOutside) {
    traffic_.other_payload_bytes += from.sizes.pull_payload_bytes;
  } else {
    traffic_.pull_payload_bytes += from.sizes.pull_payload_bytes;
    traffic_.pull_wire_bytes += from.sizes.pull_request_wire_bytes + from.sizes.pull_wire_bytes;
  }
  // The first byte came a transfer before the last one.
  const SimNanos transfer =
      world_.network.Transfer(from.server->machine(), options_.machine, from.sizes.pull_wire_bytes);
  answers_.OnAnswer(from.answer, ToTime(world_.events.now() - transfer));
  if (--pulls_left_ == 0 && pushes_left_ == 0) process_.Wake(ticket_);
}

}  // namespace tessera
