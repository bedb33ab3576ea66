#include "server/control/members/server_table.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/check.h"
#include "common/base/limits.h"
#include "common/metrics/staleness.h"
#include "common/rpc/control_protocol.h"
#include "server/control/digest_check.h"
#include "server/control/lost_parameters.h"

namespace tessera {
namespace {

// What servers count goes out with every status.
template <typename Field>
void Cut(uint64_t entries_max, Field* field) {
  if (static_cast<uint64_t>(field->size()) > entries_max) {
    field->Truncate(static_cast<int>(entries_max));
  }
}

PushesLeft LeftOf(const v1::ServerCounters& counters) {
  return {counters.refused(), counters.refused_non_finite(), counters.duplicates()};
}

void SetLeft(const PushesLeft& own, const PushesLeft& before, v1::ServerCounters* counters) {
  counters->set_refused(own.refused + before.refused);
  counters->set_refused_non_finite(own.refused_non_finite + before.refused_non_finite);
  counters->set_duplicates(own.duplicates + before.duplicates);
}

void ForgetParameters(v1::ServerCounters* counters) {
  const PushesLeft left = LeftOf(*counters);
  counters->Clear();
  SetLeft(left, PushesLeft(), counters);
}

// Nobody: all that holds of `record` for whoever comes next.
ServerRecord EmptiedOf(ServerRecord record) {
  ServerRecord empty;
  empty.life = record.life;
  empty.before = record.before;
  ForgetParameters(&record.counters);
  empty.counters = std::move(record.counters);
  return empty;
}

}  // namespace

ServerTable::ServerTable(const JobFacts& facts) : facts_(facts), records_(facts.servers) {}

absl::Status ServerTable::CheckRank(uint32_t rank, bool started) const {
  if (rank < records_.size()) return absl::OkStatus();
  if (!facts_.replicated || rank >= kServersMax) {
    return absl::InvalidArgumentError(
        absl::StrCat("server ", rank, ": rank is ", rank, ", want one in [0, ",
                     facts_.replicated ? kServersMax : records_.size(), ")"));
  }
  if (started) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("server ", rank, ": the job has not begun with its first ", records_.size(),
                   " servers, want that before others join"));
}

absl::Status ServerTable::CheckJob(const v1::ServerHello& hello) const {
  const std::string who = absl::StrCat("server ", hello.rank());
  TESSERA_RETURN_IF_ERROR(CheckDigest(who, hello.job_digest(), hello.job_text(), facts_));
  if (hello.layout_hash() != facts_.layout_hash) {
    return absl::InvalidArgumentError(
        absl::StrFormat("%s: layout hash is %016x, want %016x; all must run the same build", who,
                        hello.layout_hash(), facts_.layout_hash));
  }
  return CheckInitialSum(who, hello.initial_sum(), facts_);
}

absl::Status ServerTable::Attach(const v1::ServerHello& hello, bool started, absl::Time now) {
  const std::string who = absl::StrCat("server ", hello.rank());
  TESSERA_RETURN_IF_ERROR(CheckRank(hello.rank(), started));
  TESSERA_RETURN_IF_ERROR(CheckJob(hello));
  if (hello.rank() >= records_.size()) records_.resize(hello.rank() + 1);
  ServerRecord& record = records_[hello.rank()];
  if (facts_.replicated && record.gone && record.life == hello.life()) {
    return absl::FailedPreconditionError(
        absl::StrCat(who, " was removed; the others have trained on, start it again to join"));
  }
  if (record.known && record.life != hello.life()) {
    if (record.attached && !record.left && !(facts_.replicated && record.gone)) {
      return absl::AlreadyExistsError(
          absl::StrCat(who, ": another process at ", record.address, " holds this rank"));
    }
    if (started && !facts_.replicated && !record.handed_over) {
      // Only a process that comes in the place of another tells that the parameters are lost: a connection that ended
      // may be made anew.
      record.gone = true;
      ++changes_;
      return absl::FailedPreconditionError(absl::StrCat(
          who, " is gone: it was restarted at ", hello.address(), " and its parameters are lost; ",
          LostParametersAdvice({facts_.checkpoints, facts_.standbys, facts_.servers})));
    }
    ServerRecord next = EmptiedOf(record);
    // What it counted holds until the new one has counted.
    if (record.handed_over) next.counters = std::move(record.counters);
    record = std::move(next);
  } else if (!record.known && record.life != hello.life()) {
    // What a server that fell silent before the start had restored is not this one's.
    record = EmptiedOf(std::move(record));
  }
  if (record.life != hello.life()) record.before = LeftOf(record.counters);
  ++changes_;
  if (!started) record.ready = true;
  record.known = true;
  record.attached = true;
  record.life = hello.life();
  record.address = hello.address();
  record.parameter_bytes = hello.parameter_bytes();
  record.last_heard = now;
  return absl::OkStatus();
}

