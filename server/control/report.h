// The report of a job: one JSON object that other programs rely on.
//
//   job, method, seed, wall_seconds, train_seconds, steps, rounds, examples, examples_per_second,
//   final {train_loss, test_loss, test_accuracy, precision_at {"1", "3", "5"}},
//     precision_at: hits among the first k predictions over k x rows, so that it is 1/k at most where rows have one
//     label each
//   history [{seconds, step, epoch, round, train_loss, test_loss, test_accuracy}],
//   traffic {pull_payload_bytes, push_payload_bytes, pull_wire_bytes, push_wire_bytes,
//            other_payload_bytes, shared_memory_bytes, exchanges, by_worker [{worker, the same of one process}]},
//   staleness {mean, max, histogram},
//   memory {server_peak_rss_bytes [...], worker_peak_rss_bytes [...], parameter_bytes},
//     each by rank, the most that any process of the rank had,
//   phases [{worker, compute_seconds, pull_seconds, push_seconds, wait_seconds, evaluate_seconds}],
//   members {joined, lost, partial_pushes}, build {version, backend, cpu, gpu}
// and, beyond that contract:
//   final.top_k_accuracy {"1", "3", "5", "10"}, and in each entry of history: of rows with one label each, the share
//     whose label is among the first k predictions; null where rows have sets of labels, and at 10 where the model
//     has no more outputs,
//   final.perplexity, and in each entry of history: exp(test_loss) of a model of tokens, null elsewhere,
//   job_file, job_digest, overrides [...], started, host, command, versions {server, workers [...], libraries by
//     name}: how the job came to run, of the process that had the coordinator at the end, but `started`, which is of
//     the first,
//   outcome ("finished", "stopped" or "failed"), failure, stop_reason, method_description, layout_hash,
//   parameters_hash, parts,
//   the numbers of status_fields.h that have a key, as planned_steps,
//   member, beside worker in by_worker and phases: which process of that rank, by the number that the status has
//   of it,
//   events [{number, seconds, kind, who, words}]: what has happened, as far as it is kept, and
//   checkpoint {count, step, bytes, write_seconds, failure, rollbacks, resumed_step}: the last one of this
//   run, or null where the job keeps none.
//
// A number that is not finite, or that nobody measured, is null.
#ifndef TESSERA_SERVER_CONTROL_REPORT_H_
#define TESSERA_SERVER_CONTROL_REPORT_H_

#include <deque>
#include <string>

#include "proto/status.pb.h"

namespace tessera {

// Everything in the report but its events is in the status of the ended job. The work of members that were lost counts
// as far as they told. Without `events` the report has the last few, which are in the status.
std::string ReportJson(const v1::JobStatus& status, const std::deque<v1::JobEvent>& events = {});

}  // namespace tessera

#endif  // TESSERA_SERVER_CONTROL_REPORT_H_
