#include "server/monitor/status_metrics.h"

#include "server/monitor/job_metrics.h"
#include "server/monitor/member_metrics.h"
#include "server/monitor/metric_set.h"
#include "server/monitor/server_metrics.h"
#include "server/monitor/upkeep_metrics.h"

namespace tessera {

std::vector<prometheus::MetricFamily> MetricsOf(const v1::JobStatus& status,
                                                absl::string_view job_name) {
  MetricSet set(job_name);
  AddJobMetrics(status, &set);
  AddMemberMetrics(status, &set);
  AddServerMetrics(status, &set);
  AddUpkeepMetrics(status, &set);
  return set.Take();
}

}  // namespace tessera
