#include "deploy/cli/report_status.h"

#include <cmath>
#include <fstream>
#include <iterator>
#include <limits>
#include <utility>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "nlohmann/json.hpp"

namespace tessera {
namespace {

using Json = nlohmann::json;

const Json& At(const Json& object, const char* key) {
  static const Json none;
  const auto found = object.is_object() ? object.find(key) : object.end();
  return found == object.end() ? none : *found;
}

// A text of the report; "" where it is missing or of another kind.
std::string Text(const Json& object, const char* key) {
  const Json& value = At(object, key);
  return value.is_string() ? value.get<std::string>() : "";
}

// A number of the report; what was no number was written as null.
double Number(const Json& object, const char* key) {
  const Json& value = At(object, key);
  return value.is_number() ? value.get<double>() : std::numeric_limits<double>::quiet_NaN();
}

// A count of the report; 0 where it is missing or of another kind.
uint64_t Count(const Json& object, const char* key) {
  const Json& value = At(object, key);
  return value.is_number_unsigned() ? value.get<uint64_t>() : 0;
}

// Reads the histogram of a report as the counters of one server. A report is a file that anybody may have written:
// what is no number counts as 0.
void FillStaleness(const Json& staleness, v1::JobStatus* status) {
  v1::ServerCounters& counters = *status->add_servers()->mutable_counters();
  uint64_t pushes = 0;
  for (const Json& entry : At(staleness, "histogram")) {
    const uint64_t count = entry.is_number_unsigned() ? entry.get<uint64_t>() : 0;
    counters.add_staleness_histogram(count);
    pushes += count;
  }
  const double mean = Number(staleness, "mean");
  if (std::isfinite(mean)) {
    counters.set_staleness_sum(static_cast<uint64_t>(std::llround(mean * pushes)));
  }
  counters.set_staleness_max(Count(staleness, "max"));
}

}  // namespace

absl::StatusOr<v1::JobStatus> StatusOfReport(const std::string& report) {
  const Json json = Json::parse(report, nullptr, /*allow_exceptions=*/false);
  if (Text(json, "outcome").empty()) return absl::InvalidArgumentError("it is no report");
  v1::JobStatus status;
  status.set_state("done");
  status.set_job(Text(json, "job"));
  status.set_method(Text(json, "method"));
  status.set_method_description(Text(json, "method_description"));
  status.set_failure(Text(json, "failure"));
  status.set_outcome(Text(json, "outcome"));
  status.set_stop_reason(Text(json, "stop_reason"));
  status.set_train_seconds(Number(json, "train_seconds"));
  status.set_wall_seconds(Number(json, "wall_seconds"));
  status.set_step(Count(json, "steps"));
  status.set_steps_planned(Count(json, "planned_steps"));
  status.set_generation(Count(json, "generation"));
  if (absl::Time started;
      absl::ParseTime(absl::RFC3339_full, Text(json, "started"), &started, nullptr)) {
    status.mutable_origin()->set_started_ns(absl::ToUnixNanos(started));
  }
  for (const Json& entry : At(json, "history")) {
    v1::HistoryEntry& evaluation = *status.add_history();
    evaluation.set_seconds(Number(entry, "seconds"));
    evaluation.set_step(Count(entry, "step"));
    evaluation.set_epoch(Number(entry, "epoch"));
    evaluation.set_train_loss(Number(entry, "train_loss"));
    evaluation.set_test_loss(Number(entry, "test_loss"));
    evaluation.set_test_accuracy(Number(entry, "test_accuracy"));
    const Json& perplexity = At(entry, "perplexity");
    if (perplexity.is_number()) evaluation.set_perplexity(perplexity.get<double>());
    for (const char* const depth : {"1", "3", "5", "10"}) {
      const Json& share = At(At(entry, "top_k_accuracy"), depth);
      if (share.is_number()) evaluation.add_top_k_accuracy(share.get<double>());
    }
  }
  v1::WorkerReport& workers = *status.add_worker_reports();
  status.set_examples(Count(json, "examples"));
  const Json& traffic = At(json, "traffic");
  workers.set_pull_payload_bytes(Count(traffic, "pull_payload_bytes"));
  workers.set_push_payload_bytes(Count(traffic, "push_payload_bytes"));
  FillStaleness(At(json, "staleness"), &status);
  status.set_members_lost(Count(At(json, "members"), "lost"));
  if (const Json& checkpoint = At(json, "checkpoint"); checkpoint.is_object()) {
    v1::CheckpointStatus& last = *status.mutable_checkpoint();
    last.set_count(Count(checkpoint, "count"));
    last.set_step(Count(checkpoint, "step"));
    last.set_bytes(Count(checkpoint, "bytes"));
    last.set_failure(Text(checkpoint, "failure"));
  }
  status.set_report_json(report);
  return status;
}

bool HasReport(const std::optional<v1::JobStatus>& status) {
  return status.has_value() && !status->report_json().empty();
}

std::optional<v1::JobStatus> WithReport(std::optional<v1::JobStatus> latest,
                                        const std::string& path) {
  if (HasReport(latest)) return latest;
  std::ifstream file(path);
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  absl::StatusOr<v1::JobStatus> told =
      StatusOfReport(text.substr(0, text.find_last_not_of('\n') + 1));
  if (!told.ok()) return latest;
  // What a report has not.
  told->set_free_running(latest.has_value() && latest->free_running());
  return *std::move(told);
}

}  // namespace tessera