void ServerTable::Detach(ShardId server, uint64_t life, bool started, absl::Time now) {
  ServerRecord& record = records_[server.value()];
  if (record.life != life) return;
  record.attached = false;
  record.detached = now;
  if (!started) record = EmptiedOf(std::move(record));
}

void ServerTable::OnCounters(ShardId server, const v1::ServerCounters& counters, absl::Time now) {
  ServerRecord& record = records_[server.value()];
  record.last_heard = now;
  if (const uint64_t sent = counters.replication_payload_bytes(); sent > 0) {
    uint64_t& known = replication_payload_bytes_[record.life];
    known = std::max(known, sent);
  }
  // The last counters have the hash of all parameters; a report that was under way when they were made does not.
  if (record.counters.closing()) return;
  record.counters = counters;
  record.counters.DiscardUnknownFields();
  // A process counts from 0, and the job goes on: what those before it had refused stays refused.
  SetLeft(LeftOf(counters), record.before, &record.counters);
  Cut(kStalenessEntries, record.counters.mutable_staleness_histogram());
  Cut(kRankEnd, record.counters.mutable_waits_for_ranks());
  Cut(kRankEnd, record.counters.mutable_memory_members());
  record.counters_at = now;
  changes_ += counters.closing() ? 1 : 0;
}

void ServerTable::OnApplied(ShardId server, Generation generation, absl::Time now) {
  ServerRecord& record = records_[server.value()];
  record.last_heard = now;
  record.applied = std::max(record.applied, generation);
}

bool ServerTable::OnRestored(ShardId server, Generation generation, absl::Time now) {
  ServerRecord& record = records_[server.value()];
  record.last_heard = now;
  if (record.restored >= generation) return false;
  record.restored = generation;
  ++changes_;
  return true;
}

bool ServerTable::AllRestored(Generation generation) const {
  return std::all_of(records_.begin(), records_.end(),
                     [&](const ServerRecord& record) { return record.restored >= generation; });
}

void ServerTable::GoBack() {
  ++changes_;
  for (ServerRecord& record : records_) {
    if (!record.attached || record.left) {
      record = EmptiedOf(std::move(record));
      continue;
    }
    // Its connection stands, and it may only be silent: as Miss.
    if (record.gone) record.known = false;
    record.gone = false;
    record.applied = Generation();
    ForgetParameters(&record.counters);
    record.counters_at = absl::Time();
  }
}

bool ServerTable::IsReplaced(const v1::ServerHello& hello) const {
  if (hello.rank() >= records_.size()) return false;
  const ServerRecord& record = records_[hello.rank()];
  if (record.handed_over) return false;
  return record.known && (!record.attached || record.left) && record.life != hello.life();
}

// A server that was missed may only have been silent: what it says shows that it is there, with its parameters.
bool ServerTable::OnHeard(ShardId server, absl::Time now) {
  ServerRecord& record = records_[server.value()];
  record.last_heard = now;
  const bool is_back = !record.known && record.attached;
  record.known = record.known || is_back;
  changes_ += is_back ? 1 : 0;
  return is_back;
}

// Replicas that are gone have been dealt with, and are waited for by nobody.
std::vector<ShardId> ServerTable::Expired(absl::Time now) const {
  std::vector<ShardId> expired;
  for (size_t i = 0; i < records_.size(); ++i) {
    if (facts_.replicated && records_[i].gone) continue;
    if (records_[i].known && now - records_[i].last_heard > facts_.lease_timeout) {
      expired.push_back(ShardId(i));
    }
  }
  return expired;
}

void ServerTable::HandOver(ShardId server, absl::Time now) {
  ServerRecord& record = records_[server.value()];
  record.attached = false;
  record.handed_over = true;
  record.last_heard = now;
  ++changes_;
}

void ServerTable::Miss(ShardId server) {
  records_[server.value()].known = false;
  ++changes_;
}

void ServerTable::Forget(ShardId server) {
  ServerRecord& record = records_[server.value()];
  record = EmptiedOf(std::move(record));
  ++changes_;
}

bool ServerTable::AllKnown() const { return Unknown().empty(); }

Generation ServerTable::AppliedByAll() const {
  Generation least = records_[0].applied;
  for (const ServerRecord& record : records_) {
    if (Counts(record)) least = std::min(least, record.applied);
  }
  return least;
}

