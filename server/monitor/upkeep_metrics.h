// What keeps a job going when something dies: checkpoints, standbys, the coordinator.
#ifndef TESSERA_SERVER_MONITOR_UPKEEP_METRICS_H_
#define TESSERA_SERVER_MONITOR_UPKEEP_METRICS_H_

#include "proto/status.pb.h"
#include "server/monitor/metric_set.h"

namespace tessera {

// Adds this part of MetricsOf (status_metrics.h).
void AddUpkeepMetrics(const v1::JobStatus& status, MetricSet* set);

}  // namespace tessera

#endif  // TESSERA_SERVER_MONITOR_UPKEEP_METRICS_H_
