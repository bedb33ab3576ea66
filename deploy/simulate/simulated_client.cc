#include "deploy/simulate/simulated_client.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/codec/arrival_check.h"
#include "common/codec/coded_keys.h"
#include "common/codec/selective_codec.h"
#include "common/rpc/chunk.h"
#include "server/shard/forms/layer_parts.h"

namespace tessera {

SimulatedClient::SimulatedClient(Options options, SimulatedWorld* world, SimulatedProcess* process,
                                 const std::vector<std::unique_ptr<SimulatedServer>>* servers)
    : options_(std::move(options)), world_(*world), process_(*process) {
  for (const auto& server : *servers) {
    Server entry;
    entry.server = server.get();
    entry.dense = SizesOf(server->shard().slices(), options_.member, options_.job_digest);
    servers_.push_back(std::move(entry));
    dense_keys_.slices.push_back(server->shard().slices());
  }
  const bool moves_cores = servers_.front().server->shard().cores() != nullptr;
  if (!codes_pushes() && !moves_cores) return;
  // What nobody looks at need not be held back.
  if (!options_.moves_values) options_.codecs.error_feedback = false;
  const ModelShape& shape = servers_.front().server->shard().traits().shape;
  if (options_.moves_values || options_.codecs.push->selective() == nullptr) {
    UpdateCoder::Options coding{options_.codecs, shape, options_.seed, options_.rank};
    coding.layers = options_.layers;
    coder_.emplace(std::move(coding));
  }
}

absl::StatusOr<ExchangeResult> SimulatedClient::Pull(Exchange after, const KeySet& keys,
                                                     const ParameterArrays& values) {
  Begin(Kind::kPull, {after, 0, RestWord()}, {nullptr, nullptr, &keys, &values});
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
  Begin(Kind::kPushPull, push, {&update_keys, &update, &value_keys, &values});
  return absl::OkStatus();
}

absl::StatusOr<ExchangeResult> SimulatedClient::EndPushPull() {
  absl::StatusOr<ExchangeResult> result = End();
  if (result.ok()) ++traffic_.exchanges;
  return result;
}

absl::StatusOr<ExchangeResult> SimulatedClient::Read(Exchange after, RestWord word,
                                                     const ParameterArrays& values) {
  static const KeySet* const dense = new KeySet();
  Begin(Kind::kReadOutside, {after, 0, word}, {nullptr, nullptr, dense, &values});
  return End();
}

const ShardSlices& SimulatedClient::PushedSlices(size_t server) const {
  const KeySet& keys = *transfer_.update_keys;
  const bool is_part = keys.subnet.has_value() || keys.layers.has_value();
  return is_part ? keys.slices[server] : servers_[server].server->shard().slices();
}

// The server says the size of an answer where subnets are fetched.
ExchangeSizes SimulatedClient::SizesAt(size_t server) const {
  ExchangeSizes sizes = servers_[server].dense;
  const KeySet* const pushed = transfer_.update_keys;
  const KeySet& pulled = *transfer_.value_keys;
  const bool pushes_part =
      pushed != nullptr && (pushed->subnet.has_value() || pushed->layers.has_value());
  const bool asks_part = pulled.is_sparse() || pulled.layers.has_value();
  if (!pushes_part && !pulled.subnet.has_value() && !asks_part) return sizes;
  const v1::Caller caller = CallerOf(options_.member, options_.job_digest);
  if (asks_part) sizes.pull_request_wire_bytes = PullWireBytes(caller, pulled);
  if (pulled.layers.has_value()) {
    sizes.pull_payload_bytes = pulled.slices[server].bytes();
    sizes.pull_wire_bytes = AnswerWireBytes(nullptr, sizes.pull_payload_bytes);
  }
  if (pushes_part) {
    sizes.push_payload_bytes = PushedSlices(server).bytes();
    sizes.push_wire_bytes = PushWireBytes(caller, *pushed, sizes.push_payload_bytes);
  }
  if (pulled.subnet.has_value()) sizes.pull_request_wire_bytes = FetchWireBytes(caller, pulled);
  return sizes;
}

// Simulated learners evaluate with the whole model, which they hold.
absl::Status SimulatedClient::ReadRows(const RowRange&, absl::Span<float>) {
  return absl::UnimplementedError("simulation: evaluation in blocks is not simulated");
}

void SimulatedClient::Begin(Kind kind, const OutgoingPush& push, const Transfer& transfer) {
  ++call_;
  kind_ = kind;
  push_ = push;
  transfer_ = transfer;
  recut_.reset();
  is_whole_ = false;
  needs_all_ = false;
  core_count_ = 0;
  pushes_left_ = kind == Kind::kPushPull ? servers_.size() : 0;
  pulls_left_ = servers_.size();
  job_examples_ = 0;
  plan_ = Generation();
  pushed_at_ = world_.events.now();
  first_value_at_ = std::numeric_limits<SimNanos>::max();
  failed_ = absl::OkStatus();
  const bool codes = kind == Kind::kPushPull && (codes_pushes() || pushes_sparse());
  if (codes && coder_) {
    // Learners without values of their own name no entries where all are meant.
    const KeySet& keys = *transfer_.update_keys;
    const bool names_entries =
        keys.subnet.has_value() || keys.is_sparse() || keys.layers.has_value();
    TESSERA_CHECK(coder_->Begin(push_, names_entries ? keys : dense_keys_, *transfer_.update).ok());
  }
  for (uint32_t s = 0; s < servers_.size(); ++s) {
    servers_[s].sizes = SizesAt(s);
    servers_[s].sends_keys = false;
    if (codes) EncodePush(s);
    const auto arrive = [this, s, call = call_] { Arrive(s, call); };
    const int to = servers_[s].server->machine();
    if (kind == Kind::kPushPull) {
      world_.network.Send(options_.machine, to, servers_[s].sizes.push_wire_bytes, arrive);
    } else {
      world_.network.Signal(options_.machine, to, arrive);
    }
  }
}

absl::StatusOr<ExchangeResult> SimulatedClient::End() {
  const SimNanos begin = world_.events.now();
  bool woken = true;
  if (is_under_way()) {
    ticket_ = process_.Ticket();
    woken = process_.WaitInterruptibly();
  }
  ++call_;  // What is still on its way is of no use.
  if (!woken) return absl::CancelledError("parameter client: cancelled");
  if (!failed_.ok()) return failed_;
  for (Server& server : servers_) server.base = server.pulled;
  const SimNanos end = world_.events.now();
  // Nothing was waited for what came while the caller was at something else.
  const SimNanos pushed = std::max(begin, pushed_at_);
  const SimNanos first_value = std::min(end, std::max(pushed, first_value_at_));
  ExchangeResult result;
  result.job_examples = job_examples_;
  result.plan = plan_;
  result.recut = recut_;
  result.is_whole = is_whole_;
  result.needs_all = needs_all_;
  result.cores = core_count_;
  result.push_seconds = ToSeconds(pushed - begin);
  result.wait_seconds = ToSeconds(first_value - pushed);
  result.pull_seconds = ToSeconds(end - first_value);
  return result;
}

void SimulatedClient::Arrive(uint32_t server, uint64_t call) {
  // What a process that crashed had not sent to the end is lost.
  if (call != call_ || process_.crashed()) return;
  const Server& to = servers_[server];
  SimulatedServer::Request request;
  request.kind = kind_;
  request.rest = push_.rest;
  request.read = {options_.member, push_.exchange, this, call, transfer_.value_keys->On(server)};
  if (kind_ == Kind::kPushPull) {
    request.push = MakePush(server);
    traffic_.push_payload_bytes += to.sizes.push_payload_bytes;
    traffic_.push_wire_bytes += to.sizes.push_wire_bytes;
  }
  to.server->Take(std::move(request));
}

void SimulatedClient::EncodeSparse(size_t server, ReceivedPush* push) const {
  const SparseKeys& keys = *transfer_.update_keys->sparse[server];
  push->codec = coder_->codec();
  if (servers_[server].sends_keys) {
    EncodedKeys encoded = EncodeKeys(keys.core->keys);
    push->keys =
        NamedCore{keys.core->name, static_cast<int>(encoded.form), std::move(encoded.bytes)};
  }
  // The shard checks what other codecs have written.
  if (!IsPlain(push->codec)) return;
  push->bad_entry =
      FirstBadEntry(CodedKeys::Plain(push->codec, keys.entries.count()), servers_[server].payload);
}

void SimulatedClient::EncodePush(size_t server) {
  Server& to = servers_[server];
  to.payload = Payload();
  if (!coder_ && PushedSlices(server).size == 0) {
    to.sizes.push_payload_bytes = 0;
  } else if (!coder_) {
    const SelectiveCodec& codec = *options_.codecs.push->selective();
    const auto empty =
        std::make_shared<const std::vector<char>>(codec.NewSelector()->NewEncoder()->Finish());
    to.payload.Append({empty->data(), static_cast<int64_t>(empty->size())}, empty);
    // Whole entries are sent, in a word each.
    constexpr int64_t kWord = sizeof(uint32_t);
    to.sizes.push_payload_bytes = codec.Forecast(PushedSlices(server).size).bytes / kWord * kWord;
  } else {
    UpdateRuns runs;
    const std::unique_ptr<UpdatePayload> payload = coder_->Make(server, &runs);
    while (payload->left() > 0) {
      for (const grpc::Slice& made : payload->Next(kChunkBytes, nullptr)) {
        const auto slice = std::make_shared<const grpc::Slice>(made);
        to.payload.Append(
            {reinterpret_cast<const char*>(slice->begin()), static_cast<int64_t>(slice->size())},
            slice);
      }
    }
    to.sizes.push_payload_bytes = payload->bytes();
  }
  to.sizes.push_wire_bytes = PushWireBytes(CallerOf(options_.member, options_.job_digest),
                                           *transfer_.update_keys, to.sizes.push_payload_bytes);
}

ReceivedPush SimulatedClient::MakePush(size_t server) {
  Server& to = servers_[server];
  ReceivedPush push;
  push.member = options_.member;
  push.exchange = push_.exchange;
  push.base = to.base;
  push.kind = push_.kind ? static_cast<int>(*push_.kind) : options_.kind;
  push.whole_next = push_.whole_next;
  push.layout_hash = to.server->shard().layout_hash();
  push.examples = push_.examples;
  push.keys = transfer_.update_keys->On(server);
  // What server/rpc/push_call.cc makes of the header.
  if (transfer_.update_keys->layers) push.summed = std::max<uint64_t>(1, push_.summed);
  if (pushes_sparse()) {
    EncodeSparse(server, &push);
    // The payload may be wanted again, with the core's keys.
    push.payload = to.payload.Share();
    return push;
  }
  if (codes_pushes()) {
    push.codec = coder_ ? coder_->codec() : options_.codecs.push;
    push.payload = std::move(to.payload);
    // That of entries which only the shard knows is for the shard to find.
    const auto entries = to.server->shard().traits().keys->OfPush(push.keys, push.summed);
    if (!entries.ok() || *entries == nullptr) return push;
    const CodedKeys* const keys = (*entries)->forms().Find(push.codec);
    if (keys != nullptr) push.bad_entry = FirstBadEntry(*keys, push.payload);
    return push;
  }
  for (const Slice& slice : PushedSlices(server).slices) {
    const absl::Span<const float> array = (*transfer_.update)[slice.parameter];
    const char* data = reinterpret_cast<const char*>(PlaceOf(slice, array));
    const int64_t size = slice.size() * static_cast<int64_t>(sizeof(float));
    push.payload.Append({data, size}, nullptr);
  }
  if (options_.moves_values) {
    push.bad_entry =
        FirstBadEntry(CodedKeys::Plain(push.codec, PushedSlices(server).size), push.payload);
  }
  return push;
}

void SimulatedClient::Acknowledged(ShardId server, uint64_t call, const absl::Status& accepted) {
  if (call != call_) return;
  if (!accepted.ok() && failed_.ok()) {
    failed_ = absl::Status(accepted.code(),
                           absl::StrCat("server ", server.value(), ": ", accepted.message()));
  }
  world_.network.Signal(servers_[server.value()].server->machine(), options_.machine,
                        [this, call] { OnAcknowledged(call); });
}

void SimulatedClient::NeedKeys(ShardId server, uint64_t call) {
  if (call != call_) return;
  const auto s = static_cast<uint32_t>(server.value());
  world_.network.Signal(servers_[s].server->machine(), options_.machine,
                        [this, s, call] { SendWithKeys(s, call); });
}

// Sends the same payload behind the core's keys, as worker/rpc/parameter_client_sparse.cc does.
void SimulatedClient::SendWithKeys(uint32_t server, uint64_t call) {
  if (call != call_ || process_.crashed()) return;
  Server& to = servers_[server];
  TESSERA_CHECK(!to.sends_keys);
  to.sends_keys = true;
  const Core& core = *transfer_.update_keys->sparse[server]->core;
  to.sizes.push_payload_bytes += static_cast<int64_t>(EncodeKeys(core.keys).bytes.size());
  to.sizes.push_wire_bytes = PushWireBytes(CallerOf(options_.member, options_.job_digest),
                                           *transfer_.update_keys, to.sizes.push_payload_bytes);
  world_.network.Send(options_.machine, to.server->machine(), to.sizes.push_wire_bytes,
                      [this, server, call] { Arrive(server, call); });
}

void SimulatedClient::OnAcknowledged(uint64_t call) {
  if (call != call_) return;
  if (--pushes_left_ == 0) pushed_at_ = world_.events.now();
  if (!is_under_way()) process_.Wake(ticket_);
}

int64_t SimulatedClient::Served(ShardId server, uint64_t call, absl::StatusOr<ReadResult> result) {
  if (call != call_) return 0;
  Server& from = servers_[server.value()];
  const int machine = from.server->machine();
  if (!result.ok()) {
    if (failed_.ok()) {
      failed_ = absl::Status(result.status().code(), absl::StrCat("server ", server.value(), ": ",
                                                                  result.status().message()));
    }
    world_.network.Signal(machine, options_.machine, [this, call] {
      if (call == call_) process_.Wake(ticket_);
    });
    return 0;
  }
  from.pulled = result->version;
  core_count_ = std::max(core_count_, result->cores);
  job_examples_ = std::max(job_examples_, result->examples);
  plan_ = std::max(plan_, result->plan);
  if (result->entries == nullptr) {
    // The core is not known, or exchanges are of all entries by now.
    needs_all_ = needs_all_ || transfer_.value_keys->is_sparse();
    is_whole_ = is_whole_ || transfer_.value_keys->subnet.has_value();
    from.sizes.pull_payload_bytes = 0;
    from.sizes.pull_wire_bytes = AnswerWireBytes(nullptr, 0);
  } else if (transfer_.value_keys->subnet.has_value()) {
    TakeCut(server.value(), *result);
  } else if (transfer_.value_keys->is_sparse()) {
    TakeSparse(server.value(), *result);
  } else {
    const bool is_half = transfer_.value_keys->layers.has_value();
    TakeRun(server.value(),
            is_half ? transfer_.value_keys->slices[server.value()] : from.server->shard().slices(),
            *result);
  }
  const auto s = static_cast<uint32_t>(server.value());
  world_.network.Send(machine, options_.machine, from.sizes.pull_wire_bytes,
                      [this, s, call] { OnValues(s, call); });
  return from.sizes.pull_payload_bytes;
}

void SimulatedClient::AskCores(uint64_t number) {
  cores_.assign(servers_.size(), nullptr);
  cores_left_ = servers_.size();
  cores_failed_ = absl::OkStatus();
  ++core_call_;
  core_wanted_ = number;
  for (uint32_t s = 0; s < servers_.size(); ++s) {
    world_.network.Signal(
        options_.machine, servers_[s].server->machine(), [this, s, call = core_call_] {
          if (call != core_call_ || process_.crashed()) return;
          servers_[s].server->TakeCoreRequest({options_.member, core_wanted_, this, call});
        });
  }
}

int64_t SimulatedClient::TakeCore(ShardId server, uint64_t call,
                                  absl::StatusOr<std::shared_ptr<const Core>> core) {
  if (call != core_call_) return 0;
  const int64_t bytes =
      core.ok() ? static_cast<int64_t>(EncodeKeys((*core)->keys).bytes.size()) : 0;
  traffic_.pull_payload_bytes += bytes;
  traffic_.pull_wire_bytes +=
      servers_[server.value()].dense.pull_request_wire_bytes + AnswerWireBytes(nullptr, bytes);
  // The core is on its way for a while; nobody looks at it before it has come.
  if (core.ok()) cores_[server.value()] = *std::move(core);
  if (!core.ok() && cores_failed_.ok()) cores_failed_ = core.status();
  world_.network.Send(servers_[server.value()].server->machine(), options_.machine,
                      AnswerWireBytes(nullptr, bytes), [this, call] {
                        if (call != core_call_) return;
                        if (--cores_left_ == 0 && waits_for_cores_) process_.Wake(ticket_);
                      });
  return bytes;
}

absl::StatusOr<Cores> SimulatedClient::TakeCores() {
  if (cores_left_ > 0) {
    ticket_ = process_.Ticket();
    waits_for_cores_ = true;
    const bool woken = process_.WaitInterruptibly();
    waits_for_cores_ = false;
    if (!woken) return absl::CancelledError("parameter client: cancelled");
  }
  if (!cores_failed_.ok()) return cores_failed_;
  return cores_;
}

void SimulatedClient::OnValues(uint32_t server, uint64_t call) {
  if (call != call_) return;
  const Server& from = servers_[server];
  if (kind_ == Kind::kReadOutside) {
    traffic_.other_payload_bytes += from.sizes.pull_payload_bytes;
  } else {
    traffic_.pull_payload_bytes += from.sizes.pull_payload_bytes;
    traffic_.pull_wire_bytes += from.sizes.pull_request_wire_bytes + from.sizes.pull_wire_bytes;
  }
  const SimNanos transfer =
      world_.network.Transfer(from.server->machine(), options_.machine, from.sizes.pull_wire_bytes);
  first_value_at_ = std::min(first_value_at_, world_.events.now() - transfer);
  if (--pulls_left_ == 0 && pushes_left_ == 0) process_.Wake(ticket_);
}

}  // namespace tessera
