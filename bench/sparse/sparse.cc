// A first linear layer on sparse rows, next to the same layer on the rows written out, and to what
// merely touching its weights costs.
//
// Every kernel is checked against the dense one before anything is timed. The limit of Forward is
// one reading pass over W, that of the gradients one pass that reads and writes it: a batch with
// thousands of columns meets nearly every cache line of a row-major matrix.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <functional>
#include <random>
#include <vector>

#include "common/base/check.h"
#include "kernels/devices.h"

namespace tessera {
namespace {

struct Flags {
  int64_t rows = 128;
  int64_t inputs = 32365;
  int64_t outputs = 512;
  int64_t entries = 68;
  int threads = 1;
  int repeats = 15;
};

// `entries` distinct columns a row; low ones occur more often than high ones, as words do.
struct Rows {
  explicit Rows(const Flags& flags) : dense(flags.rows * flags.inputs) {
    std::mt19937 random(1);
    std::uniform_real_distribution<double> uniform;
    for (int64_t row = 0; row < flags.rows; ++row) {
      std::vector<int32_t> own;
      while (static_cast<int64_t>(own.size()) < flags.entries) {
        const double u = uniform(random);
        const auto c = static_cast<int32_t>(u * u * static_cast<double>(flags.inputs));
        if (std::find(own.begin(), own.end(), c) == own.end()) own.push_back(c);
      }
      std::sort(own.begin(), own.end());
      for (const int32_t c : own) {
        column.push_back(c);
        value.push_back(static_cast<float>(uniform(random)));
        dense[row * flags.inputs + c] = value.back();
      }
      begin.push_back(static_cast<int64_t>(column.size()));
    }
  }
  SparseRows sparse() const { return {begin.data(), column.data(), value.data()}; }
  int64_t present() const {
    std::vector<int32_t> all = column;
    std::sort(all.begin(), all.end());
    return std::unique(all.begin(), all.end()) - all.begin();
  }

  std::vector<float> dense;
  std::vector<int64_t> begin = {0};
  std::vector<int32_t> column;
  std::vector<float> value;
};

// The median of several calls; the first one is not counted, as it finds cold caches.
double Milliseconds(int repeats, const std::function<void()>& work) {
  std::vector<double> times;
  for (int i = 0; i <= repeats; ++i) {
    const auto begin = std::chrono::steady_clock::now();
    work();
    const std::chrono::duration<double, std::milli> time = std::chrono::steady_clock::now() - begin;
    if (i > 0) times.push_back(time.count());
  }
  std::nth_element(times.begin(), times.begin() + times.size() / 2, times.end());
  return times[times.size() / 2];
}

void CheckNear(const std::vector<float>& got, const std::vector<float>& want) {
  for (size_t i = 0; i < got.size(); ++i) {
    TESSERA_CHECK(std::fabs(got[i] - want[i]) <= 1e-4f * (1 + std::fabs(want[i])));
  }
}

void Print(const char* name, double ms, double limit) {
  std::printf("%-28s %8.3f ms", name, ms);
  if (limit > 0) std::printf("  %.2f of the limit", limit / ms);
  std::printf("\n");
}

int Run(const Flags& flags) {
  auto backend = CreateBackend("cpu", flags.threads);
  TESSERA_CHECK(backend.ok());
  LinearKernel<float>& dense = (*backend)->linear();
  SparseLinearKernel& sparse = (*backend)->sparse_linear();
  const LinearShape s{flags.rows, flags.inputs, flags.outputs};
  const Rows rows(flags);
  const int64_t weights = s.inputs * s.outputs;
  Memory& memory = (*backend)->memory();
  // The weights lie in large pages, as a network's parameters do.
  const Buffer<float> w = *Buffer<float>::Create(memory, weights);
  const Buffer<float> dw = *Buffer<float>::Create(memory, weights);
  std::mt19937 random(2);
  std::uniform_real_distribution<float> uniform(-1, 1);
  for (int64_t i = 0; i < weights; ++i) w.data()[i] = uniform(random);
  std::vector<float> dy(s.rows * s.outputs), y(dy.size()), want_y(dy.size()), want_dw(weights);
  for (float& value : dy) value = uniform(random);

  dense.Forward(s, rows.dense.data(), w.data(), nullptr, want_y.data());
  sparse.Forward(s, rows.sparse(), w.data(), nullptr, y.data());
  CheckNear(y, want_y);
  TouchedColumns touched;
  dense.WeightGradient(s, rows.dense.data(), dy.data(), WriteMode::kOverwrite, want_dw.data());
  sparse.WeightGradient(s, rows.sparse(), dy.data(), WriteMode::kOverwrite, &touched, dw.data());
  CheckNear({dw.data(), dw.data() + weights}, want_dw);

  volatile float sink = 0;
  const double read = Milliseconds(flags.repeats, [&] {
    float sum = 0;
    for (int64_t i = 0; i < weights; i += 16) sum += w.data()[i];
    sink = sum;
  });
  const double write = Milliseconds(flags.repeats, [&] {
    for (int64_t i = 0; i < weights; i += 16) w.data()[i] += 1e-9f;
  });
  std::printf("%lld rows, %lld -> %lld, %lld entries in %lld columns, %d threads\n",
              static_cast<long long>(s.rows), static_cast<long long>(s.inputs),
              static_cast<long long>(s.outputs), static_cast<long long>(rows.column.size()),
              static_cast<long long>(rows.present()), flags.threads);
  Print("touch W, reading", read, 0);
  Print("touch W, writing", write, 0);
  Print("Forward",
        Milliseconds(flags.repeats,
                     [&] { sparse.Forward(s, rows.sparse(), w.data(), nullptr, y.data()); }),
        read);
  Print("WeightGradient",
        Milliseconds(flags.repeats,
                     [&] {
                       sparse.WeightGradient(s, rows.sparse(), dy.data(), WriteMode::kOverwrite,
                                             &touched, dw.data());
                     }),
        write);
  Print(
      "AddWeightGradient",
      Milliseconds(flags.repeats,
                   [&] { sparse.AddWeightGradient(s, rows.sparse(), dy.data(), 1e-9f, w.data()); }),
      write);
  Print("dense Forward",
        Milliseconds(flags.repeats,
                     [&] { dense.Forward(s, rows.dense.data(), w.data(), nullptr, y.data()); }),
        0);
  Print("dense WeightGradient",
        Milliseconds(flags.repeats,
                     [&] {
                       dense.WeightGradient(s, rows.dense.data(), dy.data(), WriteMode::kOverwrite,
                                            want_dw.data());
                     }),
        0);
  return 0;
}

}  // namespace
}  // namespace tessera

int main(int argc, char** argv) {
  CLI::App app("Times a linear layer on sparse rows.", "sparse");
  tessera::Flags flags;
  app.add_option("--rows", flags.rows, "rows of a batch")->check(CLI::PositiveNumber);
  app.add_option("--inputs", flags.inputs)->check(CLI::PositiveNumber);
  app.add_option("--outputs", flags.outputs)->check(CLI::PositiveNumber);
  app.add_option("--entries", flags.entries, "entries of a row, at most half of the inputs")
      ->check(CLI::PositiveNumber);
  app.add_option("--threads", flags.threads)->check(CLI::PositiveNumber);
  app.add_option("--repeats", flags.repeats)->check(CLI::PositiveNumber);
  CLI11_PARSE(app, argc, argv);
  return tessera::Run(flags);
}
