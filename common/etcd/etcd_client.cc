#include "common/etcd/etcd_client.h"

#include <algorithm>
#include <chrono>

#include <grpcpp/create_channel.h>
#include <grpcpp/support/channel_arguments.h>

#include "absl/memory/memory.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "common/base/check.h"
#include "common/base/host_port.h"
#include "common/base/steady_clock.h"
#include "common/rpc/compression.h"
#include "common/rpc/grpc_library.h"
#include "common/rpc/control_channel.h"
#include "common/rpc/security.h"
#include "common/rpc/status.h"
#include "proto/etcd/rpc.grpc.pb.h"

namespace tessera {
namespace {

constexpr char kTls[] = "https://";
// TCP and TLS within a region take far less; a host that drops packets must not hold a call any longer.
constexpr int kHandshakeMsMax = 1000;
constexpr absl::Duration kConnectPause = absl::Milliseconds(300);
// etcd and this process count the same deadline apart; within so little they mean the same end.
constexpr absl::Duration kDeadlineSlack = absl::Milliseconds(20);

EtcdValue ToValue(const mvccpb::KeyValue& kv) {
  return {kv.key(), kv.value(), kv.create_revision(), kv.mod_revision(), kv.lease()};
}

// The first key that does not begin with `prefix`, as etcd wants the end of a range.
std::string EndOf(std::string prefix) {
  while (!prefix.empty() && static_cast<unsigned char>(prefix.back()) == 0xff) prefix.pop_back();
  TESSERA_CHECK(!prefix.empty());
  ++prefix.back();
  return prefix;
}

// gRPC wants the system's clock.
std::chrono::system_clock::time_point ToChrono(absl::Time steady) {
  return std::chrono::system_clock::now() + absl::ToChronoNanoseconds(steady - SteadyNow());
}

std::string RefusalOf(const etcdserverpb::WatchResponse& response) {
  if (response.cancel_reason().empty()) return "the watch was refused";
  return absl::StrCat("the watch was refused: ", response.cancel_reason());
}

// Refuses a member that is no address before any connection is tried, naming the key of the job.
absl::Status CheckMember(const std::string& member) {
  const absl::string_view address = absl::StripPrefix(member, kTls);
  if (!IsHostPort(address)) {
    return absl::InvalidArgumentError(absl::StrCat("cluster.coordinator.etcd: got \"", member,
                                                   "\", want host:port or https://host:port"));
  }
  const bool is_tls = absl::StartsWith(member, kTls);
  if (is_tls && !CurrentSecurity().calls_tls()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "cluster.coordinator.etcd: got \"", member,
        "\", want security.authority beside it: whose signature etcd's certificate has"));
  }
  if (!is_tls && CurrentSecurity().calls_tls() && !IsLoopback(address)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "cluster.coordinator.etcd: got \"", member, "\" in a job with TLS, want https://", member,
        ": whoever listens on the way could take the job over"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<EtcdClient>> EtcdClient::Create(Options options) {
  if (options.members.empty()) {
    return absl::InvalidArgumentError("cluster.coordinator.etcd: got no members, want one or more");
  }
  for (const std::string& member : options.members) TESSERA_RETURN_IF_ERROR(CheckMember(member));
  return absl::WrapUnique(new EtcdClient(std::move(options)));
}

EtcdClient::EtcdClient(Options options) : options_(std::move(options)) {
  // A job with etcd calls it before anybody else.
  PrepareGrpc();
  for (const std::string& member : options_.members) {
    grpc::ChannelArguments arguments;
    RefuseCompression([&arguments](const char* name, int value) { arguments.SetInt(name, value); });
    // Channels with equal arguments share connections by default, also ones that another client has broken.
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    // A proxy of the environment is for the web; etcd is in the cluster.
    arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
    arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, kReconnectMsMin);
    // The least pause between two connections is also the most that a handshake may take.
    arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, kHandshakeMsMax);
    arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, kReconnectMsMax);
    const bool is_tls = absl::StartsWith(member, kTls);
    channels_.push_back(grpc::CreateCustomChannel(
        std::string(absl::StripPrefix(member, kTls)),
        is_tls ? CurrentSecurity().ForStranger() : grpc::InsecureChannelCredentials(), arguments));
  }
}

