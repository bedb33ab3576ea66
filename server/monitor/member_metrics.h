// The metrics of the job's workers, by rank.
#ifndef TESSERA_SERVER_MONITOR_MEMBER_METRICS_H_
#define TESSERA_SERVER_MONITOR_MEMBER_METRICS_H_

#include "proto/status.pb.h"
#include "server/monitor/metric_set.h"

namespace tessera {

// Adds this part of MetricsOf (status_metrics.h).
void AddMemberMetrics(const v1::JobStatus& status, MetricSet* set);

}  // namespace tessera

#endif  // TESSERA_SERVER_MONITOR_MEMBER_METRICS_H_
