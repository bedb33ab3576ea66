// Metrics in the making, as Prometheus' text format wants them: all values of one name together, under one
// type and one line of help.
#ifndef TESSERA_SERVER_MONITOR_METRIC_SET_H_
#define TESSERA_SERVER_MONITOR_METRIC_SET_H_

#include <cstdint>
#include <initializer_list>
#include <string>
#include <vector>

#include <prometheus/metric_family.h>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace tessera {

struct MetricLabel {
  absl::string_view name;
  // The value may have any bytes: what is not UTF-8, and a zero, is written as \xe9.
  absl::string_view value;
};

// Names begin with tessera_ and are told with their unit; those of counters end with _total. A name has one
// type and help for good, and one value for the same labels; the caller sees to both.
//
// One thread.
class MetricSet {
 public:
  using Labels = std::initializer_list<MetricLabel>;

  // Every value gets the label job_name, its first, unless that is empty.
  explicit MetricSet(absl::string_view job_name = "") : job_name_(job_name) {}

  // A value that goes up and down.
  void Gauge(absl::string_view name, absl::string_view help, double value, Labels labels = {});
  // A value that only grows. One that is no number, infinite or negative counts as 0.
  void Counter(absl::string_view name, absl::string_view help, double value, Labels labels = {});
  // A gauge for each of `choices`, told apart by the label `label`: 1 for the one that is `present`, 0 for the
  // others; 0 for all where it is none of them.
  void OneHot(absl::string_view name, absl::string_view help, absl::string_view label,
              absl::Span<const absl::string_view> choices, absl::string_view present);
  // A histogram of whole numbers: entry i of `counts` is how many were i; the last one counts all above, too.
  void Histogram(absl::string_view name, absl::string_view help, absl::Span<const uint64_t> counts,
                 uint64_t sum, Labels labels = {});

  // All families, in the order of their first values. The set is empty afterwards.
  std::vector<prometheus::MetricFamily> Take();

 private:
  prometheus::ClientMetric* Add(prometheus::MetricType type, absl::string_view name,
                                absl::string_view help, Labels labels);

  const std::string job_name_;
  std::vector<prometheus::MetricFamily> families_;
  absl::flat_hash_map<std::string, size_t> places_;  // in families_
};

}  // namespace tessera

#endif  // TESSERA_SERVER_MONITOR_METRIC_SET_H_
