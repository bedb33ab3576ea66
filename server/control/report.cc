#include "server/control/report.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "common/metrics/staleness.h"
#include "nlohmann/json.hpp"

namespace tessera {
namespace {

using Json = nlohmann::ordered_json;

Json Number(double value) { return std::isfinite(value) ? Json(value) : Json(nullptr); }

struct Worker {
  v1::WorkerReport report;
  Json member;  // its number, null where that is not known
};

// The coordinator shows of a member that has given a report what that says.
bool IsOf(const v1::MemberStatus& member, const v1::WorkerReport& report) {
  const v1::Progress& progress = member.progress();
  const v1::Phases& phases = progress.phases();
  return member.rank() == report.rank() && progress.examples() == report.examples() &&
         phases.compute_seconds() == report.compute_seconds() &&
         phases.pull_seconds() == report.pull_seconds() &&
         phases.push_seconds() == report.push_seconds() &&
         phases.wait_seconds() == report.wait_seconds() &&
         phases.evaluate_seconds() == report.evaluate_seconds();
}

// By rank; of one rank in the order in which they joined.
std::vector<Worker> WorkersOf(const v1::JobStatus& status) {
  std::vector<Worker> workers;
  int next = 0;  // Reports are in the members' order.
  for (const v1::WorkerReport& report : status.worker_reports()) {
    int found = next;
    while (found < status.members_size() && !IsOf(status.members(found), report)) ++found;
    Json member;
    if (found < status.members_size()) {
      member = status.members(found).member();
      next = found + 1;
    }
    workers.push_back({report, std::move(member)});
  }
  std::stable_sort(workers.begin(), workers.end(), [](const Worker& a, const Worker& b) {
    return a.report.rank() < b.report.rank();
  });
  return workers;
}

Json Entry(const v1::HistoryEntry& entry) {
  return {{"seconds", Number(entry.seconds())},
          {"step", entry.step()},
          {"epoch", Number(entry.epoch())},
          {"round", entry.round()},
          {"train_loss", Number(entry.train_loss())},
          {"test_loss", Number(entry.test_loss())},
          {"test_accuracy", Number(entry.test_accuracy())}};
}

Json Final(const v1::JobStatus& status) {
  Json result = {{"train_loss", nullptr}, {"test_loss", nullptr}, {"test_accuracy", nullptr}};
  Json precisions = {{"1", nullptr}, {"3", nullptr}, {"5", nullptr}};
  if (status.history_size() > 0) {
    const v1::HistoryEntry& last = status.history(status.history_size() - 1);
    result["train_loss"] = Number(last.train_loss());
    result["test_loss"] = Number(last.test_loss());
    result["test_accuracy"] = Number(last.test_accuracy());
    static constexpr const char* kNames[] = {"1", "3", "5"};
    for (int i = 0; i < 3 && i < last.precision_at_size(); ++i) {
      precisions[kNames[i]] = Number(last.precision_at(i));
    }
  }
  result["precision_at"] = precisions;
  return result;
}

Json TrafficOf(const v1::WorkerReport& worker) {
  return {{"pull_payload_bytes", worker.pull_payload_bytes()},
          {"push_payload_bytes", worker.push_payload_bytes()},
          {"pull_wire_bytes", worker.pull_wire_bytes()},
          {"push_wire_bytes", worker.push_wire_bytes()},
          {"other_payload_bytes", worker.other_payload_bytes()},
          {"exchanges", worker.exchanges()}};
}

Json Traffic(const v1::JobStatus& status, const std::vector<Worker>& workers) {
  v1::WorkerReport sum;
  const v1::Traffic& lost = status.unreported();
  sum.set_exchanges(lost.exchanges());
  sum.set_pull_payload_bytes(lost.pull_payload_bytes());
  sum.set_push_payload_bytes(lost.push_payload_bytes());
  sum.set_pull_wire_bytes(lost.pull_wire_bytes());
  sum.set_push_wire_bytes(lost.push_wire_bytes());
  // What went between servers is nobody's of the workers.
  sum.set_other_payload_bytes(lost.other_payload_bytes() + status.replication_payload_bytes());
  Json by_worker = Json::array();
  for (const auto& [worker, member] : workers) {
    sum.set_pull_payload_bytes(sum.pull_payload_bytes() + worker.pull_payload_bytes());
    sum.set_push_payload_bytes(sum.push_payload_bytes() + worker.push_payload_bytes());
    sum.set_pull_wire_bytes(sum.pull_wire_bytes() + worker.pull_wire_bytes());
    sum.set_push_wire_bytes(sum.push_wire_bytes() + worker.push_wire_bytes());
    sum.set_other_payload_bytes(sum.other_payload_bytes() + worker.other_payload_bytes());
    sum.set_exchanges(sum.exchanges() + worker.exchanges());
    Json entry = {{"worker", worker.rank()}, {"member", member}};
    entry.update(TrafficOf(worker));
    by_worker.push_back(std::move(entry));
  }
  Json traffic = TrafficOf(sum);
  traffic["by_worker"] = std::move(by_worker);
  return traffic;
}

Json StalenessEntry(const v1::JobStatus& status) {
  const Staleness staleness = StalenessOf(status);
  return {{"mean", staleness.pushes == 0 ? Json(nullptr) : Json(staleness.mean())},
          {"max", staleness.max},
          {"histogram", staleness.histogram}};
}

// The peak of each rank, null where nobody measured one.
Json ByRank(const std::map<uint32_t, uint64_t>& peaks) {
  Json by_rank = Json::array();
  for (const auto& [rank, peak] : peaks) {
    while (by_rank.size() < rank) by_rank.push_back(nullptr);
    by_rank.push_back(peak == 0 ? Json(nullptr) : Json(peak));
  }
  return by_rank;
}

Json Memory(const v1::JobStatus& status, const std::vector<Worker>& workers) {
  std::map<uint32_t, uint64_t> of_servers, of_workers;
  uint64_t parameter_bytes = 0;
  for (const v1::ServerStatus& server : status.servers()) {
    of_servers[server.rank()] = server.counters().peak_rss_bytes();
    parameter_bytes += server.counters().parameter_bytes();
  }
  for (const v1::MemberStatus& member : status.members()) of_workers[member.rank()] = 0;
  for (const Worker& worker : workers) {
    uint64_t& peak = of_workers[worker.report.rank()];
    peak = std::max<uint64_t>(peak, worker.report.peak_rss_bytes());
  }
  return {{"server_peak_rss_bytes", ByRank(of_servers)},
          {"worker_peak_rss_bytes", ByRank(of_workers)},
          {"parameter_bytes", parameter_bytes}};
}

Json Phases(const std::vector<Worker>& workers) {
  Json phases = Json::array();
  for (const auto& [worker, member] : workers) {
    phases.push_back({{"worker", worker.rank()},
                      {"member", member},
                      {"compute_seconds", Number(worker.compute_seconds())},
                      {"pull_seconds", Number(worker.pull_seconds())},
                      {"push_seconds", Number(worker.push_seconds())},
                      {"wait_seconds", Number(worker.wait_seconds())},
                      {"evaluate_seconds", Number(worker.evaluate_seconds())}});
  }
  return phases;
}

// Of members that had a part when the last sizes were agreed on, by rank.
Json Parts(const v1::JobStatus& status) {
  std::vector<const v1::MemberStatus*> by_rank;
  for (const v1::MemberStatus& member : status.members()) {
    if (member.part() > 0) by_rank.push_back(&member);
  }
  std::stable_sort(by_rank.begin(), by_rank.end(),
                   [](const auto* a, const auto* b) { return a->rank() < b->rank(); });
  Json parts = Json::array();
  for (const v1::MemberStatus* member : by_rank) {
    parts.push_back({{"worker", member->rank()}, {"part", Number(member->part())}});
  }
  return parts;
}

// nullptr: the job keeps none.
Json Checkpoint(const v1::JobStatus& status) {
  if (!status.has_checkpoint()) return nullptr;
  const v1::CheckpointStatus& checkpoint = status.checkpoint();
  Json json = {
      {"count", checkpoint.count()},     {"step", checkpoint.step()},
      {"bytes", checkpoint.bytes()},     {"write_seconds", Number(checkpoint.write_seconds())},
      {"failure", checkpoint.failure()}, {"rollbacks", checkpoint.rollbacks()},
      {"resumed_step", nullptr}};
  if (checkpoint.has_resumed_step()) json["resumed_step"] = checkpoint.resumed_step();
  return json;
}

// nullptr: the job keeps none.
Json Standbys(const v1::JobStatus& status) {
  if (status.owners().empty()) return nullptr;
  int in_sync = 0;
  for (const v1::ShardOwner& owner : status.owners()) in_sync += owner.in_sync();
  Json seconds = Json::array();
  for (double taken : status.takeover_seconds()) seconds.push_back(Number(taken));
  return {{"shards", status.owners_size()},
          {"in_sync", in_sync},
          {"takeovers", status.takeovers()},
          {"takeover_seconds", seconds},
          {"payload_bytes", status.replication_payload_bytes()}};
}

// nullptr: the codec holds nothing back.
Json ResidualsLost(const v1::JobStatus& status) {
  return status.has_residuals_lost() ? Json(status.residuals_lost()) : Json(nullptr);
}

// A status of before the end, of which a report is made nevertheless, may lack it.
std::string Outcome(const v1::JobStatus& status) {
  if (!status.outcome().empty()) return status.outcome();
  return status.failure().empty() ? "finished" : "failed";
}

Json Build(const v1::JobStatus& status, const std::vector<Worker>& workers) {
  Json build = {{"version", status.version()}, {"backend", ""}, {"cpu", ""}, {"gpu", ""}};
  if (!workers.empty()) {
    build["backend"] = workers.front().report.backend();
    build["cpu"] = workers.front().report.cpu();
    build["gpu"] = workers.front().report.gpu();
  }
  return build;
}

}  // namespace

std::string ReportJson(const v1::JobStatus& status) {
  const std::vector<Worker> workers = WorkersOf(status);
  const uint64_t examples = status.examples();
  uint64_t parameters_hash = 0, rounds = status.round();
  for (const v1::ServerStatus& server : status.servers()) {
    parameters_hash += server.counters().parameters_hash();
  }
  Json history = Json::array();
  for (const v1::HistoryEntry& entry : status.history()) {
    history.push_back(Entry(entry));
    // Elsewhere it is the number of an exchange, and servers may have passed over some.
    if (status.free_running()) rounds = std::max<uint64_t>(rounds, entry.round());
  }
  const Json report = {
      {"job", status.job()},
      {"method", status.method()},
      {"seed", status.seed()},
      {"wall_seconds", Number(status.wall_seconds())},
      {"train_seconds", Number(status.train_seconds())},
      {"steps", status.step()},
      {"rounds", rounds},
      {"examples", examples},
      {"examples_per_second", Number(examples / status.train_seconds())},
      {"final", Final(status)},
      {"history", history},
      {"traffic", Traffic(status, workers)},
      {"staleness", StalenessEntry(status)},
      {"memory", Memory(status, workers)},
      {"phases", Phases(workers)},
      {"members",
       {{"joined", status.members_joined()},
        {"lost", status.members_lost()},
        {"partial_pushes", status.partial_pushes()}}},
      {"build", Build(status, workers)},
      {"outcome", Outcome(status)},
      {"failure", status.failure()},
      {"stop_reason", status.stop_reason()},
      {"planned_steps", status.steps_planned() > 0 ? Json(status.steps_planned()) : Json(nullptr)},
      {"refused_pushes", status.refused_pushes()},
      {"residuals_lost", ResidualsLost(status)},
      {"method_description", status.method_description()},
      {"parameter_examples", status.parameter_examples()},
      {"layout_hash", absl::StrFormat("%016x", status.layout_hash())},
      {"parameters_hash", absl::StrFormat("%016x", parameters_hash)},
      {"generation", status.generation()},
      {"parts", Parts(status)},
      {"checkpoint", Checkpoint(status)},
      {"standbys", Standbys(status)},
  };
  // Names in a job file may be any bytes; a report is UTF-8.
  return report.dump(2, ' ', false, Json::error_handler_t::replace);
}

}  // namespace tessera
