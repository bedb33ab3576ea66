#include "deploy/cli/curves/history_command.h"

#include <cmath>
#include <cstdio>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "deploy/cli/curves/curve.h"
#include "deploy/cli/curves/event_file.h"
#include "deploy/cli/curves/history_source.h"
#include "common/base/printable.h"
#include "deploy/cli/failed_call.h"
#include "deploy/cli/progress.h"
#include "nlohmann/json.hpp"

namespace tessera {
namespace {

using Json = nlohmann::ordered_json;

int Refuse(const absl::Status& status) {
  std::fprintf(stderr, "tessera history: %s\n", ToPrintable(status.message()).c_str());
  return absl::IsUnavailable(status) ? 1 : 2;
}

Json Number(double value) { return std::isfinite(value) ? Json(value) : Json(nullptr); }

std::string CurveJson(const Curve& curve) {
  Json history = Json::array();
  for (const CurvePoint& point : curve.points) {
    history.push_back({{"seconds", Number(point.seconds)},
                       {"step", point.step},
                       {"epoch", Number(point.epoch)},
                       {"examples", Number(std::round(point.examples))},
                       {"bytes", Number(std::round(point.bytes))},
                       {"examples_per_second", Number(point.rate)},
                       {"train_loss", Number(point.train_loss)},
                       {"test_loss", Number(point.test_loss)},
                       {"test_accuracy", Number(point.test_accuracy)},
                       {"perplexity", Number(point.perplexity)}});
  }
  const Json job = {{"job", curve.job}, {"method", curve.method}, {"history", history}};
  return job.dump(2, ' ', false, Json::error_handler_t::replace);
}

std::string Table(const v1::JobStatus& status) {
  std::string text = absl::StrCat(Progress::HistoryHeads(), "\n");
  for (const v1::HistoryEntry& entry : status.history()) {
    absl::StrAppend(&text, Progress::HistoryLine(entry), "\n");
  }
  return text;
}

}  // namespace

int ShowHistory(const HistoryOptions& options) {
  const bool is_asked = IsAsked(options.source);
  if (is_asked) {
    if (const absl::Status status = UseSecurity(options.security); !status.ok()) {
      return Refuse(status);
    }
  }
  const absl::StatusOr<v1::JobStatus> status =
      is_asked ? AskForStatus(options.source) : ReadReport(options.source);
  if (!status.ok() && is_asked) {
    return TellFailedCall(absl::StrCat("no history from ", options.source), status.status());
  }
  if (!status.ok()) return Refuse(status.status());
  if (!options.tensorboard.empty()) {
    EventWriter events(options.tensorboard);
    absl::Status written = events.Open();
    if (written.ok()) written = events.Write(*status);
    if (!written.ok()) return Refuse(written);
  }
  const Curve curve = CurveOf(*status);
  const bool is_shown = options.csv || options.json || options.tensorboard.empty();
  const std::string text = !is_shown      ? ""
                           : options.csv  ? CurveCsv(curve)
                           : options.json ? absl::StrCat(CurveJson(curve), "\n")
                                          : Table(*status);
  std::fputs(text.c_str(), stdout);
  return 0;
}

}  // namespace tessera
