// A job's status as metrics: what an operator plots, or wants to be woken for.
//
// Everything is the status's, and nothing is counted here. What the status does not have there is no metric
// for, rather than one that is 0: a server other than the coordinator's has only its own share.
//
// Workers are told apart by rank, never by member, description or host: a worker that dies and joins again
// goes on with its series, so that there are only so many. docs/operating/reference/metrics.md has the table of all of
// them.
#ifndef TESSERA_SERVER_MONITOR_STATUS_METRICS_H_
#define TESSERA_SERVER_MONITOR_STATUS_METRICS_H_

#include <vector>

#include <prometheus/metric_family.h>

#include "absl/strings/string_view.h"
#include "proto/status.pb.h"

namespace tessera {

// A family for each name, with one value or more. All have the label job_name, which only the coordinator's status
// has, unless `job_name` is empty.
std::vector<prometheus::MetricFamily> MetricsOf(const v1::JobStatus& status,
                                                absl::string_view job_name);

}  // namespace tessera

#endif  // TESSERA_SERVER_MONITOR_STATUS_METRICS_H_
