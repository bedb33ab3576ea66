#include "deploy/cli/plan/plan_command.h"

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
#include "common/base/limits.h"
#include "common/base/log.h"
#include "common/config/data_formats.h"
#include "common/config/job_reader.h"
#include "common/config/quantity.h"
#include "common/method/train_rows.h"
#include "deploy/cli/counted.h"
#include "deploy/cli/fetch_advice.h"
#include "deploy/cli/flag_reader.h"
#include "deploy/cli/plan/measure_step.h"
#include "deploy/cli/plan/plan.h"
#include "deploy/cli/tensor_refusal.h"
#include "deploy/cli/terminal.h"
#include "deploy/cli/wrap.h"
#include "nlohmann/json.hpp"
#include "worker/data/dataset.h"

namespace tessera {
namespace {

using Json = nlohmann::ordered_json;
using Certainty = TrafficForecast::Certainty;

constexpr int kLocalStepsMax = 1000000;

std::string ThreeDigits(double value) {
  return value >= 1000 ? Thousands(value) : absl::StrFormat("%.3g", value);
}

// A time in three digits, "1.23ms", which are more than a prediction is worth.
std::string Time(double seconds) {
  constexpr double kYear = 365.25 * 24 * 3600;
  if (!(seconds > 0)) return "0";
  if (seconds > kYear) return absl::StrCat(ThreeDigits(seconds / kYear), " years");
  const double digit = std::pow(10, std::floor(std::log10(seconds)) - 2);
  return FormatDuration(
      static_cast<int64_t>(std::llround(std::round(seconds / digit) * digit * 1e9)));
}

// A bandwidth in the bits in which links are sold.
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
  std::string steps = method.local_steps > 1 ? absl::StrCat("(", method.local_steps, ")") : "";
  if (method.halves) steps = absl::StrCat("(", method.halves->linear_workers, " linear)");
  return absl::StrCat(method.is_own ? "* " : "  ", method.name, steps);
}

// Prints what was assumed, as all numbers below follow from it.
void PrintHeader(const PlanQuestion& question, const v1::Job& job, bool measured) {
  const Machines& machines = question.machines;
  const std::string text = absl::StrCat(
      job.name(), ": ", Counted(machines.workers, "worker"), " and ",
      Counted(job.cluster().servers().count(), "server"), ", each on a node of its own; links ",
      BitsPerSecond(machines.bandwidth), " each way, latency ", Time(machines.latency),
      "; a minibatch of ", Counted(job.train().batch_size(), "row"), " on the whole model ",
      Time(question.step_seconds), measured ? ", as measured on this machine" : "");
  for (const std::string& line : Wrap(text, TextWidth())) std::printf("%s\n", line.c_str());
}

// One method's row of the table.
std::vector<std::string> Cells(const PlannedMethod& method) {
  if (!method.unknown.empty()) return {Label(method), "?", "?", "?", "?", "?"};
  return {Label(method),
          absl::StrCat(Sign(method.push.certainty), Bytes(method.step_bytes)),
          Time(method.step_seconds),
          method.rows_per_second > 0 ? ThreeDigits(method.rows_per_second) : "-",
          absl::StrFormat("%.0f%%", 100 * method.computing),
          Describe(method.limit)};
}

// The local steps that reach the utilisation.
std::string UtilisingSteps(const PlannedMethod& method, double utilisation) {
  if (method.utilising_steps > 0) return absl::StrCat(method.utilising_steps);
  // Without local steps it is as it is.
  const bool has_none = method.local_steps <= 1 && method.computing >= utilisation;
  return method.unknown.empty() && has_none ? "any" : "-";
}

// Prints the methods that can be trained, in columns as wide as their widest cell.
void PrintTable(const PlanQuestion& question, const std::vector<PlannedMethod>& methods) {
  std::vector<std::vector<std::string>> rows = {
      {"", "bytes/step", "step", "rows/s", "computes", "limited by"}};
  for (const PlannedMethod& method : methods) {
    if (method.refused.empty()) rows.push_back(Cells(method));
  }
  if (question.utilisation) {
    // In front of the last column, which is the one without an end of its own.
    const auto insert = [](std::vector<std::string>* row, std::string cell) {
      row->insert(row->end() - 1, std::move(cell));
    };
    insert(&rows[0], absl::StrFormat("steps for %.0f%%", 100 * *question.utilisation));
    size_t row = 1;
    for (const PlannedMethod& method : methods) {
      if (!method.refused.empty()) continue;
      insert(&rows[row++], UtilisingSteps(method, *question.utilisation));
    }
  }
  std::vector<size_t> widths(rows[0].size(), 0);
  for (const std::vector<std::string>& row : rows) {
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  std::printf("\n");
  for (const std::vector<std::string>& row : rows) {
    std::string line = row[0] + std::string(widths[0] - row[0].size(), ' ');
    for (size_t i = 1; i + 1 < row.size(); ++i) {
      absl::StrAppend(&line, "  ", std::string(widths[i] - row[i].size(), ' '), row[i]);
    }
    std::printf("%s  %s\n", line.c_str(), row.back().c_str());
  }
}

// The halves in words: "layer_separation: 6 workers with the layers in front, 33.4 KiB a step each, and 2 of 8
// linear, ..."
std::string DescribeHalves(const PlannedMethod& method, int64_t workers) {
  const PlannedHalves& halves = *method.halves;
  std::string text = absl::StrCat(
      method.name, ": ", Counted(workers - halves.linear_workers, "worker"),
      " with the layers in front, ", Bytes(halves.front_bytes), " a step each, and ",
      halves.linear_workers, " of ", workers, " linear, ", Bytes(halves.linear_bytes), " each");
  if (halves.linear_servers > 0) {
    absl::StrAppend(&text, "; the last ", halves.linear_servers, " of ",
                    Counted(method.servers, "server"),
                    " on the linear workers' nodes, the others on those with data");
  }
  if (halves.best_rows_per_second == 0) return text;
  if (halves.best_linear_workers != halves.linear_workers) {
    absl::StrAppend(&text, "; with ", halves.best_linear_workers, " linear ",
                    ThreeDigits(halves.best_rows_per_second), " rows/s");
  } else if (method.is_own) {
    absl::StrAppend(&text, ", the best number");
  }
  if (halves.is_chosen) absl::StrAppend(&text, ", chosen with cut: ", halves.cut);
  if (halves.best.rows_per_second > halves.best_rows_per_second) {
    absl::StrAppend(&text, "; with cut: ", halves.best.cut, " and ", halves.best.linear_workers,
                    " linear ", ThreeDigits(halves.best.rows_per_second), " rows/s");
  }
  return text;
}

// What the paper's models say of the same cluster.
std::string DescribePaper(const PlannedMethod& method, int64_t workers) {
  const PlannedHalves& halves = *method.halves;
  const int64_t front = workers - halves.linear_workers;
  return absl::StrCat(
      method.name, ", by the models of its paper: ", Time(halves.paper_step_seconds),
      " a step, and ", Time(halves.paper_server_step_seconds), " where ", Counted(front, "worker"),
      " have the whole model and ", Counted(method.servers, "server"), "; ",
      halves.paper_linear_workers, " of ", workers, " linear would be best");
}

// Prints what the table leaves open.
void PrintNotes(const PlanQuestion& question, const v1::Job& job,
                const std::vector<PlannedMethod>& methods) {
  const auto say = [](const std::string& text) {
    bool first = true;
    for (const std::string& line : Wrap(text, TextWidth() - 4)) {
      std::printf("%s%s\n", first ? "  " : "    ", line.c_str());
      first = false;
    }
  };
  std::printf("\n");
  for (const PlannedMethod& method : methods) {
    if (!method.refused.empty()) {
      say(absl::StrCat("not with ", method.name, ": ", method.refused));
    } else if (!method.unknown.empty()) {
      say(absl::StrCat("? ", method.name, ": ", method.unknown));
    } else if (method.between_workers) {
      say(absl::StrCat(method.name, ": ", Counted(method.servers, "server"),
                       ", one beside each worker, whose pulls leave no machine"));
    } else if (method.halves) {
      say(DescribeHalves(method, question.machines.workers));
      say(DescribePaper(method, question.machines.workers));
    }
  }
  if (job.cluster().replicas() > 0) say("what servers send to their standbys is left out");
  say("* the job's own; the others with their defaults. Bytes: of one worker, both ways. "
      "What a step teaches differs between methods: tessera simulate trains them.");
}

// One method as JSON; what is not known is absent.
Json Describe(const PlannedMethod& method) {
  Json row = {{"method", method.name}, {"is_own", method.is_own}};
  if (!method.refused.empty()) {
    row["refused"] = method.refused;
    return row;
  }
  const bool knows = method.unknown.empty();
  const auto number = [knows](double value) { return knows ? Json(value) : Json(); };
  const auto bytes = [](const TrafficForecast& forecast) {
    return forecast.certainty == Certainty::kUnknown ? Json() : Json(forecast.bytes);
  };
  if (!knows) row["unknown"] = method.unknown;
  // null stands for one exchange in the whole job.
  row["local_steps"] = method.local_steps == 0 ? Json() : Json(method.local_steps);
  row["servers"] = method.servers;
  row["between_workers"] = method.between_workers;
  row["push_bytes"] = bytes(method.push);
  row["pull_bytes"] = bytes(method.pull);
  row["is_exact"] =
      method.push.certainty == Certainty::kExact && method.pull.certainty == Certainty::kExact;
  row["step_bytes"] = number(method.step_bytes);
  row["step_seconds"] = number(method.step_seconds);
  row["rows_per_second"] = method.rows_per_second > 0 ? number(method.rows_per_second) : Json();
  row["computing"] = number(method.computing);
  if (method.utilising_steps > 0) row["utilising_local_steps"] = method.utilising_steps;
  row["limit"] = knows ? Json(Describe(method.limit)) : Json();
  if (method.halves) {
    row["linear_workers"] = method.halves->linear_workers;
    row["best_linear_workers"] = method.halves->best_linear_workers;
    row["front_step_bytes"] = method.halves->front_bytes;
    row["linear_step_bytes"] = method.halves->linear_bytes;
    row["cut"] = method.halves->cut;
    row["best_cut"] = method.halves->best.cut;
    row["best_cut_linear_workers"] = method.halves->best.linear_workers;
    row["best_cut_rows_per_second"] = method.halves->best.rows_per_second;
    row["linear_servers"] = method.halves->linear_servers;
    row["paper_step_seconds"] = method.halves->paper_step_seconds;
    row["paper_server_step_seconds"] = method.halves->paper_server_step_seconds;
    row["paper_linear_workers"] = method.halves->paper_linear_workers;
  }
  return row;
}

// Prints all numbers, in bytes and seconds, for programs.
void PrintJson(const PlanQuestion& question, const v1::Job& job,
               const std::vector<PlannedMethod>& methods) {
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

// Reads the flags; errors are collected, so that all are told at once.
PlanQuestion ReadFlags(const PlanOptions& options, FlagReader* flags) {
  PlanQuestion question;
  question.job_path = options.job_path;
  question.overrides = options.overrides;
  question.machines.workers =
      flags->Between("nodes", options.nodes, 1, kSimulatedWorkersMax).value_or(1);
  question.servers = flags->Between("servers", options.servers, 1, kServersMax);
  question.local_steps = flags->Between("local-steps", options.local_steps, 1, kLocalStepsMax);
  question.machines.bandwidth =
      static_cast<double>(flags->Bandwidth("bandwidth", options.bandwidth));
  question.machines.latency =
      1e-9 * static_cast<double>(flags->Duration("latency", options.latency, ""));
  question.machines.fold_rate =
      static_cast<double>(flags->Bandwidth("server-rate", options.server_rate));
  question.machines.memory_rate =
      static_cast<double>(flags->Bandwidth("loopback-bandwidth", options.loopback_bandwidth));
  if (options.utilisation) {
    question.utilisation = flags->Number("utilisation", *options.utilisation, 0.01, 0.999);
  }
  if (options.step_time != "measured") {
    question.step_seconds = 1e-9 * static_cast<double>(flags->Duration(
                                       "step-time", options.step_time, ", or measured"));
    question.step_seconds_of_subnets = question.step_seconds;
  }
  return question;
}

int Refuse(const absl::Status& status, const char* advice) {
  std::fprintf(stderr, "tessera: %s%s\n", std::string(status.message()).c_str(), advice);
  return absl::IsInvalidArgument(status) || absl::IsUnimplemented(status) ? 2 : 1;
}

}  // namespace

int PlanJob(const PlanOptions& options) {
  SetLogLevel(LogLevel::kError);
  FlagReader flags("tessera plan");
  PlanQuestion question = ReadFlags(options, &flags);
  const bool measured = options.step_time == "measured";
  const JobReading reading =
      ReadPlannedJob(question, MayBeOpen(measured ? kDataFilesAlone : JobOptions{false}));
  if (!reading.ok() || !flags.errors().empty()) {
    std::fputs(flags.errors().c_str(), stderr);
    TellJobErrors(reading);
    return 2;
  }
  const absl::Status has_layers =
      RefuseTensors("plan", reading.job.model(), "`tessera check` tells what an exchange moves");
  if (!has_layers.ok()) return Refuse(has_layers, "");
  // How many entries sparse rows have is known only once they are read.
  const bool is_sparse = DataFormatOf(reading.job.data().format()).stays_sparse;
  if (measured || is_sparse) {
    const absl::StatusOr<Datasets> data = LoadForPlan(reading.job, &question);
    absl::Status status = data.status();
    if (data.ok()) {
      status = CheckTrainRows(reading.job, question.machines.workers, question.train_rows);
    }
    if (data.ok() && !status.ok()) return Refuse(status, "; lower train.batch_size or --nodes");
    if (measured && status.ok()) {
      status = MeasureWholeStep(reading.job, *data, &question);
      if (status.ok()) MeasureSubnetStep(reading.job, *data, &question);
    }
    if (measured && !status.ok()) {
      return Refuse(status, "\ntessera: with --step-time nothing is measured here");
    }
    if (!data.ok()) question.row_entries = std::nullopt;
  }
  const std::vector<PlannedMethod> methods = PlanMethods(question);
  if (options.json) {
    PrintJson(question, reading.job, methods);
  } else {
    PrintHeader(question, reading.job, measured);
    PrintTable(question, methods);
    PrintNotes(question, reading.job, methods);
  }
  return 0;
}

}  // namespace tessera
