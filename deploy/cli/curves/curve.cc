#include "deploy/cli/curves/curve.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <limits>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "server/control/traffic_sum.h"

namespace tessera {
namespace {

constexpr double kNone = std::numeric_limits<double>::quiet_NaN();

// The shortest text that reads back as the same double; "" for what is not a number.
std::string Text(double value) {
  if (!std::isfinite(value)) return "";
  for (int digits = 6; digits < 17; ++digits) {
    const std::string text = absl::StrFormat("%.*g", digits, value);
    if (std::strtod(text.c_str(), nullptr) == value) return text;
  }
  return absl::StrFormat("%.17g", value);
}

}  // namespace

Curve CurveOf(const v1::JobStatus& status) {
  Curve curve;
  curve.job = status.job();
  curve.method = status.method();
  const v1::Traffic traffic = TrafficOf(status);
  const double bytes = static_cast<double>(traffic.pull_payload_bytes()) +
                       static_cast<double>(traffic.push_payload_bytes());
  uint64_t steps = status.step();
  for (const v1::HistoryEntry& entry : status.history()) steps = std::max(steps, entry.step());
  double seconds_before = 0, examples_before = 0;
  for (const v1::HistoryEntry& entry : status.history()) {
    const double share =
        steps == 0 ? 0 : static_cast<double>(entry.step()) / static_cast<double>(steps);
    CurvePoint point;
    point.seconds = entry.seconds();
    point.step = entry.step();
    point.epoch = entry.epoch();
    point.examples = share * static_cast<double>(status.examples());
    point.bytes = share * bytes;
    const double seconds = point.seconds - seconds_before;
    point.rate = seconds > 0 ? (point.examples - examples_before) / seconds : kNone;
    point.train_loss = entry.train_loss();
    point.test_loss = entry.test_loss();
    point.test_accuracy = entry.test_accuracy();
    point.perplexity = entry.has_perplexity() ? entry.perplexity() : kNone;
    seconds_before = point.seconds;
    examples_before = point.examples;
    curve.points.push_back(point);
  }
  return curve;
}

std::string CurveCsv(const Curve& curve) {
  std::string text =
      "seconds,step,epoch,examples,bytes,examples_per_second,train_loss,test_loss,test_accuracy,"
      "perplexity\n";
  for (const CurvePoint& point : curve.points) {
    const std::string fields[] = {Text(point.seconds),
                                  absl::StrCat(point.step),
                                  Text(point.epoch),
                                  Text(std::round(point.examples)),
                                  Text(std::round(point.bytes)),
                                  Text(point.rate),
                                  Text(point.train_loss),
                                  Text(point.test_loss),
                                  Text(point.test_accuracy),
                                  Text(point.perplexity)};
    absl::StrAppend(&text, absl::StrJoin(fields, ","), "\n");
  }
  return text;
}

}  // namespace tessera
