// What a GPU reaches: every kernel against the device's copy, products and whole training steps
// against its largest matrix rate, all measured in this run; and, from reports of jobs that were run
// before, what workers on it reach end to end.
//
//   bazel run --config=cuda //bench/gpu [-- --device cuda:0 --tiny]
//   gpu --reports in_turn_2=a.json,overlap_2=b.json,overlap_200=c.json,ist_4=d.json
//   gpu --same ist_cpu.json,ist_cuda.json       two jobs that differ in their device alone
//
// Where an aim is set the line ends with `met` or `MISSED`: 80 % of the copy for arrays that no cache holds,
// 70 % of the matrix rate for the step in bf16, less than 10 % of a job's time waited with an exchange every
// two local steps. The latter two may be out of a device's reach, whatever the code does: `at best`, beside
// them, is what its own rates in this run leave. An aim that this puts out of reach is missed all the same.
//
// That steps are graphs is an aim as well: results are the same where a device does not take them.
//
// Kernels and steps are checked against the CPU backend before they are timed. What is not the CPU's is timed all the
// same, without a verdict, and a line that begins with WRONG says so: the exit code is 1 then. Nothing but a failure of
// the device ends it early, and what was printed by then is out. deploy/gpu_bundle.sh packs it for machines without
// build tools.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "bench/gpu/convolutions.h"
#include "bench/gpu/kernels.h"
#include "bench/gpu/reports.h"
#include "bench/gpu/steps.h"
#include "bench/gpu/verdict.h"
#include "bench/gpu/weight_steps.h"
#include "common/base/check.h"
#include "kernels/device_options.h"
#include "kernels/devices.h"

