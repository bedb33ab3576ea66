// Attention as a network calls it, against the products alone that it would take with all scores in memory, by
// dnnl_sgemm.
//
//   bazel-bin/bench/step/attention [--rows 12] [--threads 1] [--seconds 10] [--tiny]
//
// First checks some results against plain loops in f64, then times, by turns. Prints the medians in milliseconds and
// GFLOP/s. Those are of the products, of which a causal mask leaves out nearly half here, but none of sgemm's.
#include <CLI/CLI.hpp>
#include <cmath>
#include <cstdio>
#include <random>
#include <string>
#include <vector>

#include "bench/step/head_products.h"
#include "bench/timing/timing.h"
#include "common/base/check.h"
#include "kernels/devices.h"

namespace tessera {
namespace {

struct Flags {
  int64_t rows = 12;
  int threads = 1;
  double seconds = 10;
  bool tiny = false;
};

std::vector<float> Normals(int64_t n, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(n);
  for (float& value : values) value = normal(random);
  return values;
}

// Whether the last place of the last head of the last row is what the formula says.
bool IsRight(const AttentionShape& s, const std::vector<float>& qkv, const std::vector<float>& y) {
  const int64_t first = (s.rows - 1) * s.places;
  const auto at = [&](int64_t place, int64_t part) {
    return qkv.data() + ((first + place) * 3 + part + 1) * s.width() - s.head_size;
  };
  std::vector<double> weights(s.places), want(s.head_size);
  double sum = 0;
  for (int64_t j = 0; j < s.places; ++j) {
    double score = 0;
    for (int64_t k = 0; k < s.head_size; ++k) {
      score += double{at(s.places - 1, 0)[k]} * at(j, 1)[k];
    }
    weights[j] = std::exp(score / std::sqrt(static_cast<double>(s.head_size)));
    sum += weights[j];
  }
  double distance = 0;
  for (int64_t k = 0; k < s.head_size; ++k) {
    for (int64_t j = 0; j < s.places; ++j) want[k] += weights[j] / sum * at(j, 2)[k];
    distance = std::max(distance, std::fabs(want[k] - y[s.size() - s.head_size + k]));
  }
  return distance < 1e-4;
}

// Times one shape; fails where the results are wrong.
absl::Status RunShape(const AttentionShape& s, const Flags& flags, Backend& backend) {
  const std::vector<float> qkv = Normals(3 * s.size(), 1), dy = Normals(s.size(), 2);
  std::vector<float> y(s.size()), log_sums(s.sums()), dqkv(3 * s.size());
  const auto forward = [&] {
    backend.attention().Forward(s, {}, qkv.data(), y.data(), log_sums.data());
  };
  const auto backward = [&] {
    backend.attention().Backward(s, {}, {qkv.data(), y.data(), log_sums.data(), dy.data()},
                                 dqkv.data());
  };
  forward();
  backward();
  TESSERA_RETURN_IF_ERROR(backend.Finish());
  if (!IsRight(s, qkv, y)) return absl::InternalError("forward: the last place is wrong");

  HeadProducts products(s);
  std::vector<double> seconds[2], limits[2];
  double elapsed = 0;
  for (int round = 0; round < 5 || elapsed < flags.seconds; ++round) {
    const double times[] = {Seconds(forward), Seconds(backward),
                            Seconds([&] { products.Forward(flags.threads); }),
                            Seconds([&] { products.Backward(flags.threads); })};
    for (const double time : times) elapsed += time;
    if (round < 2) continue;
    for (const int pass : {0, 1}) {
      seconds[pass].push_back(times[pass]);
      limits[pass].push_back(times[2 + pass]);
    }
  }
  std::printf("%ld x %ld places, %ld heads of %ld%s\n", s.rows, s.places, s.heads, s.head_size,
              s.causal ? ", causal" : "");
  const double pairs = static_cast<double>(s.rows * s.heads * s.places) *
                       (s.causal ? static_cast<double>(s.places + 1) / 2 : s.places);
  for (const int pass : {0, 1}) {
    const double ours = Median(seconds[pass]), theirs = Median(limits[pass]);
    // Backward computes scores a second time.
    const double flops = 2.0 * pairs * static_cast<double>(s.head_size) * (pass == 0 ? 2 : 5);
    std::printf("  %-9s %8.3f ms  %6.1f GFLOP/s  products alone %8.3f ms  %.2f of it\n",
                pass == 0 ? "forward" : "backward", ours * 1e3, flops / ours * 1e-9, theirs * 1e3,
                ours / theirs);
  }
  return absl::OkStatus();
}

absl::Status Run(const Flags& flags) {
  TESSERA_ASSIGN_OR_RETURN(const std::unique_ptr<Backend> backend,
                           CreateBackend("cpu", flags.threads));
  std::printf("%s\n", backend->description().c_str());
  std::vector<AttentionShape> shapes = {{flags.rows, 64, 4, 32, true},
                                        {flags.rows, 64, 4, 32, false},
                                        {flags.rows, 256, 6, 64, true},
                                        {flags.rows, 256, 6, 64, false}};
  if (flags.tiny) shapes = {{flags.rows, 9, 2, 8, true}, {flags.rows, 70, 1, 16, false}};
  Flags each = flags;
  each.seconds = flags.seconds / static_cast<double>(shapes.size());
  for (const AttentionShape& shape : shapes) {
    TESSERA_RETURN_IF_ERROR(RunShape(shape, each, *backend));
  }
  return absl::OkStatus();
}

}  // namespace
}  // namespace tessera

int main(int argc, char** argv) {
  tessera::Flags flags;
  CLI::App app("Times attention against the products of one with all scores in memory.");
  app.add_option("--rows", flags.rows, "sequences");
  app.add_option("--threads", flags.threads, "OpenMP threads");
  app.add_option("--seconds", flags.seconds, "time to measure for");
  app.add_flag("--tiny", flags.tiny, "few places for a moment, as a test");
  CLI11_PARSE(app, argc, argv);
  if (flags.tiny) {
    flags.rows = 2;
    flags.seconds = 0.1;
  }
  const absl::Status status = tessera::Run(flags);
  if (!status.ok()) {
    std::fprintf(stderr, "attention: %s\n", std::string(status.message()).c_str());
  }
  return status.ok() ? 0 : 1;
}
