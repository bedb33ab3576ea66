// Every kernel of a GPU that is bound by memory, on arrays of one size: checked against the CPU
// backend, then timed against the device's own copy.
#ifndef TESSERA_BENCH_GPU_KERNELS_H_
#define TESSERA_BENCH_GPU_KERNELS_H_

#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/backend.h"

namespace tessera {

// Median seconds of one call, over enough calls to fill `seconds`: the queue never runs dry, so that
// launches cost what they cost in a training step.
absl::StatusOr<double> SecondsPerCall(Backend& backend, double seconds,
                                      const std::function<void()>& call);

struct KernelRate {
  std::string name;
  double bytes_per_second = 0;  // of the bytes that it must read and write
  double aim = 0;               // share of the copy's that is aimed at; 0: none
  // The kernels whose results are not the CPU's.
  std::vector<std::string> wrong;
};

// On matrices of `shape`, whose columns are a multiple of 4. `tell` is called with each kernel as it is measured. The
// first is the copy, and so is the last. Fails only where the device does.
absl::Status KernelRates(Backend& device, const MatrixShape& shape, double seconds,
                         const std::function<void(const KernelRate&)>& tell);

// Bytes per second of the copy alone, read and written.
absl::StatusOr<double> CopyRate(Backend& device, int64_t bytes, double seconds);

// Bytes per second between the host's page-locked memory and the device's.
struct LinkRates {
  double to_device = 0;
  double to_host = 0;
};

absl::StatusOr<LinkRates> MeasureLink(Backend& device, int64_t bytes, double seconds);

}  // namespace tessera

#endif  // TESSERA_BENCH_GPU_KERNELS_H_
