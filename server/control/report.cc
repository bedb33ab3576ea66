#include "server/control/report.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <deque>
#include <initializer_list>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/str_format.h"
#include "absl/time/time.h"
#include "common/metrics/staleness.h"
#include "nlohmann/json.hpp"
#include "server/control/status_fields.h"
#include "server/control/traffic_sum.h"

namespace tessera {
namespace {

using OrderedJson = nlohmann::ordered_json;

OrderedJson Number(double value) {
  return std::isfinite(value) ? OrderedJson(value) : OrderedJson(nullptr);
}

// By rank; of one rank in the order in which they joined, which is that of the status.
std::vector<v1::WorkerReport> WorkersOf(const v1::JobStatus& status) {
  std::vector<v1::WorkerReport> workers(status.worker_reports().begin(),
                                        status.worker_reports().end());
  std::stable_sort(workers.begin(), workers.end(),
                   [](const auto& a, const auto& b) { return a.rank() < b.rank(); });
  return workers;
}

// Its number; null: it is not known.
OrderedJson MemberOf(const v1::WorkerReport& worker) {
  return worker.member() == 0 ? OrderedJson(nullptr) : OrderedJson(worker.member());
}

// The values at the first so many predictions; null where there is none.
OrderedJson AtFirst(const google::protobuf::RepeatedField<double>& values,
                    std::initializer_list<const char*> depths) {
  OrderedJson result;
  int i = 0;
  for (const char* const depth : depths) {
    result[depth] = i < values.size() ? Number(values[i]) : OrderedJson(nullptr);
    ++i;
  }
  return result;
}

OrderedJson TopAccuracy(const v1::HistoryEntry& entry) {
  return AtFirst(entry.top_k_accuracy(), {"1", "3", "5", "10"});
}

OrderedJson Perplexity(const v1::HistoryEntry& entry) {
  return entry.has_perplexity() ? Number(entry.perplexity()) : OrderedJson(nullptr);
}

OrderedJson Entry(const v1::HistoryEntry& entry) {
  return {{"seconds", Number(entry.seconds())},
          {"step", entry.step()},
          {"epoch", Number(entry.epoch())},
          {"round", entry.round()},
          {"train_loss", Number(entry.train_loss())},
          {"test_loss", Number(entry.test_loss())},
          {"test_accuracy", Number(entry.test_accuracy())},
          {"top_k_accuracy", TopAccuracy(entry)},
          {"perplexity", Perplexity(entry)}};
}

OrderedJson Final(const v1::JobStatus& status) {
  const bool has_any = !status.history().empty();
  const v1::HistoryEntry last = has_any ? *status.history().rbegin() : v1::HistoryEntry();
  const auto number = [has_any](double value) {
    return has_any ? Number(value) : OrderedJson(nullptr);
  };
  OrderedJson result = {{"train_loss", number(last.train_loss())},
                        {"test_loss", number(last.test_loss())},
                        {"test_accuracy", number(last.test_accuracy())}};
  result["precision_at"] = AtFirst(last.precision_at(), {"1", "3", "5"});
  result["top_k_accuracy"] = TopAccuracy(last);
  result["perplexity"] = Perplexity(last);
  return result;
}

OrderedJson TrafficEntry(const v1::Traffic& traffic) {
  return {{"pull_payload_bytes", traffic.pull_payload_bytes()},
          {"push_payload_bytes", traffic.push_payload_bytes()},
          {"pull_wire_bytes", traffic.pull_wire_bytes()},
          {"push_wire_bytes", traffic.push_wire_bytes()},
          {"other_payload_bytes", traffic.other_payload_bytes()},
          {"shared_memory_bytes", traffic.shared_memory_bytes()},
          {"exchanges", traffic.exchanges()}};
}

OrderedJson Traffic(const v1::JobStatus& status, const std::vector<v1::WorkerReport>& workers) {
  v1::Traffic sum = TrafficOf(status);
  // What went between servers is nobody's of the workers.
  sum.set_other_payload_bytes(sum.other_payload_bytes() + status.replication_payload_bytes());
  OrderedJson by_worker = OrderedJson::array();
  for (const v1::WorkerReport& worker : workers) {
    OrderedJson entry = {{"worker", worker.rank()}, {"member", MemberOf(worker)}};
    entry.update(TrafficEntry(TrafficOf(worker)));
    by_worker.push_back(std::move(entry));
  }
  OrderedJson traffic = TrafficEntry(sum);
  traffic["by_worker"] = std::move(by_worker);
  return traffic;
}

OrderedJson StalenessEntry(const v1::JobStatus& status) {
  const Staleness staleness = StalenessOf(status);
  return {{"mean", staleness.pushes == 0 ? OrderedJson(nullptr) : OrderedJson(staleness.mean())},
          {"max", staleness.max},
          {"histogram", staleness.histogram}};
}

// The peak of each rank, null where nobody measured one.
OrderedJson ByRank(const std::map<uint32_t, uint64_t>& peaks) {
  OrderedJson by_rank = OrderedJson::array();
  for (const auto& [rank, peak] : peaks) {
    while (by_rank.size() < rank) by_rank.push_back(nullptr);
    by_rank.push_back(peak == 0 ? OrderedJson(nullptr) : OrderedJson(peak));
  }
  return by_rank;
}

OrderedJson Memory(const v1::JobStatus& status, const std::vector<v1::WorkerReport>& workers) {
  std::map<uint32_t, uint64_t> of_servers, of_workers;
  uint64_t parameter_bytes = 0;
  for (const v1::ServerStatus& server : status.servers()) {
    of_servers[server.rank()] = server.counters().peak_rss_bytes();
    parameter_bytes += server.counters().parameter_bytes();
  }
  for (const v1::MemberStatus& member : status.members()) of_workers[member.rank()] = 0;
  for (const v1::WorkerReport& worker : workers) {
    uint64_t& peak = of_workers[worker.rank()];
    peak = std::max<uint64_t>(peak, worker.peak_rss_bytes());
  }
  return {{"server_peak_rss_bytes", ByRank(of_servers)},
          {"worker_peak_rss_bytes", ByRank(of_workers)},
          {"parameter_bytes", parameter_bytes}};
}

OrderedJson Phases(const std::vector<v1::WorkerReport>& workers) {
  OrderedJson phases = OrderedJson::array();
  for (const v1::WorkerReport& worker : workers) {
    phases.push_back({{"worker", worker.rank()},
                      {"member", MemberOf(worker)},
                      {"compute_seconds", Number(worker.compute_seconds())},
                      {"pull_seconds", Number(worker.pull_seconds())},
                      {"push_seconds", Number(worker.push_seconds())},
                      {"wait_seconds", Number(worker.wait_seconds())},
                      {"evaluate_seconds", Number(worker.evaluate_seconds())}});
  }
  return phases;
}

// The members that had a part when the last sizes were agreed on, by rank.
OrderedJson PartsOf(const v1::JobStatus& status) {
  std::vector<const v1::MemberStatus*> by_rank;
  for (const v1::MemberStatus& member : status.members()) {
    if (member.part() > 0) by_rank.push_back(&member);
  }
  std::stable_sort(by_rank.begin(), by_rank.end(),
                   [](const auto* a, const auto* b) { return a->rank() < b->rank(); });
  OrderedJson parts = OrderedJson::array();
  for (const v1::MemberStatus* member : by_rank) {
    parts.push_back({{"worker", member->rank()}, {"part", Number(member->part())}});
  }
  return parts;
}

// The sizes of minibatches that workers had at the end, by rank, where slower ones have smaller ones.
OrderedJson BatchesOf(const v1::JobStatus& status) {
  std::map<uint64_t, uint64_t> rows;
  for (const v1::MemberStatus& member : status.members()) {
    const bool is_gone = member.state() == "lost" || member.state() == "failed";
    if (!is_gone && member.progress().batch_rows() > 0) {
      rows[member.rank()] = member.progress().batch_rows();
    }
  }
  OrderedJson batches = OrderedJson::array();
  for (const auto& [rank, count] : rows) batches.push_back({{"worker", rank}, {"rows", count}});
  return batches;
}

// nullptr: the job keeps none.
OrderedJson Checkpoint(const v1::JobStatus& status) {
  if (!status.has_checkpoint()) return nullptr;
  const v1::CheckpointStatus& checkpoint = status.checkpoint();
  OrderedJson json = {{"count", checkpoint.count()},
                      {"step", nullptr},
                      {"bytes", nullptr},
                      {"write_seconds", nullptr},
                      {"failure", checkpoint.failure()},
                      {"rollbacks", checkpoint.rollbacks()},
                      {"resumed_step", nullptr}};
  if (checkpoint.count() > 0) {
    json["step"] = checkpoint.step();
    json["bytes"] = checkpoint.bytes();
    json["write_seconds"] = Number(checkpoint.write_seconds());
  }
  if (checkpoint.has_resumed_step()) json["resumed_step"] = checkpoint.resumed_step();
  return json;
}

// nullptr: the job keeps none.
OrderedJson Standbys(const v1::JobStatus& status) {
  if (status.owners().empty()) return nullptr;
  int in_sync = 0;
  for (const v1::ShardOwner& owner : status.owners()) in_sync += owner.in_sync();
  OrderedJson seconds = OrderedJson::array();
  for (double taken : status.takeover_seconds()) seconds.push_back(Number(taken));
  return {{"shards", status.owners_size()},
          {"in_sync", in_sync},
          {"takeovers", status.takeovers()},
          {"takeover_seconds", seconds},
          {"payload_bytes", status.replication_payload_bytes()}};
}

// Adds the status fields of a section of the report.
void AddFields(const v1::JobStatus& status, StatusField::Section section, OrderedJson* report) {
  for (const StatusField& field : StatusFields()) {
    if (field.section != section) continue;
    OrderedJson& shown = (*report)[field.key] = nullptr;
    const std::optional<StatusField::Value> value = field.value(status);
    if (!value) continue;
    const double* const number = std::get_if<double>(&*value);
    shown = number != nullptr ? Number(*number) : OrderedJson(std::get<uint64_t>(*value));
  }
}

// A status of before the end, of which a report is made nevertheless, may lack it.
std::string Outcome(const v1::JobStatus& status) {
  if (!status.outcome().empty()) return status.outcome();
  return status.failure().empty() ? "finished" : "failed";
}

OrderedJson Build(const v1::JobStatus& status, const std::vector<v1::WorkerReport>& workers) {
  OrderedJson build = {{"version", status.version()}, {"backend", ""}, {"cpu", ""}, {"gpu", ""}};
  if (!workers.empty()) {
    build["backend"] = workers.front().backend();
    build["cpu"] = workers.front().cpu();
    build["gpu"] = workers.front().gpu();
  }
  return build;
}

// Null: nobody said.
OrderedJson Text(const std::string& text) {
  return text.empty() ? OrderedJson(nullptr) : OrderedJson(text);
}

// By name, the programs' own first; of workers each once.
OrderedJson Versions(const v1::JobStatus& status, const std::vector<v1::WorkerReport>& workers) {
  std::set<std::string> of_workers;
  for (const v1::WorkerReport& worker : workers) {
    if (!worker.version().empty()) of_workers.insert(worker.version());
  }
  OrderedJson versions = {{"server", Text(status.version())}, {"workers", of_workers}};
  const std::map<std::string, std::string> libraries(status.origin().libraries().begin(),
                                                     status.origin().libraries().end());
  for (const auto& [name, version] : libraries) versions[name] = version;
  return versions;
}

// What to type to run the job again, and when and where it ran.
void AddOrigin(const v1::JobStatus& status, const std::vector<v1::WorkerReport>& workers,
               OrderedJson* report) {
  const v1::JobOrigin& origin = status.origin();
  (*report)["job_file"] = Text(origin.job_file());
  (*report)["job_digest"] = Text(status.job_digest());
  (*report)["overrides"] = status.has_origin()
                               ? OrderedJson(std::vector<std::string>(origin.overrides().begin(),
                                                                      origin.overrides().end()))
                               : OrderedJson(nullptr);
  (*report)["started"] = origin.started_ns() == 0
                             ? OrderedJson(nullptr)
                             : OrderedJson(absl::FormatTime(
                                   "%Y-%m-%dT%H:%M:%E3SZ", absl::FromUnixNanos(origin.started_ns()),
                                   absl::UTCTimeZone()));
  (*report)["host"] = Text(origin.host());
  (*report)["command"] = Text(origin.command());
  (*report)["versions"] = Versions(status, workers);
}

template <typename Range>
OrderedJson Events(const Range& events) {
  OrderedJson json = OrderedJson::array();
  for (const v1::JobEvent& event : events) {
    json.push_back({{"number", event.number()},
                    {"seconds", Number(event.seconds())},
                    {"kind", event.kind()},
                    {"who", event.who()},
                    {"words", event.words()}});
  }
  return json;
}

}  // namespace

std::string ReportJson(const v1::JobStatus& status, const std::deque<v1::JobEvent>& events) {
  const std::vector<v1::WorkerReport> workers = WorkersOf(status);
  uint64_t parameters_hash = 0, rounds = status.round();
  for (const v1::ServerStatus& server : status.servers()) {
    parameters_hash += server.counters().parameters_hash();
  }
  OrderedJson history = OrderedJson::array();
  for (const v1::HistoryEntry& entry : status.history()) {
    history.push_back(Entry(entry));
    // Elsewhere it is the number of an exchange, and servers may have passed over some.
    if (status.free_running()) rounds = std::max<uint64_t>(rounds, entry.round());
  }
  OrderedJson report = {
      {"job", status.job()},
      {"method", status.method()},
      {"seed", status.seed()},
  };
  AddFields(status, StatusField::Section::kHeadline, &report);
  report.update({
      {"rounds", rounds},
      {"examples_per_second", Number(status.examples() / status.train_seconds())},
      {"final", Final(status)},
      {"history", history},
      {"traffic", Traffic(status, workers)},
      {"staleness", StalenessEntry(status)},
      {"memory", Memory(status, workers)},
      {"phases", Phases(workers)},
      {"members", OrderedJson::object()},
      {"build", Build(status, workers)},
      {"outcome", Outcome(status)},
      {"failure", status.failure()},
      {"stop_reason", status.stop_reason()},
      {"method_description", status.method_description()},
      {"layout_hash", absl::StrFormat("%016x", status.layout_hash())},
      {"parameters_hash", absl::StrFormat("%016x", parameters_hash)},
      {"parts", PartsOf(status)},
      {"batches", BatchesOf(status)},
      {"checkpoint", Checkpoint(status)},
      {"standbys", Standbys(status)},
  });
  AddFields(status, StatusField::Section::kMembers, &report["members"]);
  AddFields(status, StatusField::Section::kRest, &report);
  AddOrigin(status, workers, &report);
  report["events"] = events.empty() ? Events(status.events()) : Events(events);
  // Names in a job file may be any bytes; a report is UTF-8.
  return report.dump(2, ' ', false, OrderedJson::error_handler_t::replace);
}

}  // namespace tessera