template <typename Call>
absl::Status EtcdClient::With(absl::Duration timeout, Call call) {
  size_t at = 0;
  {
    absl::MutexLock lock(&mutex_);
    at = member_;
  }
  const absl::Time deadline = SteadyNow() + timeout;
  const auto attempt = [&] {
    grpc::ClientContext context;
    context.set_deadline(ToChrono(deadline));
    // etcd answers at once where it has no leader, instead of waiting for one.
    context.AddMetadata("hasleader", "true");
    return FromGrpc(call(channels_[at], &context));
  };
  absl::Status status = attempt();
  if (status.ok()) return status;
  // A call on a connection that broke fails at once, and whoever only calls would never see it made anew.
  if (absl::IsUnavailable(status) &&
      channels_[at]->WaitForConnected(ToChrono(std::min(deadline, SteadyNow() + kConnectPause)))) {
    status = attempt();
    if (status.ok()) return status;
  }
  const bool is_silent = absl::IsUnavailable(status) || absl::IsDeadlineExceeded(status);
  if (is_silent) {
    absl::MutexLock lock(&mutex_);
    // The next call goes to the next member, unless another thread has moved on already.
    if (member_ == at) member_ = (at + 1) % channels_.size();
  }
  return absl::Status(status.code(),
                      absl::StrCat("etcd at ", options_.members[at], ": ", status.message()));
}

absl::StatusOr<std::optional<EtcdValue>> EtcdClient::Get(const std::string& key) {
  etcdserverpb::RangeRequest request;
  request.set_key(key);
  etcdserverpb::RangeResponse response;
  TESSERA_RETURN_IF_ERROR(With(options_.timeout, [&](const auto& channel, auto* context) {
    return etcdserverpb::KV::NewStub(channel)->Range(context, request, &response);
  }));
  if (response.kvs().empty()) return std::nullopt;
  return ToValue(response.kvs(0));
}

absl::StatusOr<std::vector<EtcdValue>> EtcdClient::List(const std::string& prefix) {
  etcdserverpb::RangeRequest request;
  request.set_key(prefix);
  request.set_range_end(EndOf(prefix));
  etcdserverpb::RangeResponse response;
  TESSERA_RETURN_IF_ERROR(With(options_.timeout, [&](const auto& channel, auto* context) {
    return etcdserverpb::KV::NewStub(channel)->Range(context, request, &response);
  }));
  std::vector<EtcdValue> values;
  for (const mvccpb::KeyValue& kv : response.kvs()) values.push_back(ToValue(kv));
  return values;
}

absl::StatusOr<EtcdOutcome> EtcdClient::Commit(const EtcdTransaction& transaction) {
  etcdserverpb::TxnRequest request;
  etcdserverpb::Compare& compare = *request.add_compare();
  compare.set_key(transaction.guard);
  // The guard is the leader's key: its revision of creation changes when anybody else becomes leader, and then nothing
  // of this transaction is done.
  compare.set_target(etcdserverpb::Compare::CREATE);
  compare.set_result(etcdserverpb::Compare::EQUAL);
  compare.set_create_revision(transaction.guard_revision);
  if (!transaction.unchanged.empty()) {
    etcdserverpb::Compare& unchanged = *request.add_compare();
    unchanged.set_key(transaction.unchanged);
    unchanged.set_target(etcdserverpb::Compare::MOD);
    unchanged.set_result(etcdserverpb::Compare::EQUAL);
    unchanged.set_mod_revision(transaction.unchanged_revision);
  }
  for (const std::string& key : transaction.deletes) {
    request.add_success()->mutable_request_delete_range()->set_key(key);
  }
  for (const auto& [key, value] : transaction.puts) {
    etcdserverpb::PutRequest& put = *request.add_success()->mutable_request_put();
    put.set_key(key);
    put.set_value(value);
    put.set_lease(transaction.lease);
  }
  // Where a comparison fails the values that are there are read in the same transaction, and tell why.
  request.add_failure()->mutable_request_range()->set_key(transaction.guard);
  if (!transaction.unchanged.empty()) {
    request.add_failure()->mutable_request_range()->set_key(transaction.unchanged);
  }
  etcdserverpb::TxnResponse response;
  TESSERA_RETURN_IF_ERROR(With(options_.timeout, [&](const auto& channel, auto* context) {
    return etcdserverpb::KV::NewStub(channel)->Txn(context, request, &response);
  }));
  EtcdOutcome outcome;
  outcome.done = response.succeeded();
  outcome.revision = response.header().revision();
  if (outcome.done) return outcome;
  const auto found = [&](int i) -> std::optional<EtcdValue> {
    if (i >= response.responses_size()) return std::nullopt;
    const etcdserverpb::RangeResponse& range = response.responses(i).response_range();
    if (range.kvs_size() != 1) return std::nullopt;
    return ToValue(range.kvs(0));
  };
  outcome.guard = found(0);
  outcome.unchanged = found(1);
  return outcome;
}