std::vector<ShardId> ServerTable::Unknown() const {
  std::vector<ShardId> unknown;
  for (size_t i = 0; i < records_.size(); ++i) {
    if (!records_[i].known) unknown.push_back(ShardId(i));
  }
  return unknown;
}

std::vector<ShardId> ServerTable::Behind(Generation generation) const {
  std::vector<ShardId> behind;
  for (size_t i = 0; i < records_.size(); ++i) {
    if (Counts(records_[i]) && records_[i].applied < generation) behind.push_back(ShardId(i));
  }
  return behind;
}

// Whoever is lost has no last counters to send.
bool ServerTable::AllClosed() const {
  return std::all_of(records_.begin(), records_.end(), [](const ServerRecord& record) {
    return !record.known || record.gone || record.counters.closing();
  });
}

Exchange ServerTable::HighestCommitted() const {
  Exchange highest;
  for (const ServerRecord& record : records_) {
    highest = std::max(highest, Exchange(record.counters.exchange_committed()));
  }
  return highest;
}

uint64_t ServerTable::MostPushes() const {
  uint64_t most = 0;
  for (const ServerRecord& record : records_) {
    most = std::max<uint64_t>(most, record.counters.pushes());
  }
  return most;
}

void ServerTable::Save(v1::MembershipState* state) const {
  for (const ServerRecord& record : records_) {
    v1::ServerState& server = *state->add_servers();
    server.set_known(record.known);
    server.set_ready(record.ready);
    server.set_gone(record.gone);
    server.set_life(record.life);
    server.set_address(record.address);
    server.set_parameter_bytes(record.parameter_bytes);
    server.set_applied(record.applied.value());
    server.set_restored(record.restored.value());
    *server.mutable_counters() = record.counters;
    server.set_counters_at(absl::ToUnixNanos(record.counters_at));
    server.set_attached(record.attached);
    server.set_last_heard(absl::ToUnixNanos(record.last_heard));
    server.set_handed_over(record.handed_over);
    server.set_left(record.left);
    server.set_detached(absl::ToUnixNanos(record.detached));
    server.set_refused_before(record.before.refused);
    server.set_refused_non_finite_before(record.before.refused_non_finite);
    server.set_duplicates_before(record.before.duplicates);
  }
  for (const auto& [life, bytes] : replication_payload_bytes_) {
    state->add_replication_lives(life);
    state->add_replication_payload_bytes(bytes);
  }
}

absl::Status ServerTable::Load(const v1::MembershipState& state) {
  const int count = state.servers_size();
  const bool is_right = facts_.replicated ? count >= 1 && count <= static_cast<int>(kServersMax)
                                          : count == facts_.servers;
  if (!is_right) {
    return absl::InvalidArgumentError(
        absl::StrCat("servers are ", count, ", want ", facts_.servers));
  }
  records_.clear();
  for (const v1::ServerState& server : state.servers()) {
    ServerRecord& record = records_.emplace_back();
    record.known = server.known();
    record.ready = server.ready();
    record.gone = server.gone();
    record.life = server.life();
    record.address = server.address();
    record.parameter_bytes = server.parameter_bytes();
    record.applied = Generation(server.applied());
    record.restored = Generation(server.restored());
    record.counters = server.counters();
    record.counters_at = absl::FromUnixNanos(server.counters_at());
    record.attached = server.attached();
    record.last_heard = absl::FromUnixNanos(server.last_heard());
    record.handed_over = server.handed_over();
    record.left = server.left();
    record.detached = absl::FromUnixNanos(server.detached());
    record.before = {server.refused_before(), server.refused_non_finite_before(),
                     server.duplicates_before()};
  }
  replication_payload_bytes_.clear();
  const int lives =
      std::min(state.replication_lives_size(), state.replication_payload_bytes_size());
  for (int i = 0; i < lives; ++i) {
    replication_payload_bytes_[state.replication_lives(i)] = state.replication_payload_bytes(i);
  }
  return absl::OkStatus();
}

void ServerTable::Reconnect(absl::Time now) {
  for (ServerRecord& record : records_) {
    record.attached = false;
    record.detached = now;
  }
  ExtendLeases(now);
}

void ServerTable::ExtendLeases(absl::Time now) {
  for (ServerRecord& record : records_) record.last_heard = now;
}

Exchange ServerTable::LeastCommitted() const {
  uint64_t least = ~uint64_t{0};
  for (const ServerRecord& record : records_) {
    least = std::min<uint64_t>(least, record.counters.exchange_committed());
  }
  return Exchange(least);
}

uint64_t ServerTable::ReplicationPayloadBytes() const {
  uint64_t sum = 0;
  for (const auto& [life, bytes] : replication_payload_bytes_) sum += bytes;
  return sum;
}

}  // namespace tessera
