#include "server/control/event_watch.h"

#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace tessera {
namespace {

int BinaryDigits(uint64_t number) {
  int digits = 0;
  for (; number > 0; number >>= 1) ++digits;
  return digits;
}

std::string Worker(const MemberRecord& record) {
  return absl::StrCat("worker ", record.rank.value());
}

std::string WordsOf(const v1::HistoryEntry& entry, bool predicts_tokens) {
  std::string words = absl::StrFormat("step %d: test loss %.4f", entry.step(), entry.test_loss());
  if (predicts_tokens) {
    absl::StrAppendFormat(&words, ", perplexity %.4g", std::exp(entry.test_loss()));
  } else if (std::isfinite(entry.test_accuracy())) {
    absl::StrAppendFormat(&words, ", accuracy %.4f", entry.test_accuracy());
  }
  return words;
}

}  // namespace

class EventWatch::Teller {
 public:
  Teller(double seconds, EventLog* log) : seconds_(seconds), log_(*log) {}
  void operator()(EventKind kind, absl::string_view who, absl::string_view words) const {
    log_.Add(kind, seconds_, who, words);
  }

 private:
  const double seconds_;
  EventLog& log_;
};

// Where shards have standbys their hosts are the servers.
std::vector<EventWatch::Server> EventWatch::Servers() const {
  std::vector<Server> servers;
  const ShardOwners* const owners = on_.membership.owners();
  if (owners != nullptr) {
    for (uint32_t i = 0; i < owners->hosts().count(); ++i) {
      const HostRecord& host = owners->hosts().at(i);
      const bool is_gone = host.lost_life != 0 && host.lost_life == host.life && !host.known;
      servers.push_back({host.attached, is_gone, /*left=*/false, host.life, host.address});
    }
    return servers;
  }
  const ServerTable& table = on_.membership.servers();
  for (int i = 0; i < table.count(); ++i) {
    const ServerRecord& server = table.at(ShardId(i));
    servers.push_back({server.attached, server.gone, server.left, server.life, server.address});
  }
  return servers;
}

std::vector<std::optional<uint32_t>> EventWatch::Leaders() const {
  std::vector<std::optional<uint32_t>> leaders;
  if (on_.membership.owners() == nullptr) return leaders;
  for (const ShardOwnership& shard : on_.membership.owners()->shards()) {
    leaders.push_back(shard.leader);
  }
  return leaders;
}

uint64_t EventWatch::RefusedPushes() const {
  uint64_t refused = 0;
  const ServerTable& table = on_.membership.servers();
  for (int i = 0; i < table.count(); ++i) refused += table.at(ShardId(i)).counters.refused();
  return refused;
}

void EventWatch::Adopt() {
  seen_ = Seen();
  for (const auto& [id, record] : on_.membership.members().all()) {
    seen_.members.emplace(id, record.state);
  }
  seen_.members_changes = on_.membership.changes();
  seen_.servers = Servers();
  seen_.leaders = Leaders();
  seen_.whole_checkpoint = on_.checkpoints.record().whole_number();
  seen_.failed_checkpoint = on_.checkpoints.record().failed_number();
  seen_.rollbacks = on_.checkpoint_driver.rollbacks();
  seen_.evaluations = on_.evaluation.history().size();
  seen_.refused_digits = BinaryDigits(RefusedPushes());
  seen_.has_begun = on_.membership.started();
  seen_.is_draining = on_.membership.draining();
  seen_.has_ended = !on_.end.running();
}

void EventWatch::Look(double seconds, EventLog* log) {
  const Teller tell(seconds, log);
  // A job's going back explains what becomes of members and servers, and is told before them.
  LookAtCheckpoints(tell);
  LookAtServers(tell);
  LookAtLeaders(tell);
  if (on_.membership.changes() != seen_.members_changes) LookAtMembers(tell);
  LookAtEvaluations(tell);
  LookAtJob(tell);
}

void EventWatch::LookAtMembers(const Teller& tell) {
  seen_.members_changes = on_.membership.changes();
  std::map<MemberId, MemberState> now;
  for (const auto& [id, record] : on_.membership.members().all()) {
    now.emplace_hint(now.end(), id, record.state);
    const auto before = seen_.members.find(id);
    const bool is_new = before == seen_.members.end();
    if (is_new) {
      tell(EventKind::kJoined, Worker(record),
           absl::StrCat("joined as member ", id.value(), record.description.empty() ? "" : ": ",
                        record.description));
    }
    if (!is_new && before->second == record.state) continue;
    if (record.state == MemberState::kAdmitted) {
      tell(EventKind::kAdmitted, Worker(record),
           absl::StrCat("takes part from step ", record.first_step, " on"));
    } else if (record.state == MemberState::kLeft) {
      tell(EventKind::kLeft, Worker(record), absl::StrCat("left: ", record.ended));
    } else if (IsLost(record.state)) {
      tell(EventKind::kLost, Worker(record), absl::StrCat("lost: ", record.ended));
    }
  }
  seen_.members = std::move(now);
}

