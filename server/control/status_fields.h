// The numbers of a job's status that the report and the metrics show as they are: a line of one table for each, from
// which both are made (report.h, server/monitor/job_metrics.h).
#ifndef TESSERA_SERVER_CONTROL_STATUS_FIELDS_H_
#define TESSERA_SERVER_CONTROL_STATUS_FIELDS_H_

#include <cstdint>
#include <optional>
#include <variant>

#include "absl/types/span.h"
#include "proto/status.pb.h"

namespace tessera {

struct StatusField {
  using Value = std::variant<uint64_t, double>;
  // Where the report has it.
  enum class Section {
    kNone,
    kHeadline,  // in front of what has parts
    kMembers,   // in "members"
    kRest,      // behind it
  };
  enum class Metric {
    kNone,
    kGauge,    // goes up and down
    kCounter,  // only grows, but where the job goes back to a checkpoint
  };

  Section section;
  const char* key;  // in the report; nullptr: kNone
  Metric metric;
  const char* name;  // of the metric, and its line of help; nullptr: kNone
  const char* help;
  // nullopt: it is not known, or the job has no such number. The report says null, and there is no metric.
  std::optional<Value> (*value)(const v1::JobStatus& status);
};

absl::Span<const StatusField> StatusFields();

}  // namespace tessera

#endif  // TESSERA_SERVER_CONTROL_STATUS_FIELDS_H_
