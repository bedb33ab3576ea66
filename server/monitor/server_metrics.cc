#include "server/monitor/server_metrics.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace tessera {
namespace {

// Adds what one server counts.
void AddCounters(const std::string& server, const v1::ServerCounters& counters, MetricSet* set) {
  const auto gauge = [&](absl::string_view name, absl::string_view help, double value) {
    set->Gauge(name, help, value, {{"server", server}});
  };
  const auto counter = [&](absl::string_view name, absl::string_view help, double value) {
    set->Counter(name, help, value, {{"server", server}});
  };
  // One metric with a direction as its label, so that sums over directions are easy to write.
  const auto bytes = [&](absl::string_view direction, double value) {
    set->Counter("tessera_server_payload_bytes_total",
                 "Bytes of values that were pulled from the server, pushed to it, and sent by it "
                 "to other servers (replication).",
                 value, {{"server", server}, {"direction", direction}});
  };
  gauge("tessera_server_version", "Updates committed.", counters.version());
  // Where members advance on their own there is no exchange that all have been in.
  if (counters.exchange_committed() > 0) {
    gauge("tessera_server_exchange", "The last exchange that is committed.",
          counters.exchange_committed());
  }
  counter("tessera_server_pushes_total",
          "Pushes that were applied. Falls when the job goes back to a checkpoint.",
          counters.pushes());
  counter("tessera_server_duplicate_pushes_total",
          "Pushes that were sent again and not applied again.", counters.duplicates());
  counter("tessera_server_refused_pushes_total",
          "Pushes that were refused: not finite, not fitting, or from a worker that was no member "
          "any more.",
          counters.refused());
  counter("tessera_server_not_finite_pushes_total",
          "Of the refused ones, those with a value that is not finite.",
          counters.refused_non_finite());
  counter("tessera_server_examples_total",
          "Rows that the committed updates were computed from. Falls when the job goes back to a "
          "checkpoint.",
          counters.examples());
  bytes("pull", counters.pull_payload_bytes());
  bytes("push", counters.push_payload_bytes());
  bytes("replication", counters.replication_payload_bytes());
  gauge("tessera_server_parked_pulls", "Pulls that wait for an update.", counters.parked_pulls());
  gauge("tessera_server_staged_bytes", "Pushes that wait to be applied.", counters.staged_bytes());
  gauge("tessera_server_parameter_bytes", "Parameters that the server owns.",
        counters.parameter_bytes());
  // 0: it has told nothing yet.
  if (counters.rss_bytes() > 0) {
    gauge("tessera_server_resident_memory_bytes", "Memory of the process.", counters.rss_bytes());
    gauge("tessera_server_peak_resident_memory_bytes", "The most that it ever was.",
          counters.peak_rss_bytes());
  }
  // Bucket i counts pushes that were i versions late.
  const std::vector<uint64_t> staleness(counters.staleness_histogram().begin(),
                                        counters.staleness_histogram().end());
  set->Histogram(
      "tessera_server_staleness_versions",
      "How many versions late pushes were applied. Falls when the job goes back to a checkpoint.",
      staleness, counters.staleness_sum(), {{"server", server}});
  gauge("tessera_server_staleness_max_versions", "The latest of them.", counters.staleness_max());
}

}  // namespace

void AddServerMetrics(const v1::JobStatus& status, MetricSet* set) {
  const bool is_job = !status.job().empty();
  for (const v1::ServerStatus& server : status.servers()) {
    const std::string rank = absl::StrCat(server.rank());
    const bool is_known = !server.address().empty();
    // Servers that are not the coordinator know themselves alone.
    if (is_job) {
      set->Gauge("tessera_server_registered",
                 "1: the coordinator knows the server. 0: it has not come yet, or is lost.",
                 is_known ? 1 : 0, {{"server", rank}});
    }
    // What it counts is not known either.
    if (!is_known) continue;
    if (is_job) {
      set->Gauge("tessera_server_counters_age_seconds",
                 "Seconds since the server last told the coordinator what follows.",
                 server.counters_age_seconds(), {{"server", rank}});
    }
    AddCounters(rank, server.counters(), set);
  }
}

}  // namespace tessera
