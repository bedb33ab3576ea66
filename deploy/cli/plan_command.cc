#include "deploy/cli/plan_command.h"

#include <algorithm>
#include <cinttypes>
#include <cmath>
#include <cstdio>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/check.h"
#include "common/base/log.h"
#include "common/config/job_reader.h"
#include "common/config/quantity.h"
#include "deploy/cli/counted.h"
#include "deploy/cli/flag_reader.h"
#include "deploy/cli/plan.h"
#include "deploy/cli/wrap.h"
#include "deploy/simulate/step_share.h"
#include "deploy/simulate/step_time.h"
#include "nlohmann/json.hpp"
#include "worker/data/dataset.h"
#include "worker/replica/batch_rows.h"

namespace tessera {
namespace {

using Json = nlohmann::ordered_json;
using Certainty = TrafficForecast::Certainty;

constexpr int kNodesMax = 20000;
constexpr int kServersMax = 256;
constexpr int kLocalStepsMax = 1000000;
constexpr int kWidth = 79;

// "1.23ms": three digits are more than a prediction is worth.
std::string Time(double seconds) {
  if (!(seconds > 0)) return "0";
  const double digit = std::pow(10, std::floor(std::log10(seconds)) - 2);
  return FormatDuration(static_cast<int64_t>(std::llround(std::round(seconds / digit) * digit * 1e9)));
}

std::string BitsPerSecond(double bytes) {
  if (bytes == 0) return "no limit";
  double bits = 8 * bytes;
  const char* unit = "bit";
  for (const char* const larger : {"kbit", "Mbit", "Gbit", "Tbit"}) {
    if (bits < 1000) break;
    bits /= 1000;
    unit = larger;
  }
  return absl::StrFormat("%.4g%s", bits, unit);
}

const char* Sign(Certainty certainty) {
  if (certainty == Certainty::kAbout) return "~";
  return certainty == Certainty::kAtMost ? "<" : "";
}

std::string Label(const PlannedMethod& method) {
  const std::string steps = method.local_steps > 1 ? absl::StrCat("(", method.local_steps, ")") : "";
  return absl::StrCat(method.is_own ? "* " : "  ", method.name, steps);
}

void PrintHeader(const PlanQuestion& question, const v1::Job& job, bool measured) {
  const Machines& machines = question.machines;
  const int64_t servers = question.servers.value_or(static_cast<int>(job.cluster().servers().count()));
  const std::string text = absl::StrCat(
      job.name(), ": ", Counted(machines.workers, "worker"), " and ", Counted(servers, "server"),
      ", each on a node of its own; links ", BitsPerSecond(machines.bandwidth), " each way, latency ",
      Time(machines.latency), "; a minibatch of ", Counted(job.train().batch_size(), "row"),
      " on the whole model ", Time(question.step_seconds), measured ? ", as measured on this machine" : "");
  for (const std::string& line : Wrap(text, kWidth)) std::printf("%s\n", line.c_str());
}

void PrintTable(const std::vector<PlannedMethod>& methods) {
  std::printf("\n%-20s %11s %8s %11s %8s  %s\n", "", "bytes/step", "step", "rows/s", "computes", "limited by");
  for (const PlannedMethod& method : methods) {
    if (!method.refused.empty()) continue;
    const std::string bytes =
        method.knows_bytes() ? absl::StrCat(Sign(method.push.certainty), Bytes(method.BytesPerStep())) : "?";
    std::printf("%-20s %11s %8s %11s %7.0f%%  %s\n", Label(method).c_str(), bytes.c_str(),
                method.knows_bytes() ? Time(method.step_seconds).c_str() : "?",
                method.knows_bytes() ? Thousands(method.rows_per_second).c_str() : "?", 100 * method.computing,
                method.knows_bytes() ? Describe(method.limit) : "?");
  }
}

// What the table leaves open.
void PrintNotes(const std::vector<PlannedMethod>& methods) {
  const auto say = [](const std::string& text) {
    bool first = true;
    for (const std::string& line : Wrap(text, kWidth - 4)) {
      std::printf("%s%s\n", first ? "  " : "    ", line.c_str());
      first = false;
    }
  };
  std::printf("\n");
  for (const PlannedMethod& method : methods) {
    if (!method.refused.empty()) say(absl::StrCat("not with ", method.name, ": ", method.refused));
  }
  say("* the job's own; the others with their defaults. Bytes: of one worker, both ways. "
      "What a step teaches differs between methods: tessera simulate trains them.");
}

Json Describe(const PlannedMethod& method) {
  Json row = {{"method", method.name}, {"is_own", method.is_own}};
  if (!method.refused.empty()) {
    row["refused"] = method.refused;
    return row;
  }
  const auto number = [&method](double value) { return method.knows_bytes() ? Json(value) : Json(); };
  const auto bytes = [](const TrafficForecast& forecast) {
    return forecast.certainty == Certainty::kUnknown ? Json() : Json(forecast.bytes);
  };
  // null: once in the whole job.
  row["local_steps"] = method.local_steps == 0 ? Json() : Json(method.local_steps);
  row["servers"] = method.servers;
  row["push_bytes"] = bytes(method.push);
  row["pull_bytes"] = bytes(method.pull);
  row["is_exact"] = method.push.certainty == Certainty::kExact && method.pull.certainty == Certainty::kExact;
  row["step_seconds"] = number(method.step_seconds);
  row["rows_per_second"] = number(method.rows_per_second);
  row["computing"] = number(method.computing);
  row["limit"] = method.knows_bytes() ? Json(Describe(method.limit)) : Json();
  return row;
}

void PrintJson(const PlanQuestion& question, const v1::Job& job, const std::vector<PlannedMethod>& methods) {
  const Machines& machines = question.machines;
  Json plan = {{"job", job.name()},
               {"workers", machines.workers},
               {"bandwidth_bytes_per_second", machines.bandwidth},
               {"latency_seconds", machines.latency},
               {"server_bytes_per_second", machines.fold_rate},
               {"loopback_bytes_per_second", machines.memory_rate},
               {"step_seconds", question.step_seconds},
               {"batch_size", job.train().batch_size()}};
  for (const PlannedMethod& method : methods) plan["methods"].push_back(Describe(method));
  std::printf("%s\n", plan.dump(2, ' ', false, Json::error_handler_t::replace).c_str());
}

PlanQuestion ReadFlags(const PlanOptions& options, double* step_seconds, FlagReader* flags) {
  PlanQuestion question;
  question.job_path = options.job_path;
  question.overrides = options.overrides;
  question.servers = options.servers;
  question.local_steps = options.local_steps;
  flags->Between("nodes", options.nodes, 1, kNodesMax);
  flags->Between("servers", options.servers, 1, kServersMax);
  flags->Between("local-steps", options.local_steps, 1, kLocalStepsMax);
  question.machines.workers = std::max(1, options.nodes);
  question.machines.bandwidth = static_cast<double>(flags->Bandwidth("bandwidth", options.bandwidth));
  question.machines.latency = 1e-9 * static_cast<double>(flags->Duration("latency", options.latency, ""));
  question.machines.fold_rate = static_cast<double>(flags->Bandwidth("server-rate", options.server_rate));
  question.machines.memory_rate =
      static_cast<double>(flags->Bandwidth("loopback-bandwidth", options.loopback_bandwidth));
  if (options.step_time != "measured") {
    *step_seconds = 1e-9 * static_cast<double>(flags->Duration("step-time", options.step_time, ", or measured"));
  }
  return question;
}

// What only the data tell, and the machine that computes on them.
absl::Status Measure(const PlanOptions& options, const v1::Job& job, PlanQuestion* question) {
  TESSERA_ASSIGN_OR_RETURN(const ModelShape shape, ShapeOf(job.model()));
  TESSERA_ASSIGN_OR_RETURN(const Datasets data, LoadDatasets(job.data(), EndsOf(job.model(), shape)));
  question->train_rows = data.train.rows();
  question->row_entries = RowEntries(shape, data.train, InputRowsOf(job.model(), data));
  if (options.step_time != "measured") return absl::OkStatus();
  TESSERA_ASSIGN_OR_RETURN(const SimNanos step, MeasureStepTime(job, data, 1));
  question->step_seconds = 1e-9 * static_cast<double>(step);
  return absl::OkStatus();
}

}  // namespace

int PlanJob(const PlanOptions& options) {
  SetLogLevel(LogLevel::kError);
  FlagReader flags;
  double step_seconds = 0;
  PlanQuestion question = ReadFlags(options, &step_seconds, &flags);
  question.step_seconds = step_seconds;
  const bool measured = options.step_time == "measured";
  JobReading reading = ReadJobFile(options.job_path, options.overrides, JobOptions{measured});
  if (!reading.ok() || !flags.errors().empty()) {
    std::fputs(flags.errors().c_str(), stderr);
    std::fputs(FormatJobErrors(reading.errors).c_str(), stderr);
    return 2;
  }
  // Rows of xc files are as long as they are.
  if (measured || reading.job.data().format() == "xc") {
    const absl::Status status = Measure(options, reading.job, &question);
    if (!status.ok()) {
      std::fprintf(stderr, "tessera: %s\n%s", std::string(status.message()).c_str(),
                   measured ? "tessera: give --step-time, and nothing is measured here\n" : "");
      return absl::IsInvalidArgument(status) || absl::IsUnimplemented(status) ? 2 : 1;
    }
  }
  const std::vector<PlannedMethod> methods = PlanMethods(question);
  if (options.json) {
    PrintJson(question, reading.job, methods);
  } else {
    PrintHeader(question, reading.job, measured);
    PrintTable(methods);
    PrintNotes(methods);
  }
  return 0;
}

}  // namespace tessera
