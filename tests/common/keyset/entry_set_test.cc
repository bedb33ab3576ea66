#include "common/keyset/entry_set.h"

#include <catch2/catch.hpp>
#include <random>
#include <vector>

namespace tessera {
namespace {

std::vector<GatherPath> Paths() {
  std::vector<GatherPath> paths = {GatherPath::kScalar};
  if (BestGatherPath() >= GatherPath::kAvx512) paths.push_back(GatherPath::kAvx512);
  return paths;
}

EntrySet Random(int64_t size, double density, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<uint64_t> words((size + 63) / 64);
  for (int64_t i = 0; i < size; ++i) {
    if (std::uniform_real_distribution<double>(0, 1)(random) < density) {
      words[i / 64] |= uint64_t{1} << i % 64;
    }
  }
  return EntrySet(size, words);
}

struct Ranges {
  int64_t begin;
  int64_t end;
};

std::vector<Ranges> RangesOf(int64_t size) {
  return {{0, size},    {size / 3, size}, {size / 3, size / 2},
          {size, size}, {0, size / 2},    {1, size}};
}

TEST_CASE("every path gathers, scatters and adds just the entries of a range", "[entry_set]") {
  for (const int64_t size : {1, 63, 64, 65, 129, 200, 1000}) {
    for (const double density : {0.0, 0.02, 0.2, 0.6, 1.0}) {
      const EntrySet set = Random(size, density, static_cast<uint64_t>(size));
      const std::vector<int64_t> places = set.places();
      REQUIRE(set.count() == static_cast<int64_t>(places.size()));
      for (const auto& [begin, end] : RangesOf(size)) {
        std::vector<int64_t> in_range;
        for (const int64_t place : places) {
          if (place >= begin && place < end) in_range.push_back(place);
        }
        const int64_t count = static_cast<int64_t>(in_range.size());
        CAPTURE(size, density, begin, end);
        CHECK(set.CountIn(begin, end) == count);
        for (const GatherPath path : Paths()) {
          // Memory of just the range, with a mark behind the values.
          std::vector<float> all(end - begin);
          for (int64_t i = begin; i < end; ++i) all[i - begin] = static_cast<float>(i) + 0.5f;
          std::vector<float> values(count + 1, -7);
          REQUIRE(GatherEntries(set, begin, end, all.data(), values.data(), path) == count);
          CHECK(values[count] == -7);
          for (int64_t i = 0; i < count; ++i) REQUIRE(values[i] == in_range[i] + 0.5f);
          const std::vector<float> before = all;
          REQUIRE(AddEntries(set, begin, end, values.data(), all.data(), path) == count);
          for (int64_t i = begin; i < end; ++i) {
            const float was = before[i - begin];
            REQUIRE(all[i - begin] == (set.Contains(i) ? was + was : was));
          }
          for (float& value : values) value = -value;
          REQUIRE(ScatterEntries(set, begin, end, values.data(), all.data(), path) == count);
          for (int64_t i = begin; i < end; ++i) {
            REQUIRE(all[i - begin] == (set.Contains(i) ? -(i + 0.5f) : before[i - begin]));
          }
        }
      }
    }
  }
}

TEST_CASE("a walk passes as many places as the room for entries allows, and all in the end",
          "[entry_set]") {
  const EntrySet set = Random(1000, 0.3, 9);
  for (const int64_t room : {1, 7, 64, 2000}) {
    EntryWalk walk(set);
    int64_t place = 0;
    int64_t count = 0;
    while (walk.place() < set.size()) {
      const EntryWalk::Run run = walk.Next(std::min<int64_t>(set.size(), place + 150), room);
      REQUIRE(run.begin == place);
      REQUIRE(run.count <= room);
      REQUIRE(run.count == set.CountIn(run.begin, run.end));
      REQUIRE((run.end == place + 150 || run.end == set.size() ||
               (run.count == room && set.Contains(run.end))));
      place = run.end;
      count += run.count;
      REQUIRE(walk.left() == set.count() - count);
    }
    CHECK(count == set.count());
  }
}

TEST_CASE("joined sets have the entries of both", "[entry_set]") {
  const EntrySet a(130, {5, 0, 1});
  const EntrySet b(130, {8, uint64_t{1} << 63, 2});
  const EntrySet both = EntrySet::Joined(a, b);
  CHECK(both.places() == std::vector<int64_t>{0, 2, 3, 127, 128, 129});
  CHECK(both.count() == 6);
  CHECK(EntrySet::All(130).is_whole());
  CHECK(EntrySet::All(130).count() == 130);
  CHECK(EntrySet::All(0).is_whole());
}

}  // namespace
}  // namespace tessera
