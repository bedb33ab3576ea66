// What Slim-DP adds to an exchange: selecting the core, drawing the explorer, taking entries out and
// putting them back. One thread, next to plain loops that read as many bytes, in the same run.
//
//   bazel-bin/bench/slim/slim [--entries 16777216] [--seconds 1] [--tiny]
//
// First checks that the core is what a sort finds. A *pass* is the median time that a plain loop takes to
// read the parameters, and for a selection with gradients, the parameters and the gradients. Both take
// turns, so that a slow moment of the machine hits both.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <functional>
#include <memory>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "bench/slim/plain_reads.h"
#include "bench/timing/timing.h"
#include "common/base/philox.h"
#include "common/keyset/core_share.h"
#include "common/keyset/entry_keys.h"
#include "common/keyset/entry_set.h"
#include "common/keyset/explorer.h"
#include "common/layout/parameters.h"
#include "common/layout/shard_map.h"
#include "common/rpc/transport.h"
#include "server/core/core_agreement.h"
#include "server/core/core_search.h"

namespace tessera {
namespace {

constexpr int64_t kColumns = 4096;
// The size of a shard's blocks.
constexpr int64_t kRun = int64_t{1} << 18;

struct Flags {
  int64_t entries = int64_t{1} << 24;
  double seconds = 1;
  bool tiny = false;
};

// Times a part and the pass that it is held against by turns, and prints the median of their ratios.
void Compare(const std::string& what, const Flags& flags, const std::function<void()>& part,
             const std::function<void()>& pass) {
  std::vector<double> seconds, passes, ratios;
  double elapsed = 0;
  for (int round = 0; round < 4 || elapsed < flags.seconds; ++round) {
    const double a = Seconds(part);
    const double b = Seconds(pass);
    elapsed += a + b;
    if (round == 0) continue;
    seconds.push_back(a);
    passes.push_back(b);
    ratios.push_back(a / b);
  }
  std::printf("%-44s %8.2f ms %8.2f ms a pass %6.2f passes\n", what.c_str(), Median(seconds) * 1e3,
              Median(passes) * 1e3, Median(ratios));
  std::fflush(stdout);
}

struct Arrays {
  explicit Arrays(int64_t count) : w(count), g(count), out(count) {
    for (int64_t i = 0; i < count; ++i) {
      // Sums of uniform numbers: nearly normal.
      const PhiloxBlock a = Philox(1, Stream::kInitialValues, 0, static_cast<uint64_t>(i));
      const PhiloxBlock b = Philox(1, Stream::kInitialValues, 1, static_cast<uint64_t>(i));
      for (const uint32_t word : a) w[i] += 0.1f * (UnitFloat(word) - 0.5f);
      for (const uint32_t word : b) g[i] += 0.01f * (UnitFloat(word) - 0.5f);
    }
    ParameterSpec spec;
    spec.rows = (count + kColumns - 1) / kColumns;
    spec.columns = kColumns;
    shape.parameters.push_back(spec);
    shape.size = spec.size();
    slices = SlicesOf(shape, ShardId(0), 1);
  }
  std::vector<float> w, g, out;
  ModelShape shape;
  ShardSlices slices;
};

// Selects a core as servers do, with one server that has everything.
EntrySet Select(const Arrays& a, bool with_gradient, int64_t core_entries) {
  CoreSearch::Options options;
  options.slices = &a.slices;
  options.entries = a.shape.size;
  const int64_t count = static_cast<int64_t>(a.w.size());
  for (int64_t at = 0; at < count; at += kRun) {
    options.runs.push_back(
        {a.w.data() + at, with_gradient ? a.g.data() + at : nullptr, std::min(kRun, count - at)});
  }
  CoreSearch search(std::move(options));
  // The weight of the gradients is given, so that no pass goes into sums.
  CoreAgreement agreement({1, 1, static_cast<uint64_t>(count), static_cast<uint64_t>(core_entries),
                           with_gradient ? 5.0 : 0.0});
  while (!search.core().has_value()) {
    while (search.Advance()) {
    }
    if (!search.report().has_value()) continue;
    for (const auto& [to, question] : agreement.OnReport(ShardId(0), *search.report())) {
      search.Ask(question);
    }
  }
  return *search.core();
}

// Whether the core is what a sort of all significances gives.
bool IsRight(const Arrays& a, const EntrySet& core, bool with_gradient, int64_t wanted) {
  const int64_t count = static_cast<int64_t>(a.w.size());
  std::vector<uint32_t> s(count);
  Significances({a.w.data(), with_gradient ? a.g.data() : nullptr, count}, 5.0f, s.data());
  std::vector<int64_t> order(count);
  std::iota(order.begin(), order.end(), 0);
  const auto before = [&](int64_t x, int64_t y) { return s[x] != s[y] ? s[x] > s[y] : x < y; };
  std::nth_element(order.begin(), order.begin() + wanted, order.end(), before);
  if (core.count() != wanted) return false;
  for (int64_t i = 0; i < wanted; ++i) {
    if (!core.Contains(order[i])) return false;
  }
  return true;
}

int Run(const Flags& flags) {
  Arrays a((flags.entries + kColumns - 1) / kColumns * kColumns);
  const int64_t n = static_cast<int64_t>(a.w.size());
  const double shares[] = {0.01, 0.05, 0.1, 0.2};
  for (const double share : shares) {
    for (const bool with_gradient : {false, true}) {
      const int64_t wanted = EntriesOf(share, n);
      if (IsRight(a, Select(a, with_gradient, wanted), with_gradient, wanted)) continue;
      std::fprintf(stderr, "slim: a core of %g of the entries is not what a sort finds\n", share);
      return 1;
    }
  }
  std::printf("cores checked: the largest of the model\n%ld entries\n", static_cast<long>(n));
  volatile uint64_t sink = 0;
  const auto read_w = [&] { sink = sink + ReadAll(a.w.data(), n); };
  const auto read_both = [&] {
    read_w();
    sink = sink + ReadAll(a.g.data(), n);
  };
  for (const double share : shares) {
    char name[16];
    std::snprintf(name, sizeof(name), "%g%%", 100 * share);
    const std::string of = std::string(" ") + name;
    const int64_t count = EntriesOf(share, n);
    const EntrySet core = Select(a, true, count);
    Compare(
        "core of the weights" + of, flags, [&] { Select(a, false, count); }, read_w);
    Compare(
        "core of weights and gradients" + of, flags, [&] { Select(a, true, count); }, read_both);
    Compare(
        "keys of a core" + of, flags, [&] { EncodeKeys(core); }, read_w);
    Compare(
        "its signature" + of, flags, [&] { SignatureOf(1, 2, core); }, read_w);
    const ExplorerPlace place{7, Rank(1), Exchange(3), ShardId(0)};
    Compare(
        "explorer" + of, flags, [&] { DrawExplorer(place, core, count); }, read_w);
    Compare(
        "take entries out" + of, flags,
        [&] { GatherEntries(core, 0, n, a.w.data(), a.out.data()); }, read_w);
    if (share == shares[3]) {
      Compare(
          "take entries out, bit by bit" + of, flags,
          [&] { GatherEntries(core, 0, n, a.w.data(), a.out.data(), GatherPath::kScalar); },
          read_w);
      Compare(
          "put entries back" + of, flags,
          [&] { ScatterEntries(core, 0, n, a.out.data(), a.g.data()); }, read_w);
      Compare(
          "add entries" + of, flags, [&] { AddEntries(core, 0, n, a.out.data(), a.g.data()); },
          read_w);
    }
  }
  return 0;
}

}  // namespace
}  // namespace tessera

int main(int argc, char** argv) {
  tessera::Flags flags;
  CLI::App app("Times what Slim-DP adds to an exchange against loops that read as much.", "slim");
  app.add_option("--entries", flags.entries, "entries of the parameters");
  app.add_option("--seconds", flags.seconds, "time to measure each part for");
  app.add_flag("--tiny", flags.tiny, "few entries for a moment, as a test");
  CLI11_PARSE(app, argc, argv);
  if (flags.tiny) {
    flags.entries = 50000;
    flags.seconds = 0.01;
  }
  // Freed memory is kept, as in the server's process.
  tessera::ConfigureAllocator();
  return tessera::Run(flags);
}
