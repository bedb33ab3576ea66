// Each update rule over parameters that no cache holds, one thread, next to a plain loop over the
// same arrays.
//
//   bazel-bin/bench/rules/rules [--mib 64] [--seconds 1.5] [--tiny]
//
// First checks that a rule gives the same bits in place, beside its input and in short runs, then
// times. Rule and plain loop take turns, so that a slow moment of the machine hits both; printed
// are medians of GB/s, counting every array that is read or written once each, and the median of
// the ratios. `place`: w_out is w_in; `copy`: it is not. `apart` repeats it over arrays that begin
// at different offsets in their pages; before, they all begin at the same, as large allocations do.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "bench/rules/plain_streams.h"
#include "bench/timing/timing.h"
#include "common/base/check.h"
#include "common/rule/adagrad.h"
#include "common/rule/adam.h"
#include "common/rule/add.h"
#include "common/rule/delayed_nesterov.h"
#include "common/rule/negated.h"
#include "common/rule/rmsprop.h"
#include "common/rule/sgd.h"

namespace tessera {
namespace {

struct Flags {
  int64_t mebibytes = 64;
  double seconds = 1.5;
  bool tiny = false;
};

struct RuleCase {
  std::string name;
  std::unique_ptr<UpdateRule> rule;
  uint64_t number = 1;
  // First state that this update touches; those before it stay out of the count.
  int first_state = 0;

  int streams_read() const { return 2 + rule->state_count() - first_state; }
  int streams_written() const { return 1 + rule->state_count() - first_state; }
};

// All rules with options that leave no term out, so that each reads and writes what it may.
std::vector<RuleCase> AllRules() {
  std::vector<RuleCase> cases;
  cases.push_back({"add", MakeAdd()});
  cases.push_back({"sgd", MakeSgd({1e-4f, 0, 1e-4f})});
  cases.push_back({"sgd momentum", MakeSgd({1e-4f, 0.9f, 1e-4f})});
  cases.push_back({"sgd nesterov", MakeSgd({1e-4f, 0.9f, 1e-4f, true})});
  cases.push_back({"outer nesterov", MakeNegated(MakeSgd({1e-4f, 0.9f, 0, true}))});
  cases.push_back({"adagrad", MakeAdagrad({1e-4f, 1e-10f, 1e-4f})});
  cases.push_back({"rmsprop", MakeRmsProp({1e-4f, 0.99, 1e-8f, 1e-4f, 0})});
  cases.push_back({"rmsprop momentum", MakeRmsProp({1e-4f, 0.99, 1e-8f, 1e-4f, 0.9f})});
  cases.push_back({"adam", MakeAdam({1e-4, 0.9, 0.999, 1e-8, 1e-2, false})});
  cases.push_back({"adamw", MakeAdam({1e-4, 0.9, 0.999, 1e-8, 1e-2, true})});
  // Between two momentum steps only one of its two states moves, the buffer.
  const DelayedNesterovOptions delayed{1e-4f, 0.9f, 0, 4};
  cases.push_back({"delayed nesterov", MakeDelayedNesterov(delayed), 1, 1});
  cases.push_back({"  its n-th update", MakeDelayedNesterov(delayed), 4, 0});
  return cases;
}

// The arrays of one update, each on pages of its own.
class Arrays {
 public:
  explicit Arrays(int64_t count) : count_(count) {
    const int64_t bytes = (count * 4 + kArrays * kApartBytes + kPage - 1) / kPage * kPage;
    for (int k = 0; k < kArrays; ++k) {
      void* const memory = std::aligned_alloc(kPage, bytes);
      TESSERA_CHECK(memory != nullptr);
      memory_.emplace_back(memory, &std::free);
    }
    Place(false);
    Fill();
  }

  // All at the beginning of a page, or `apart`, at offsets that divide a page evenly.
  void Place(bool apart) {
    for (int k = 0; k < kArrays; ++k) {
      char* const begin = static_cast<char*>(memory_[k].get());
      arrays_[k] = reinterpret_cast<float*>(begin + (apart ? k * kApartBytes : 0));
    }
  }

  // Positive values near 1: nothing on the way becomes a subnormal number.
  void Fill() {
    for (int k = 0; k < kArrays; ++k) {
      for (int64_t i = 0; i < count_; ++i) {
        arrays_[k][i] = 0.5f + static_cast<float>((i * 40503 + k * 977) % 1024) / 1024;
      }
    }
  }

  int64_t count() const { return count_; }
  float* u() const { return arrays_[0]; }
  float* w() const { return arrays_[1]; }
  float* out(bool copy) const { return copy ? arrays_[2] : arrays_[1]; }
  float* const* states() const { return arrays_ + 3; }

