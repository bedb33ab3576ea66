// Servers and coordinator as they talk to each other, held to a sort of the whole model.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <deque>
#include <limits>
#include <memory>
#include <numeric>
#include <random>
#include <utility>
#include <vector>

#include "common/layout/parameters.h"
#include "common/layout/shard_map.h"
#include "server/core/core_agreement.h"
#include "server/core/core_search.h"

namespace tessera {
namespace {

using Parameters = std::vector<std::vector<float>>;

ModelShape ShapeWith(const std::vector<std::pair<int64_t, int64_t>>& sizes) {
  ModelShape shape;
  for (const auto& [rows, columns] : sizes) {
    ParameterSpec spec;
    spec.rows = rows;
    spec.columns = columns;
    spec.is_vector = columns == 1;
    shape.parameters.push_back(spec);
    shape.size += spec.size();
  }
  return shape;
}

const ModelShape& Model() {
  static const auto* const shape = new ModelShape(ShapeWith({{37, 29}, {37, 1}, {11, 37}, {3, 1}}));
  return *shape;
}

template <typename Draw>
Parameters Fill(const ModelShape& shape, Draw draw) {
  Parameters values;
  for (const ParameterSpec& spec : shape.parameters) {
    values.emplace_back(spec.size());
    for (float& value : values.back()) value = draw();
  }
  return values;
}

Parameters Normal(uint64_t seed, float scale) {
  std::mt19937_64 random(seed);
  return Fill(Model(), [&] { return std::normal_distribution<float>(0, scale)(random); });
}

std::vector<float> Flat(const Parameters& values) {
  std::vector<float> flat;
  for (const auto& v : values) flat.insert(flat.end(), v.begin(), v.end());
  return flat;
}

// The largest first, of equals the first in the model first.
std::vector<bool> SortedCore(const Parameters& w, const Parameters* g, float c, uint64_t count) {
  const std::vector<float> flat = Flat(w);
  std::vector<float> s(flat.size());
  const std::vector<float> gradient = g == nullptr ? std::vector<float>(s.size()) : Flat(*g);
  for (size_t i = 0; i < s.size(); ++i) s[i] = std::fabs(flat[i]) + c * std::fabs(gradient[i]);
  std::vector<size_t> order(s.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return s[a] > s[b]; });
  std::vector<bool> core(s.size());
  for (uint64_t i = 0; i < count; ++i) core[order[i]] = true;
  return core;
}

// The servers of a model, and what is under way between them and the coordinator.
class Cluster {
 public:
  Cluster(int servers, const Parameters& w, const Parameters* g, uint64_t core_entries,
          double gradient_weight = 0)
      : agreement_({servers, static_cast<int>(w.size()), static_cast<uint64_t>(Model().size),
                    core_entries, gradient_weight}) {
    for (int s = 0; s < servers; ++s) {
      slices_.push_back(SlicesOf(Model(), ShardId(s), servers));
    }
    w_ = &w;
    g_ = g;
  }

  void Begin(uint64_t core) {
    searches_.clear();
    for (const ShardSlices& slices : slices_) {
      CoreSearch::Options options;
      options.core = core;
      options.slices = &slices;
      options.entries = entries_ > 0 ? entries_ : Model().size;
      options.parameters = static_cast<int>(w_->size());
      for (const Slice& slice : slices.slices) {
        // In two runs, whose border falls anywhere.
        const int64_t at = slice.row_begin * slice.columns;
        for (const auto& [from, to] :
             {std::pair<int64_t, int64_t>{0, slice.size() / 3}, {slice.size() / 3, slice.size()}}) {
          const float* const g =
              g_ == nullptr ? nullptr : (*g_)[slice.parameter].data() + at + from;
          const SignificanceRun run{(*w_)[slice.parameter].data() + at + from, g, to - from};
          options.runs.push_back(run);
          AddMagnitudes(run, &options.sums);
        }
      }
      searches_.push_back(std::make_unique<CoreSearch>(std::move(options)));
    }
  }

  // Lets all talk until they are silent. `loses(n)`: the n-th message does not arrive.
  template <typename Loses>
  void Talk(Loses loses) {
    int sent = 0;
    for (bool moved = true; moved;) {
      moved = false;
      for (size_t s = 0; s < searches_.size(); ++s) {
        while (searches_[s]->Advance()) {
        }
        // Reports are repeated as long as the selection goes on.
        if (!searches_[s]->report().has_value() || loses(sent++)) continue;
        for (const auto& [to, question] :
             agreement_.OnReport(ShardId(s), *searches_[s]->report())) {
          if (loses(sent++)) continue;
          searches_[to.value()]->Ask(question);
        }
      }
      for (const auto& search : searches_) moved = moved || !search->core().has_value();
      REQUIRE(sent < 10000);
    }
  }
  void Talk() {
    Talk([](int) { return false; });
  }