absl::StatusOr<EtcdLease> EtcdClient::Grant(absl::Duration ttl) {
  etcdserverpb::LeaseGrantRequest request;
  // etcd counts whole seconds; rounding up never makes a lease end early.
  request.set_ttl(absl::ToInt64Seconds(absl::Ceil(ttl, absl::Seconds(1))));
  etcdserverpb::LeaseGrantResponse response;
  TESSERA_RETURN_IF_ERROR(With(options_.timeout, [&](const auto& channel, auto* context) {
    return etcdserverpb::Lease::NewStub(channel)->LeaseGrant(context, request, &response);
  }));
  if (!response.error().empty()) {
    return absl::InternalError(absl::StrCat("etcd at ", member(), ": ", response.error()));
  }
  return EtcdLease{response.id(), absl::Seconds(response.ttl())};
}

absl::StatusOr<absl::Duration> EtcdClient::KeepAlive(int64_t lease) {
  etcdserverpb::LeaseKeepAliveRequest request;
  request.set_id(lease);
  etcdserverpb::LeaseKeepAliveResponse response;
  TESSERA_RETURN_IF_ERROR(With(options_.timeout, [&](const auto& channel, auto* context) {
    const auto stub = etcdserverpb::Lease::NewStub(channel);
    const auto stream = stub->LeaseKeepAlive(context);
    // The API is a stream. It is used for one question, so that each attempt may go to another member.
    const bool answered = stream->Write(request) && stream->WritesDone() && stream->Read(&response);
    const grpc::Status status = stream->Finish();
    if (status.ok() && !answered) {
      return grpc::Status(grpc::StatusCode::UNAVAILABLE, "the lease was not answered for");
    }
    return answered ? grpc::Status::OK : status;
  }));
  if (response.ttl() <= 0) {
    return absl::NotFoundError(absl::StrCat("etcd at ", member(), ": the lease is over"));
  }
  return absl::Seconds(response.ttl());
}

absl::Status EtcdClient::Revoke(int64_t lease) {
  etcdserverpb::LeaseRevokeRequest request;
  request.set_id(lease);
  etcdserverpb::LeaseRevokeResponse response;
  return With(options_.timeout, [&](const auto& channel, auto* context) {
    return etcdserverpb::Lease::NewStub(channel)->LeaseRevoke(context, request, &response);
  });
}

absl::Status EtcdClient::AwaitChange(const std::string& key, int64_t revision,
                                     absl::Time deadline) {
  etcdserverpb::WatchRequest request;
  request.mutable_create_request()->set_key(key);
  // Watching begins just behind what was read, so that a change in between is not missed.
  request.mutable_create_request()->set_start_revision(revision + 1);
  bool changed = false, is_watched = false;
  const absl::Status status =
      With(deadline - SteadyNow(), [&](const auto& channel, grpc::ClientContext* context) {
        {
          absl::MutexLock lock(&mutex_);
          if (cancelled_) return grpc::Status(grpc::StatusCode::CANCELLED, "cancelled");
          waiting_.push_back(context);
        }
        const auto stub = etcdserverpb::Watch::NewStub(channel);
        const auto stream = stub->Watch(context);
        etcdserverpb::WatchResponse response;
        std::string refusal;
        if (stream->Write(request)) {
          while (!changed && refusal.empty() && stream->Read(&response)) {
            is_watched = true;
            // A compacted revision means that changes were dropped before they were sent: something has changed.
            changed = response.events_size() > 0 || response.compact_revision() > 0;
            if (response.canceled() && !changed) refusal = RefusalOf(response);
          }
        }
        if (changed || !refusal.empty()) context->TryCancel();
        const grpc::Status ended = stream->Finish();
        absl::MutexLock lock(&mutex_);
        waiting_.erase(std::find(waiting_.begin(), waiting_.end(), context));
        if (!refusal.empty()) return grpc::Status(grpc::StatusCode::UNAVAILABLE, refusal);
        // Both ends watch the deadline, and etcd may be the first to say so, in other words.
        const bool is_quiet = is_watched && SteadyNow() >= deadline - kDeadlineSlack;
        return changed || is_quiet ? grpc::Status::OK : ended;
      });
  if (changed) return absl::OkStatus();
  if (is_watched && SteadyNow() >= deadline - kDeadlineSlack) {
    return absl::DeadlineExceededError("etcd: nothing has changed");
  }
  // The member never answered: that says nothing about the key.
  if (absl::IsDeadlineExceeded(status)) return absl::UnavailableError(status.message());
  return status.ok() ? absl::UnavailableError("etcd: the watch has ended") : status;
}

void EtcdClient::Cancel() {
  absl::MutexLock lock(&mutex_);
  cancelled_ = true;
  for (grpc::ClientContext* context : waiting_) context->TryCancel();
}

std::string EtcdClient::member() const {
  absl::MutexLock lock(&mutex_);
  return options_.members[member_];
}

}  // namespace tessera
