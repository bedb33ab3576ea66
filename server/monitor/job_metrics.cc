#include "server/monitor/job_metrics.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <optional>
#include <variant>

#include "absl/strings/string_view.h"
#include "server/control/status_fields.h"
#include "server/control/traffic_sum.h"

namespace tessera {
namespace {

constexpr absl::string_view kJobStates[] = {"waiting", "training", "evaluating", "draining",
                                            "done"};

void AddFields(const v1::JobStatus& status, MetricSet* set) {
  // The table of status fields says which of them are metrics, so that status, page and metrics have the same ones.
  for (const StatusField& field : StatusFields()) {
    const std::optional<StatusField::Value> value = field.value(status);
    if (!value || field.metric == StatusField::Metric::kNone) continue;
    const double number = std::visit([](auto known) { return static_cast<double>(known); }, *value);
    if (field.metric == StatusField::Metric::kGauge) {
      set->Gauge(field.name, field.help, number);
    } else {
      set->Counter(field.name, field.help, number);
    }
  }
}

// The sum is the report's: of workers that have told their share, and of what the others told last.
void AddTraffic(const v1::JobStatus& status, MetricSet* set) {
  const v1::Traffic sum = TrafficOf(status);
  constexpr absl::string_view kExchanges = "Pushes with the pull after each, of all workers.";
  constexpr absl::string_view kPayload =
      "Bytes of values that were moved: pulled, pushed, read beside that by workers (other), and "
      "sent by servers to servers (replication).";
  constexpr absl::string_view kWire = "Bytes pulled and pushed, with framing.";
  set->Counter("tessera_job_exchanges_total", kExchanges, sum.exchanges());
  // Labels instead of names, so that a dashboard can add directions up.
  const auto payload = [&](absl::string_view direction, uint64_t bytes) {
    set->Counter("tessera_job_payload_bytes_total", kPayload, bytes, {{"direction", direction}});
  };
  payload("pull", sum.pull_payload_bytes());
  payload("push", sum.push_payload_bytes());
  payload("other", sum.other_payload_bytes());
  payload("replication", status.replication_payload_bytes());
  set->Counter("tessera_job_shared_memory_bytes_total",
               "Bytes of values, of those that were moved, that workers exchanged with servers on "
               "their machine, which share memory with them: they crossed no link.",
               sum.shared_memory_bytes());
  set->Counter("tessera_job_wire_bytes_total", kWire, sum.pull_wire_bytes(),
               {{"direction", "pull"}});
  set->Counter("tessera_job_wire_bytes_total", kWire, sum.push_wire_bytes(),
               {{"direction", "push"}});
}

// Adds the newest evaluation; before the first one there is nothing to tell.
void AddEvaluation(const v1::JobStatus& status, MetricSet* set) {
  set->Counter("tessera_evaluations_total",
               "Evaluations so far. Falls when the job goes back to a checkpoint.",
               status.history_size());
  if (status.history().empty()) return;
  const v1::HistoryEntry& last = *status.history().rbegin();
  set->Gauge("tessera_evaluation_step", "The step of the newest evaluation.", last.step());
  set->Gauge("tessera_evaluation_train_loss",
             "Mean loss of the minibatches before the newest evaluation.", last.train_loss());
  set->Gauge("tessera_evaluation_test_loss", "Loss on the test rows in the newest evaluation.",
             last.test_loss());
  if (last.has_perplexity()) {
    set->Gauge("tessera_evaluation_test_perplexity",
               "Perplexity on the test rows in the newest evaluation, where rows are sequences of "
               "tokens.",
               last.perplexity());
  }
  // Regressions have no accuracy.
  if (!std::isnan(last.test_accuracy())) {
    set->Gauge("tessera_evaluation_test_accuracy_ratio",
               "Share of the test rows that were right in the newest evaluation, 0 to 1. Absent "
               "where the model's output is a number.",
               last.test_accuracy());
  }
  static constexpr absl::string_view kFirst[] = {"1", "3", "5", "10"};
  // Another build may tell of more depths than there are names for.
  const int count = std::min<int>(last.precision_at_size(), std::size(kFirst));
  for (int i = 0; i < count; ++i) {
    set->Gauge("tessera_evaluation_precision_ratio",
               "Share of hits among the first k predictions in the newest evaluation, 0 to 1; with "
               "one label a row at most 1/k.",
               last.precision_at(i), {{"k", kFirst[i]}});
  }
  for (int i = 0; i < std::min<int>(last.top_k_accuracy_size(), std::size(kFirst)); ++i) {
    set->Gauge("tessera_evaluation_top_k_accuracy_ratio",
               "Share of the test rows whose label is among the first k predictions in the newest "
               "evaluation, 0 to 1, where rows have one.",
               last.top_k_accuracy(i), {{"k", kFirst[i]}});
  }
}

}  // namespace

void AddJobMetrics(const v1::JobStatus& status, MetricSet* set) {
  set->Gauge("tessera_build_info",
             "Always 1. Of the answering server: its version, and its connections in words.", 1,
             {{"version", status.version()}, {"security", status.security()}});
  if (!status.state().empty()) {
    set->OneHot("tessera_job_state", "1 for the state that the job is in, as this server sees it.",
                "state", kJobStates, status.state());
    set->Gauge("tessera_job_waiting_for",
               "How many names the status has of those whom the job waits for.",
               status.waiting_for_size());
  }
  // Only the coordinator's status has the rest.
  if (status.job().empty()) return;
  set->Gauge("tessera_job_info", "Always 1: which job this is.", 1,
             {{"method", status.method()}, {"digest", status.job_digest()}});
  const bool is_stopped = status.outcome() == "stopped";
  set->Gauge("tessera_job_failed", "1: the job has failed, and its log and status say why.",
             status.failure().empty() || is_stopped ? 0 : 1);
  set->Gauge("tessera_job_stopped", "1: somebody had the job end before it had made its steps.",
             is_stopped ? 1 : 0);
  AddFields(status, set);
  AddTraffic(status, set);
  AddEvaluation(status, set);
}

}  // namespace tessera
