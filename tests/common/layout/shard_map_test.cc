#include "common/layout/shard_map.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdlib>
#include <set>
#include <utility>
#include <vector>

namespace tessera {
namespace {

ModelShape ThreeParameters() {
  ModelShape shape;
  shape.parameters = {
      {"a", 10, 3, false, 0, 0, 0}, {"b", 1, 1, true, 0, 0, 0}, {"c", 97, 5, false, 1, 0, 0}};
  for (const ParameterSpec& p : shape.parameters) shape.size += p.size();
  return shape;
}

TEST_CASE("the shards cover every row once", "[layout][shard_map]") {
  const ModelShape shape = ThreeParameters();
  for (const int shards : {1, 2, 3, 5, 97, 98, 300}) {
    CAPTURE(shards);
    std::vector<std::vector<int>> owners;
    for (const ParameterSpec& p : shape.parameters) owners.emplace_back(p.rows, 0);
    int64_t size = 0;
    for (int s = 0; s < shards; ++s) {
      const ShardSlices slices = SlicesOf(shape, ShardId(s), shards);
      int64_t offset = 0;
      for (const Slice& slice : slices.slices) {
        REQUIRE(slice.size() > 0);
        REQUIRE(slice.offset == offset);
        REQUIRE(slice.columns == shape.parameters[slice.parameter].columns);
        for (int64_t row = slice.row_begin; row < slice.row_end; ++row) {
          ++owners[slice.parameter][row];
        }
        offset += slice.size();
      }
      REQUIRE(slices.size == offset);
      REQUIRE(slices.bytes() == 4 * offset);
      size += slices.size;
    }
    CHECK(size == shape.size);
    for (const std::vector<int>& rows : owners) {
      CHECK(std::all_of(rows.begin(), rows.end(), [](int n) { return n == 1; }));
    }
  }
}

TEST_CASE("the last servers own the last parameters alone", "[layout][shard_map]") {
  const ModelShape shape = ThreeParameters();
  const int cut = GENERATE(1, 2);
  for (const auto& [count, last] :
       {std::pair(2, 1), std::pair(5, 1), std::pair(5, 3), std::pair(200, 99)}) {
    CAPTURE(cut, count, last);
    Sharding sharding(count);
    sharding.cut = cut;
    sharding.last = last;
    int64_t largest = 0;
    std::vector<std::vector<int>> owners;
    for (const ParameterSpec& p : shape.parameters) owners.emplace_back(p.rows, 0);
    for (int s = 0; s < count; ++s) {
      const ShardSlices slices = SlicesOf(shape, ShardId(s), sharding);
      CHECK(slices.shard_count == count);
      largest = std::max(largest, slices.bytes());
      for (const Slice& slice : slices.slices) {
        CHECK((slice.parameter >= cut) == (s >= count - last));
        // As among servers that are so many.
        const int among = s < count - last ? count - last : last;
        const int place = s < count - last ? s : s - (count - last);
        CHECK(slice.row_begin == shape.parameters[slice.parameter].rows * place / among);
        for (int64_t row = slice.row_begin; row < slice.row_end; ++row) {
          ++owners[slice.parameter][row];
        }
      }
    }
    for (const std::vector<int>& rows : owners) {
      CHECK(std::all_of(rows.begin(), rows.end(), [](int n) { return n == 1; }));
    }
    // To within a row of each parameter.
    CHECK(std::abs(LargestShardBytes(shape, sharding) - largest) <= 4 * (3 + 1 + 5));
  }
}

TEST_CASE("shards differ by at most one row of each parameter", "[layout][shard_map]") {
  const ModelShape shape = ThreeParameters();
  for (const int shards : {2, 3, 7, 40}) {
    std::set<int64_t> rows;
    for (int s = 0; s < shards; ++s) {
      const ShardSlices slices = SlicesOf(shape, ShardId(s), shards);
      const auto c = std::find_if(slices.slices.begin(), slices.slices.end(),
                                  [](const Slice& slice) { return slice.parameter == 2; });
      REQUIRE(c != slices.slices.end());
      rows.insert(c->row_end - c->row_begin);
    }
    CAPTURE(shards);
    CHECK(*rows.rbegin() - *rows.begin() <= 1);
  }
}

TEST_CASE("a shard without rows is empty and no error", "[layout][shard_map]") {
  ModelShape shape;
  shape.parameters = {{"b", 2, 1, true, 0, 0, 0}};
  shape.size = 2;
  CHECK(SlicesOf(shape, ShardId(0), 3).size == 0);
  CHECK(SlicesOf(shape, ShardId(0), 3).slices.empty());
}

TEST_CASE("the layout hash names names, shapes and the number of servers", "[layout][shard_map]") {
  const ModelShape shape = ThreeParameters();
  CHECK(LayoutHash(shape, 2) == LayoutHash(ThreeParameters(), 2));
  std::set<uint64_t> hashes = {LayoutHash(shape, 1), LayoutHash(shape, 2)};
  ModelShape other = shape;
  other.parameters[0].name = "z";
  hashes.insert(LayoutHash(other, 2));
  other = shape;
  std::swap(other.parameters[0].rows, other.parameters[0].columns);
  hashes.insert(LayoutHash(other, 2));
  other = shape;
  std::swap(other.parameters[0], other.parameters[1]);
  hashes.insert(LayoutHash(other, 2));
  Sharding apart(2);
  apart.last = 1;
  for (const int cut : {1, 2}) {
    apart.cut = cut;
    hashes.insert(LayoutHash(shape, apart));
  }
  CHECK(hashes.size() == 7);
}

}  // namespace
}  // namespace tessera
