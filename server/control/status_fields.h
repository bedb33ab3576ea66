// The numbers of a job's status that the report, the metrics and `tessera status` show as they are: a line of one table
// for each, from which all three are made (report.h, server/monitor/job_metrics.h, deploy/cli/status_view.h).
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
  // What `tessera status` says of it while it is not 0. Numbers that mean little by themselves have no words here:
  // the view says them in a sentence with others.
  struct Words {
    enum class Place {
      kNone,
      kPauses,  // in the line of what waits: "2 pulls wait"
      kLine,    // in a line of its own: "refused pushes 2"
    };
    Place place = Place::kNone;
    const char* one = nullptr;
    const char* several = nullptr;
  };
  Words words = {};
};

absl::Span<const StatusField> StatusFields();

}  // namespace tessera

#endif  // TESSERA_SERVER_CONTROL_STATUS_FIELDS_H_
