#include "tests/sim/core_checker.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "common/base/philox.h"

namespace tessera {

CoreChecker::CoreChecker(CoreShare share, uint64_t seed, int shards)
    : share_(share), seed_(seed), numbers_(shards) {}

int64_t CoreChecker::entries() const {
  int64_t entries = 0;
  for (const std::vector<int64_t>& of : numbers_) entries += static_cast<int64_t>(of.size());
  return entries;
}

void CoreChecker::OnSelection(ShardId shard, uint64_t number, const std::vector<float>& w,
                              const std::vector<float>& g) {
  selections_[number][shard.value()] = Values{w, g};
}

bool CoreChecker::HasSelectedBetween(ShardId shard, uint64_t after, uint64_t before) const {
  for (auto it = selections_.upper_bound(after); it != selections_.end(); ++it) {
    if (it->first >= before) return false;
    if (it->second.count(shard.value()) > 0) return true;
  }
  return false;
}

std::vector<int64_t> CoreChecker::Select(const Selection& from) const {
  double w_sum = 0, g_sum = 0;
  for (const auto& [shard, values] : from) {
    for (const float w : values.w) w_sum += std::abs(static_cast<double>(w));
    for (const float g : values.g) g_sum += std::abs(static_cast<double>(g));
  }
  float c = static_cast<float>(share_.gradient_weight);
  if (share_.gradient_weight == 0) c = g_sum > 0 ? static_cast<float>(w_sum / g_sum) : 0;
  std::vector<std::pair<float, int64_t>> all;
  for (const auto& [shard, values] : from) {
    for (size_t i = 0; i < values.w.size(); ++i) {
      const float g = values.g.empty() ? 0 : std::abs(values.g[i]);
      all.push_back({std::abs(values.w[i]) + c * g, numbers_[shard][i]});
    }
  }
  std::sort(all.begin(), all.end(), [](const auto& a, const auto& b) {
    return a.first != b.first ? a.first > b.first : a.second < b.second;
  });
  std::vector<int64_t> core;
  const int64_t count = CoreCount(share_, entries());
  for (int64_t i = 0; i < count; ++i) core.push_back(all[i].second);
  return core;
}

std::optional<std::vector<int64_t>> CoreChecker::CoreOn(ShardId shard, uint64_t number) {
  auto core = cores_.find(number);
  if (core == cores_.end()) {
    const auto selection = selections_.find(number);
    if (selection == selections_.end() || selection->second.size() != numbers_.size()) {
      return std::nullopt;
    }
    const std::vector<int64_t> selected = Select(selection->second);
    core = cores_.emplace(number, std::set<int64_t>(selected.begin(), selected.end())).first;
  }
  const std::vector<int64_t>& numbers = numbers_[shard.value()];
  std::vector<int64_t> places;
  for (size_t place = 0; place < numbers.size(); ++place) {
    if (core->second.count(numbers[place]) > 0) places.push_back(static_cast<int64_t>(place));
  }
  return places;
}

// Floyd's draw, as docs/methods.md has it.
std::vector<int64_t> CoreChecker::EntriesOn(ShardId shard, Rank rank, Exchange exchange,
                                            const std::vector<int64_t>& core) const {
  const std::set<int64_t> in_core(core.begin(), core.end());
  std::vector<int64_t> outside;
  for (int64_t place = 0; place < static_cast<int64_t>(numbers_[shard.value()].size()); ++place) {
    if (in_core.count(place) == 0) outside.push_back(place);
  }
  const int64_t n = entries();
  const int64_t core_count = CoreCount(share_, n);
  const int64_t m = static_cast<int64_t>(outside.size());
  int64_t k = 0;
  if (n > core_count) k = (EntriesOf(share_.alpha, n) - core_count) * m / (n - core_count);
  const bool leaves_out = 2 * k > m;
  const int64_t draws = leaves_out ? m - k : k;
  const uint64_t a = (exchange.value() & 0xffffffff) | uint64_t{rank.value()} << 32 |
                     uint64_t{shard.value()} << 48;
  std::set<int64_t> drawn;
  for (int64_t i = 0; i < draws; ++i) {
    const PhiloxBlock block = Philox(seed_, Stream::kExplorer, a, static_cast<uint64_t>(i / 2));
    const uint64_t r =
        i % 2 == 0 ? block[0] | uint64_t{block[1]} << 32 : block[2] | uint64_t{block[3]} << 32;
    const int64_t j = m - draws + i;
    const auto t = static_cast<int64_t>(
        static_cast<unsigned __int128>(r) * static_cast<uint64_t>(j + 1) >> 64);
    if (!drawn.insert(t).second) drawn.insert(j);
  }
  std::vector<int64_t> places = core;
  for (int64_t i = 0; i < m; ++i) {
    if ((drawn.count(i) > 0) != leaves_out) places.push_back(outside[i]);
  }
  std::sort(places.begin(), places.end());
  return places;
}

}  // namespace tessera
