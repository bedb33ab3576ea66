// The job as a whole: its state, how far it is, what it has learned, what has been moved for it.
#ifndef TESSERA_SERVER_MONITOR_JOB_METRICS_H_
#define TESSERA_SERVER_MONITOR_JOB_METRICS_H_

#include "proto/status.pb.h"
#include "server/monitor/metric_set.h"

namespace tessera {

// Adds this part of MetricsOf (status_metrics.h).
void AddJobMetrics(const v1::JobStatus& status, MetricSet* set);

}  // namespace tessera

#endif  // TESSERA_SERVER_MONITOR_JOB_METRICS_H_