  // Of the whole model, in its order.
  std::vector<bool> core() const {
    Parameters taken;
    for (const ParameterSpec& spec : Model().parameters) taken.emplace_back(spec.size());
    for (size_t s = 0; s < slices_.size(); ++s) {
      for (const Slice& slice : slices_[s].slices) {
        for (int64_t i = 0; i < slice.size(); ++i) {
          taken[slice.parameter][slice.row_begin * slice.columns + i] =
              searches_[s]->core()->Contains(slice.offset + i);
        }
      }
    }
    const std::vector<float> flat = Flat(taken);
    return std::vector<bool>(flat.begin(), flat.end());
  }

  // As if the model were so large: fewer entries are samples.
  void PretendEntries(int64_t entries) { entries_ = entries; }
  CoreAgreement& agreement() { return agreement_; }
  CoreSearch& search(int s) { return *searches_[s]; }

 private:
  CoreAgreement agreement_;
  std::vector<ShardSlices> slices_;
  int64_t entries_ = 0;
  const Parameters* w_ = nullptr;
  const Parameters* g_ = nullptr;
  std::vector<std::unique_ptr<CoreSearch>> searches_;
};

TEST_CASE("the core is the largest of the whole model, on any number of servers", "[core]") {
  const Parameters w = Normal(1, 0.1f);
  const Parameters g = Normal(2, 0.01f);
  for (const int servers : {1, 2, 5}) {
    for (const uint64_t count : {uint64_t{0}, uint64_t{1}, uint64_t{150}, uint64_t{1000},
                                 static_cast<uint64_t>(Model().size)}) {
      CAPTURE(servers, count);
      Cluster first(servers, w, nullptr, count);
      first.Begin(0);
      first.Talk();
      CHECK(first.core() == SortedCore(w, nullptr, 0, count));
      Cluster weighted(servers, w, &g, count, 3.5);
      weighted.Begin(0);
      weighted.Talk();
      CHECK(weighted.core() == SortedCore(w, &g, 3.5f, count));
    }
  }
}

TEST_CASE("without a weight of its own |g| counts as much as |w| in all", "[core]") {
  const Parameters w = Normal(3, 0.1f);
  const Parameters g = Normal(4, 0.003f);
  double w_sum = 0, g_sum = 0;
  for (const float value : Flat(w)) w_sum += std::fabs(value);
  for (const float value : Flat(g)) g_sum += std::fabs(value);
  for (const int servers : {1, 2, 5}) {
    Cluster cluster(servers, w, &g, 300);
    cluster.Begin(0);
    cluster.Talk();
    CHECK(cluster.core() == SortedCore(w, &g, static_cast<float>(w_sum / g_sum), 300));
  }
}

TEST_CASE("of equals those that come first in the model are core", "[core]") {
  std::mt19937_64 random(5);
  // A few values only, among them 0 and -0, infinite, and one that f32 can barely hold.
  const float values[] = {0, -0.0f, 1, -1, 0.5f, 1e-45f, std::numeric_limits<float>::infinity()};
  const Parameters w = Fill(Model(), [&] { return values[random() % 7]; });
  const Parameters same = Fill(Model(), [] { return 1.0f; });
  for (const int servers : {1, 2, 5, 50}) {
    for (uint64_t count = 0; count <= static_cast<uint64_t>(Model().size); count += 61) {
      CAPTURE(servers, count);
      Cluster mixed(servers, w, nullptr, count);
      mixed.Begin(0);
      mixed.Talk();
      CHECK(mixed.core() == SortedCore(w, nullptr, 0, count));
      Cluster all_equal(servers, same, nullptr, count);
      all_equal.Begin(0);
      all_equal.Talk();
      CHECK(all_equal.core() == SortedCore(same, nullptr, 0, count));
    }
  }
}

TEST_CASE("where a sample misleads, all entries are counted", "[core]") {
  const int64_t stride = SampleStride(int64_t{1} << 20);
  int64_t i = 0;
  // The largest entries are just those that no sample sees, or just those that are seen.
  for (const bool hidden : {true, false}) {
    const Parameters w = Fill(Model(), [&] {
      const bool is_sample = i % stride == 0;
      return (is_sample != hidden ? 1.0f : 0.001f) + 1e-5f * static_cast<float>(i++ % 97);
    });
    for (const uint64_t count : {uint64_t{40}, uint64_t{300}, uint64_t{1200}}) {
      Cluster cluster(1, w, nullptr, count);
      cluster.PretendEntries(int64_t{1} << 20);
      cluster.Begin(0);
      cluster.Talk();
      CHECK(cluster.core() == SortedCore(w, nullptr, 0, count));
    }
  }
}

TEST_CASE("messages may be lost and repeated, and cores follow each other", "[core]") {
  const Parameters w = Normal(6, 1);
  const std::vector<bool> wanted = SortedCore(w, nullptr, 0, 333);
  for (uint64_t seed = 0; seed < 30; ++seed) {
    std::mt19937_64 random(seed);
    Cluster cluster(3, w, nullptr, 333);
    for (uint64_t core = 0; core < 3; ++core) {
      cluster.Begin(core);
      cluster.Talk([&](int) { return random() % 3 == 0; });
      REQUIRE(cluster.core() == wanted);
      CHECK(cluster.agreement().selected() == core);
      CHECK(cluster.agreement().core() == core + 1);
    }
  }
}

TEST_CASE("a core that not all servers come to is left out", "[core]") {
  const Parameters w = Normal(7, 1);
  Cluster cluster(2, w, nullptr, 100);
  cluster.Begin(0);
  cluster.Talk();
  CoreReport early;
  early.core = 1;
  CHECK(cluster.agreement().OnReport(ShardId(0), early).empty());
  cluster.Begin(2);
  cluster.Talk();
  CHECK(cluster.core() == SortedCore(w, nullptr, 0, 100));
  CHECK(cluster.agreement().selected() == uint64_t{2});
  CHECK(cluster.agreement().OnReport(ShardId(1), early).empty());
}

TEST_CASE("reports that contradict the model are dropped", "[core]") {
  CoreAgreement agreement({1, 2, 100, 10, 0});
  CoreReport report;
  CHECK(agreement.OnReport(ShardId(1), report).empty());
  report.stage = CoreStage::kDone;
  CHECK(agreement.OnReport(ShardId(0), report).empty());
  report.stage = CoreStage::kSums;
  REQUIRE(agreement.OnReport(ShardId(0), report).size() == 1);
  report.stage = CoreStage::kSample;
  for (const auto& [buckets, counts] :
       std::vector<std::pair<std::vector<uint32_t>, std::vector<uint64_t>>>{
           {{1}, {}}, {{1}, {101}}, {{2, 1}, {1, 1}}, {{1, 2}, {60, 60}}, {{1u << 15}, {1}}}) {
    report.buckets = buckets;
    report.counts = counts;
    CHECK(agreement.OnReport(ShardId(0), report).empty());
  }
  // Too few of them: the selection goes on all the same, with a smaller core.
  report.buckets = {5};
  report.counts = {3};
  for (const CoreStage stage :
       {CoreStage::kSample, CoreStage::kCoarse, CoreStage::kWide, CoreStage::kFine}) {
    report.stage = stage;
    const auto asked = agreement.OnReport(ShardId(0), report);
    REQUIRE(asked.size() == 1);
    CHECK(static_cast<int>(asked[0].second.stage) == static_cast<int>(stage) + 1);
  }
  report = CoreReport();
  report.stage = CoreStage::kTies;
  report.ties = {1};
  CHECK(agreement.OnReport(ShardId(0), report).empty());
  report.ties = {1, 2};
  const auto done = agreement.OnReport(ShardId(0), report);
  REQUIRE(done.size() == 1);
  CHECK(done[0].second.stage == CoreStage::kDone);
  CHECK(done[0].second.ties == std::vector<uint64_t>{1, 2});
}

TEST_CASE("a question that does not follow the last one changes nothing", "[core]") {
  const Parameters w = Normal(8, 1);
  Cluster cluster(1, w, nullptr, 10);
  cluster.Begin(4);
  CoreSearch& search = cluster.search(0);
  CoreQuestion question;
  question.core = 4;
  search.Ask(question);  // Its sums are not there yet.
  while (search.Advance()) {
  }
  REQUIRE(search.report()->stage == CoreStage::kSums);
  question.stage = CoreStage::kFine;
  search.Ask(question);
  question.stage = CoreStage::kDone;
  search.Ask(question);
  question.stage = CoreStage::kSample;
  question.core = 3;
  search.Ask(question);
  CHECK_FALSE(search.Advance());
  CHECK(search.report()->stage == CoreStage::kSums);
  question.core = 4;
  search.Ask(question);
  CHECK(search.Advance());
}

}  // namespace
}  // namespace tessera
