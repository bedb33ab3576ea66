// Convolutions as a network calls them, against oneDNN's own where it may lay out everything as it
// likes.
//
//   bazel-bin/bench/step/convolution [--batch 64] [--threads 1] [--seconds 20] [--tiny]
//
// First checks the three results of each shape against oneDNN's, then times, by turns. Prints the
// medians in milliseconds and GFLOP/s, and the share of oneDNN's own rate.
#include <CLI/CLI.hpp>
#include <cmath>
#include <cstdio>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "bench/step/free_convolution.h"
#include "bench/timing/timing.h"
#include "common/base/check.h"
#include "kernels/devices.h"

namespace tessera {
namespace {

struct Flags {
  int64_t batch = 64;
  int threads = 1;
  double seconds = 20;
  bool tiny = false;
};

std::vector<float> Normals(int64_t n, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(n);
  for (float& value : values) value = normal(random);
  return values;
}

// |a - b| / |b| in the Euclidean norm.
double Distance(const std::vector<float>& a, const std::vector<float>& b) {
  double difference = 0, norm = 0;
  for (size_t i = 0; i < b.size(); ++i) {
    difference += std::pow(double{a[i]} - b[i], 2);
    norm += std::pow(double{b[i]}, 2);
  }
  return std::sqrt(difference / norm);
}

// Times one shape; fails where the results differ.
absl::Status RunShape(const ImagesShape& shape, const Flags& flags, Backend& backend) {
  const ImageMap& map = shape.map;
  const int64_t weights = map.to.channels * map.from.channels * map.window.size();
  const std::vector<float> x = Normals(shape.rows * map.from.size(), 1), w = Normals(weights, 2),
                           dy = Normals(shape.rows * map.to.size(), 3);
  std::vector<float> y(dy.size()), dw(weights), dx(x.size());
  FreeConvolution free(shape, flags.threads);
  free.SetInputs(x, w, dy);

  struct Part {
    const char* name;
    std::function<void()> ours, theirs;
    std::vector<float>* result;
    std::vector<double> our_seconds, their_seconds;
  };
  ConvolutionKernel<float>& kernel = backend.convolution();
  std::vector<Part> parts = {
      {"forward",
       [&] { kernel.Forward(shape, x.data(), w.data(), nullptr, y.data()); },
       [&] { free.Forward(); },
       &y,
       {},
       {}},
      {"weight gradient",
       [&] { kernel.WeightGradient(shape, x.data(), dy.data(), WriteMode::kOverwrite, dw.data()); },
       [&] { free.WeightGradient(); },
       &dw,
       {},
       {}},
      {"input gradient",
       [&] { kernel.InputGradient(shape, dy.data(), w.data(), dx.data()); },
       [&] { free.InputGradient(); },
       &dx,
       {},
       {}}};
  const double flops = 2.0 * static_cast<double>(shape.rows * map.to.positions() * weights);
  std::printf("%ld x %ldx%ldx%ld -> %ld channels, %ldx%ld\n", shape.rows, map.from.channels,
              map.from.height, map.from.width, map.to.channels, map.window.height,
              map.window.width);
  for (Part& part : parts) {
    part.ours();
    TESSERA_RETURN_IF_ERROR(backend.Finish());
    part.theirs();
    const std::vector<float> want = part.result == &y    ? free.y()
                                    : part.result == &dw ? free.dw()
                                                         : free.dx();
    const double distance = Distance(*part.result, want);
    if (!(distance < 1e-4)) {
      return absl::InternalError(std::string(part.name) + ": off by " + std::to_string(distance) +
                                 " of its norm from oneDNN's");
    }
  }
  double elapsed = 0;
  for (int round = 0; round < 5 || elapsed < flags.seconds; ++round) {
    for (Part& part : parts) {
      const double ours = Seconds(part.ours), theirs = Seconds(part.theirs);
      elapsed += ours + theirs;
      if (round < 2) continue;
      part.our_seconds.push_back(ours);
      part.their_seconds.push_back(theirs);
    }
  }
  for (const Part& part : parts) {
    const double ours = Median(part.our_seconds), theirs = Median(part.their_seconds);
    std::printf("  %-16s %8.2f ms  %7.1f GFLOP/s  oneDNN alone %7.1f  %.2f of it\n", part.name,
                ours * 1e3, flops / ours * 1e-9, flops / theirs * 1e-9, theirs / ours);
  }
  return absl::OkStatus();
}

// Checks and times the convolutions of some layers against oneDNN's own.
absl::Status Run(const Flags& flags) {
  TESSERA_ASSIGN_OR_RETURN(const std::unique_ptr<Backend> backend,
                           CreateBackend("cpu", flags.threads));
  std::printf("%s\n", backend->description().c_str());
  const Window three{3, 3, 1, 1, 1, 1}, five{5, 5, 1, 1, 2, 2}, halves{3, 3, 2, 2, 1, 1},
      one{1, 1, 1, 1, 0, 0};
  // The first layers of networks for MNIST and CIFAR-10, and what follows them; the last three are deep in ResNet-18.
  std::vector<ImageMap> maps = {MapOf({1, 28, 28}, five, 32),     MapOf({32, 14, 14}, five, 64),
                                MapOf({3, 32, 32}, three, 64),    MapOf({64, 32, 32}, three, 64),
                                MapOf({64, 32, 32}, halves, 128), MapOf({128, 16, 16}, one, 64),
                                MapOf({128, 16, 16}, three, 128), MapOf({256, 8, 8}, three, 256),
                                MapOf({512, 4, 4}, three, 512)};
  Flags each = flags;
  if (flags.tiny) maps = {MapOf({3, 8, 8}, three, 16), MapOf({16, 8, 8}, halves, 8)};
  each.seconds = flags.seconds / static_cast<double>(maps.size());
  for (const ImageMap& map : maps) {
    TESSERA_RETURN_IF_ERROR(RunShape({flags.batch, map}, each, *backend));
  }
  return absl::OkStatus();
}

}  // namespace
}  // namespace tessera

int main(int argc, char** argv) {
  tessera::Flags flags;
  CLI::App app("Times convolutions against oneDNN's in layouts of its own choice.");
  app.add_option("--batch", flags.batch, "images");
  app.add_option("--threads", flags.threads, "OpenMP threads");
  app.add_option("--seconds", flags.seconds, "time to measure for");
  app.add_flag("--tiny", flags.tiny, "small images for a moment, as a test");
  CLI11_PARSE(app, argc, argv);
  if (flags.tiny) {
    flags.batch = 4;
    flags.seconds = 0.1;
  }
  const absl::Status status = tessera::Run(flags);
  if (!status.ok()) {
    std::fprintf(stderr, "convolution: %s\n", std::string(status.message()).c_str());
  }
  return status.ok() ? 0 : 1;
}