namespace tessera {
namespace {

struct Flags {
  std::string device = "cuda";
  // Arrays of 256 MiB: of 64, an H200's second-level cache holds most.
  int64_t rows = 8192;
  int64_t columns = 8192;
  StepSizes steps = {8192, 512, 0.5};
  std::string part = "all";
  bool tiny = false;
  std::vector<std::string> reports;
  std::vector<std::string> same;
};

// Refuses sizes that the kernels do not take, before minutes of measuring.
absl::Status CheckSizes(const Flags& flags) {
  if (flags.rows < 1 || flags.columns < 4 || flags.columns % 4 != 0) {
    return absl::InvalidArgumentError(absl::StrCat("--rows is ", flags.rows, " and --columns ",
                                                   flags.columns,
                                                   ", want 1 or more, and a multiple of 4"));
  }
  const StepSizes& steps = flags.steps;
  if (steps.width >= 4 && steps.width % 4 == 0 && steps.batch >= 1 && steps.seconds > 0) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat("--width is ", steps.width, ", --batch ", steps.batch, " and --seconds ",
                   steps.seconds, ", want a multiple of 4, 1 or more, and more than 0"));
}

// Times all kernels against the device's copy, which is measured before and behind them.
absl::Status TimeKernels(const Flags& flags, Backend& device, int* wrong) {
  std::printf("arrays of %.1f MiB\n\n%-34s %12s %8s\n",
              static_cast<double>(flags.rows * flags.columns) * 4 / (1 << 20), "kernel", "GB/s",
              "of copy");
  std::vector<KernelRate> rates;  // before the last
  const auto share = [&](const KernelRate& rate, const KernelRate& copy) {
    return rate.bytes_per_second / copy.bytes_per_second;
  };
  const auto print = [](const std::string& name, const KernelRate& rate, double share,
                        const char* verdict) {
    std::printf("%-34s %12.1f %8.2f%s\n", name.c_str(), rate.bytes_per_second * 1e-9, share,
                verdict);
  };
  const auto tell = [&](const KernelRate& rate) {
    if (rates.empty() || rate.name != rates.front().name) {
      rates.push_back(rate);
      const double of_copy = share(rate, rates.front());
      print(rate.name, rate, of_copy,
            Verdict(rate.aim > 0 && rate.wrong.empty(), of_copy >= rate.aim));
      for (const std::string& what : rate.wrong) TellWrong(what, wrong);
      return;
    }
    print(rate.name + ", again", rate, share(rate, rates.front()), "");
    // The faster of both is what counts.
    for (const KernelRate& each : rates) {
      if (each.aim == 0 || !each.wrong.empty() || share(each, rates.front()) < each.aim) continue;
      if (share(each, rate) >= each.aim) continue;
      print(each.name + ", of the last copy", each, share(each, rate), Verdict(true, false));
    }
  };
  return KernelRates(device, {flags.rows, flags.columns}, flags.steps.seconds, tell);
}

// Measures what steps are held against: products, the copy, the link.
absl::StatusOr<DeviceRates> MeasureDevice(const Flags& flags, Backend& device) {
  constexpr int64_t kLinkBytesMax = 64 << 20;
  const int64_t bytes = flags.rows * flags.columns * 4;
  DeviceRates rates;
  TESSERA_ASSIGN_OR_RETURN(rates.copy, CopyRate(device, bytes, flags.steps.seconds));
  TESSERA_ASSIGN_OR_RETURN(const LinkRates link, MeasureLink(device, std::min(bytes, kLinkBytesMax),
                                                             flags.steps.seconds));
  rates.to_device = link.to_device;
  std::printf("\n%-34s %12s\n", "copies", "GB/s");
  std::printf("%-34s %12.1f\n", "on the device, read and written", rates.copy * 1e-9);
  std::printf("%-34s %12.1f\n", "to the device, page-locked", link.to_device * 1e-9);
  std::printf("%-34s %12.1f\n", "to the host, page-locked", link.to_host * 1e-9);
  return rates;
}

// Times whole steps, and how much of an exchange is waited for.
absl::Status TimeAllSteps(const Flags& flags, Backend& device, int* wrong) {
  TESSERA_ASSIGN_OR_RETURN(const DeviceRates rates, MeasureDevice(flags, device));
  std::unique_ptr<Backend> by_products;
  TESSERA_ASSIGN_OR_RETURN(by_products, CreateBackend(flags.device, 1, {/*cudnn=*/false}));
  TESSERA_RETURN_IF_ERROR(TimeSteps(flags.steps, rates, device, *by_products, wrong));
  DeviceOptions every_product_step;
  every_product_step.product_step_size_min = 0;
  every_product_step.product_step_rows_max = std::numeric_limits<int64_t>::max();
  std::unique_ptr<Backend> by_steps;
  TESSERA_ASSIGN_OR_RETURN(by_steps, CreateBackend(flags.device, 1, every_product_step));
  TESSERA_RETURN_IF_ERROR(
      TimeWeightSteps(flags.steps.width, flags.steps.seconds, *by_steps, wrong));
  std::unique_ptr<Backend> by_cudnn;
  TESSERA_ASSIGN_OR_RETURN(by_cudnn, CreateBackend(flags.device, 1,
                                                   {/*cudnn=*/true, /*spins=*/false,
                                                    /*cudnn_if_slower=*/true}));
  TESSERA_RETURN_IF_ERROR(CompareConvolutions(std::max<int64_t>(1, flags.steps.batch / 4),
                                              flags.steps.seconds, *by_cudnn, *by_products, wrong));
  TESSERA_RETURN_IF_ERROR(TimeBatches(flags.steps, device));
  TESSERA_RETURN_IF_ERROR(TimeSmallSteps(flags.steps, "", device));
  if (device.gpu().empty()) return absl::OkStatus();
  std::unique_ptr<Backend> spinning;
  TESSERA_ASSIGN_OR_RETURN(spinning,
                           CreateBackend(flags.device, 1, {/*cudnn=*/true, /*spins=*/true}));
  TESSERA_RETURN_IF_ERROR(TimeSmallSteps(flags.steps, ", host spins", *spinning));
  const Shortcuts shortcuts = device.shortcuts();
  std::printf("\n%-34s %12lld %8lld%s\n", "passes as graphs, and not",
              static_cast<long long>(shortcuts.records),
              static_cast<long long>(shortcuts.records_refused),
              Verdict(true, shortcuts.records > 0 && shortcuts.records_refused == 0));
  return absl::OkStatus();
}

absl::Status Run(const Flags& flags) {
  if (!flags.reports.empty()) return PrintReports(flags.reports);
  if (!flags.same.empty()) return CompareReports(flags.same);
  TESSERA_RETURN_IF_ERROR(CheckSizes(flags));
  std::unique_ptr<Backend> device;
  TESSERA_ASSIGN_OR_RETURN(device, CreateBackend(flags.device, 1));
  std::printf("%s\n", device->description().c_str());
  int wrong = 0;
  if (flags.part != "steps") TESSERA_RETURN_IF_ERROR(TimeKernels(flags, *device, &wrong));
  if (flags.part != "kernels") TESSERA_RETURN_IF_ERROR(TimeAllSteps(flags, *device, &wrong));
  if (wrong == 0) return absl::OkStatus();
  return absl::InternalError(absl::StrCat(wrong, " results are not the CPU's: see WRONG above"));
}

}  // namespace
}  // namespace tessera

int main(int argc, char** argv) {
  // Whoever ends it has the lines by then, in a file, too.
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  tessera::Flags flags;
  CLI::App app("Times a GPU's kernels, products and training steps against its own limits.");
  app.add_option("--device", flags.device, "as cluster.device");
  app.add_option("--rows", flags.rows, "of the kernels' matrices");
  app.add_option("--columns", flags.columns, "of the kernels' matrices, a multiple of 4");
  app.add_option("--width", flags.steps.width, "of the step's layers and the large product");
  app.add_option("--batch", flags.steps.batch, "rows of the step");
  app.add_option("--seconds", flags.steps.seconds, "to measure each for");
  app.add_option("--part", flags.part, "kernels, steps, or all")
      ->check(CLI::IsMember({"kernels", "steps", "all"}));
  app.add_option("--reports", flags.reports, "name=report.json of jobs, instead")->delimiter(',');
  app.add_option("--same", flags.same, "two reports of one job, instead")->delimiter(',');
  app.add_flag("--tiny", flags.tiny, "small sizes for a moment, as a test");
  CLI11_PARSE(app, argc, argv);
  if (flags.tiny) {
    flags.rows = 96;
    flags.columns = 128;
    flags.steps = {128, 32, 0.01};
  }
  const absl::Status status = tessera::Run(flags);
  if (!status.ok()) std::fprintf(stderr, "gpu: %s\n", std::string(status.message()).c_str());
  return status.ok() ? 0 : 1;
}