void EventWatch::LookAtServers(const Teller& tell) {
  std::vector<Server> now = Servers();
  // All connections end with the job, and nobody need hear of each.
  for (size_t i = 0; on_.end.running() && i < now.size(); ++i) {
    const Server& is = now[i];
    const Server was = i < seen_.servers.size() ? seen_.servers[i] : Server();
    const std::string who = absl::StrCat("server ", i);
    if (is.left && !was.left) {
      tell(EventKind::kServerLeft, who, "ends, as it was asked to");
    } else if (is.gone && !was.gone && !is.left) {
      tell(EventKind::kServerLost, who,
           "lost: nothing was heard of it for a lease, or it came anew");
    } else if (is.attached && !was.attached && was.life == 0) {
      tell(EventKind::kAttached, who, absl::StrCat("serves at ", is.address));
    } else if (is.attached && (!was.attached || was.life != is.life)) {
      tell(EventKind::kReturned, who,
           absl::StrCat(was.life == is.life ? "is connected again" : "was started again", ", at ",
                        is.address));
    } else if (!is.attached && was.attached && !is.left) {
      tell(EventKind::kDisconnected, who, "its connection has ended; it has a lease to come back");
    }
  }
  seen_.servers = std::move(now);
}

void EventWatch::LookAtLeaders(const Teller& tell) {
  std::vector<std::optional<uint32_t>> now = Leaders();
  for (size_t i = 0; i < now.size() && i < seen_.leaders.size(); ++i) {
    const std::optional<uint32_t>& was = seen_.leaders[i];
    if (now[i] == was || !now[i].has_value() || !was.has_value()) continue;
    tell(EventKind::kTookOver, absl::StrCat("server ", *now[i]),
         absl::StrCat("leads shard ", i, " in place of server ", *was));
  }
  seen_.leaders = std::move(now);
}

void EventWatch::LookAtCheckpoints(const Teller& tell) {
  const CheckpointRecord& record = on_.checkpoints.record();
  v1::CheckpointStatus about;
  if (record.whole_number() != seen_.whole_checkpoint) {
    on_.checkpoints.record().Fill(absl::Time(), &about);
    tell(EventKind::kCheckpoint, "job",
         absl::StrFormat("checkpoint %d of step %d is whole: %d bytes in %.2f s", about.number(),
                         about.step(), about.bytes(), about.write_seconds()));
  }
  if (record.failed_number() != seen_.failed_checkpoint && record.failed_number() != 0) {
    record.Fill(absl::Time(), &about);
    tell(EventKind::kCheckpointFailed, "job",
         absl::StrCat("checkpoint ", about.failed_number(), " failed: ", about.failure()));
  }
  seen_.whole_checkpoint = record.whole_number();
  seen_.failed_checkpoint = record.failed_number();
  const uint64_t rollbacks = on_.checkpoint_driver.rollbacks();
  if (rollbacks != seen_.rollbacks) {
    const SavedState* const last = on_.checkpoints.last().get();
    tell(EventKind::kWentBack, "job",
         absl::StrCat("went back to the checkpoint of step ",
                      last != nullptr ? last->manifest.step : 0));
  }
  seen_.rollbacks = rollbacks;
}

void EventWatch::LookAtEvaluations(const Teller& tell) {
  const std::vector<v1::HistoryEntry>& history = on_.evaluation.history();
  // Evaluations that a job which went back has undone are forgotten.
  for (size_t i = seen_.evaluations; i < history.size(); ++i) {
    tell(EventKind::kEvaluated, "job", WordsOf(history[i], on_.facts.predicts_tokens));
  }
  seen_.evaluations = history.size();
}

void EventWatch::LookAtJob(const Teller& tell) {
  const bool has_begun = on_.membership.started();
  if (has_begun && !seen_.has_begun) tell(EventKind::kBegan, "job", "training begins");
  seen_.has_begun = has_begun;
  // Told at the first refusal and whenever their number has doubled since: a worker may send nothing else.
  const uint64_t refused = RefusedPushes();
  const int digits = BinaryDigits(refused);
  if (digits > seen_.refused_digits) {
    tell(EventKind::kRefused, "job",
         absl::StrCat("servers have refused ", refused, refused == 1 ? " push" : " pushes"));
  }
  seen_.refused_digits = digits;
  const bool is_draining = on_.membership.draining();
  if (is_draining && !seen_.is_draining) {
    const std::string& why = on_.end.stop_reason();
    tell(EventKind::kDrain, "job", absl::StrCat("is to end early", why.empty() ? "" : ": ", why));
  }
  seen_.is_draining = is_draining;
  const bool has_ended = !on_.end.running();
  if (has_ended && !seen_.has_ended) {
    const absl::string_view why = on_.end.outcome().message();
    tell(EventKind::kEnded, "job",
         absl::StrCat(on_.end.OutcomeWord(), why.empty() ? "" : ": ", why));
  }
  seen_.has_ended = has_ended;
}

}  // namespace tessera