 private:
  static constexpr int kArrays = 5;
  static constexpr int64_t kPage = 4096;
  static constexpr int64_t kApartBytes = 13 * 64;
  const int64_t count_;
  std::vector<std::unique_ptr<void, void (*)(void*)>> memory_;
  float* arrays_[kArrays] = {};
};

Update UpdateOf(const RuleCase& c) {
  Update update;
  update.scale = 0.25f;
  update.number = c.number;
  return update;
}

void Apply(const RuleCase& c, const Arrays& a, bool copy) {
  c.rule->Apply(UpdateOf(c), a.u(), a.w(), a.out(copy), a.states(), a.count());
}

// Whether in place, copied and in short runs give the same bits, and move the parameters.
bool Agrees(const RuleCase& c) {
  const Arrays place(100003), copied(100003), runs(100003), untouched(100003);
  Apply(c, place, false);
  Apply(c, copied, true);
  for (int64_t begin = 0; begin < runs.count(); begin += 4096) {
    float* const states[] = {runs.states()[0] + begin, runs.states()[1] + begin};
    c.rule->Apply(UpdateOf(c), runs.u() + begin, runs.w() + begin, runs.w() + begin, states,
                  std::min<int64_t>(4096, runs.count() - begin));
  }
  const auto same = [&](const float* a, const float* b) {
    return std::memcmp(a, b, place.count() * sizeof(float)) == 0;
  };
  bool agrees = same(place.w(), copied.out(true)) && same(place.w(), runs.w()) &&
                same(copied.w(), untouched.w()) && !same(place.w(), untouched.w());
  for (int s = 0; s < 2; ++s) {
    agrees = agrees && same(place.states()[s], copied.states()[s]) &&
             same(place.states()[s], runs.states()[s]);
  }
  return agrees;
}

// One of the things that take turns.
struct Candidate {
  bool plain = false;
  bool apart = false;
  std::vector<double> seconds;
};

double MedianRatio(const Candidate& a, const Candidate& b) {
  std::vector<double> ratios;
  for (size_t i = 0; i < a.seconds.size(); ++i) ratios.push_back(a.seconds[i] / b.seconds[i]);
  return Median(ratios);
}

// Times a rule and a plain loop over as many arrays by turns, with the arrays side by side and apart.
void Measure(const RuleCase& c, Arrays* a, bool copy, double seconds_min) {
  Candidate candidates[] = {
      {false, false, {}}, {true, false, {}}, {false, true, {}}, {true, true, {}}};
  const int states = c.rule->state_count() - c.first_state;
  double elapsed = 0;
  for (int round = 0; round < 6 || elapsed < seconds_min; ++round) {
    for (int turn = 0; turn < 4; ++turn) {
      Candidate& candidate = candidates[(turn + round) % 4];
      a->Place(candidate.apart);
      const double seconds = Seconds([&] {
        if (!candidate.plain) return Apply(c, *a, copy);
        RunPlainStreams(a->u(), a->w(), a->out(copy), a->states() + c.first_state, states,
                        a->count());
      });
      elapsed += seconds;
      if (round >= 2) candidate.seconds.push_back(seconds);
    }
  }
  const double bytes =
      static_cast<double>((c.streams_read() + c.streams_written()) * 4 * a->count());
  const auto rate = [&](int i) { return bytes / Median(candidates[i].seconds) * 1e-9; };
  std::printf(
      "%-18s %-5s  %d + %d %7.2f GB/s %7.2f plain %6.2f   apart %7.2f GB/s %7.2f plain "
      "%6.2f\n",
      c.name.c_str(), copy ? "copy" : "place", c.streams_read(), c.streams_written(), rate(0),
      rate(1), MedianRatio(candidates[1], candidates[0]), rate(2), rate(3),
      MedianRatio(candidates[3], candidates[2]));
  std::fflush(stdout);
}

int Run(const Flags& flags) {
  const std::vector<RuleCase> cases = AllRules();
  for (const RuleCase& c : cases) {
    if (Agrees(c)) continue;
    std::fprintf(stderr, "rules: %s: in place, copied and in runs differ\n", c.name.c_str());
    return 1;
  }
  std::printf("%zu rules checked: the same bits in place, copied and in runs\n", cases.size());
  std::printf("%ld MiB of parameters; arrays read + written; share of the plain loop's rate\n",
              static_cast<long>(flags.mebibytes));
  Arrays arrays((flags.mebibytes << 20) / 4);
  for (const RuleCase& c : cases) {
    for (const bool copy : {false, true}) {
      arrays.Fill();
      Measure(c, &arrays, copy, flags.seconds);
    }
  }
  return 0;
}

}  // namespace
}  // namespace tessera

int main(int argc, char** argv) {
  tessera::Flags flags;
  CLI::App app("Times each update rule against a plain loop over the same arrays.", "rules");
  app.add_option("--mib", flags.mebibytes, "size of the parameters");
  app.add_option("--seconds", flags.seconds, "time to measure each rule and form for");
  app.add_flag("--tiny", flags.tiny, "small arrays for a moment, as a test");
  CLI11_PARSE(app, argc, argv);
  if (flags.tiny) {
    flags.mebibytes = 1;
    flags.seconds = 0.01;
  }
  return tessera::Run(flags);
}
