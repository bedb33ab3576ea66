#include "server/monitor/metric_set.h"

#include <cmath>
#include <limits>
#include <utility>

#include "absl/strings/str_replace.h"
#include "common/base/check.h"
#include "common/base/utf8.h"

namespace tessera {
namespace {

using prometheus::MetricType;

// The bounds of histograms: dense where most pushes are. Every bucket is a series of each server.
constexpr uint64_t kBounds[] = {0, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 63};

// A label's value in UTF-8, and without zeros, which Prometheus' parser takes for the end.
std::string LabelValue(absl::string_view value) {
  return absl::StrReplaceAll(ToUtf8(value), {{absl::string_view("\0", 1), "\\x00"}});
}

}  // namespace

prometheus::ClientMetric* MetricSet::Add(MetricType type, absl::string_view name,
                                         absl::string_view help, Labels labels) {
  const auto [place, is_new] = places_.emplace(name, families_.size());
  if (is_new) {
    families_.push_back({std::string(name), std::string(help), type, {}});
  }
  // One name has one type, or Prometheus would refuse the page.
  prometheus::MetricFamily& family = families_[place->second];
  TESSERA_CHECK(family.type == type);
  prometheus::ClientMetric& metric = family.metric.emplace_back();
  // The label is not called `job`, which is what Prometheus calls its own list of targets.
  if (!job_name_.empty()) metric.label.push_back({"job_name", LabelValue(job_name_)});
  for (const MetricLabel& label : labels) {
    metric.label.push_back({std::string(label.name), LabelValue(label.value)});
  }
  return &metric;
}

void MetricSet::Gauge(absl::string_view name, absl::string_view help, double value, Labels labels) {
  Add(MetricType::Gauge, name, help, labels)->gauge.value = value;
}

void MetricSet::Counter(absl::string_view name, absl::string_view help, double value,
                        Labels labels) {
  // A counter may be what a worker says of itself, which may be any number.
  Add(MetricType::Counter, name, help, labels)->counter.value =
      std::isfinite(value) && value > 0 ? value : 0;
}

void MetricSet::OneHot(absl::string_view name, absl::string_view help, absl::string_view label,
                       absl::Span<const absl::string_view> choices, absl::string_view present) {
  // Every choice is there, with 0 or 1: a series that vanishes would look stale, not over.
  for (const absl::string_view choice : choices) {
    Gauge(name, help, choice == present ? 1 : 0, {{label, choice}});
  }
}

void MetricSet::Histogram(absl::string_view name, absl::string_view help,
                          absl::Span<const uint64_t> counts, uint64_t sum, Labels labels) {
  auto& histogram = Add(MetricType::Histogram, name, help, labels)->histogram;
  uint64_t count = 0;
  size_t next = 0;
  for (const uint64_t bound : kBounds) {
    // Buckets of Prometheus are cumulative.
    for (; next < counts.size() && next <= bound; ++next) count += counts[next];
    histogram.bucket.push_back({count, static_cast<double>(bound)});
  }
  for (; next < counts.size(); ++next) count += counts[next];
  histogram.bucket.push_back({count, std::numeric_limits<double>::infinity()});
  histogram.sample_count = count;
  histogram.sample_sum = static_cast<double>(sum);
}

std::vector<prometheus::MetricFamily> MetricSet::Take() {
  places_.clear();
  return std::exchange(families_, {});
}

}  // namespace tessera
