// Fragments of a model, on one server and on many.
#include "common/layout/fragment.h"

#include <catch2/catch.hpp>
#include <cstdlib>
#include <random>

namespace tessera {
namespace {

ModelShape ShapeOfRows(const std::vector<std::pair<int64_t, int64_t>>& sizes) {
  ModelShape shape;
  for (const auto& [rows, columns] : sizes) {
    ParameterSpec spec;
    spec.name = "p";
    spec.rows = rows;
    spec.columns = columns;
    shape.size += spec.size();
    shape.parameters.push_back(spec);
  }
  return shape;
}

TEST_CASE("fragments are disjoint and cover all, whatever rows and servers there are",
          "[fragment]") {
  std::mt19937 random(7);
  for (int round = 0; round < 300; ++round) {
    std::vector<std::pair<int64_t, int64_t>> sizes;
    int64_t row_max = 1;
    for (uint32_t i = 0; i < 1 + random() % 6; ++i) {
      sizes.emplace_back(1 + random() % 40, 1 + random() % 90);
      row_max = std::max(row_max, sizes.back().second);
    }
    const ModelShape shape = ShapeOfRows(sizes);
    const int servers = 1 + static_cast<int>(random() % 4);
    const int count = 1 + static_cast<int>(random() % 12);
    for (int s = 0; s < servers; ++s) {
      const ShardSlices all = SlicesOf(shape, ShardId(s), servers);
      int64_t end = 0;
      for (int number = 0; number < count; ++number) {
        const Fragment fragment{number, count};
        const ShardSlices part = SlicesOfFragment(all, fragment);
        CHECK(BeginOf(all, fragment) == end);
        // Of equal size to within a row: half of one at either end.
        CHECK(std::abs(part.size * count - all.size) <= count * (row_max + 1));
        int64_t offset = 0;
        for (const Slice& slice : part.slices) {
          REQUIRE(slice.size() > 0);
          CHECK(slice.offset == offset);
          // Its rows lie at this place in the shard's dense order, too.
          bool found = false;
          for (const Slice& whole : all.slices) {
            if (whole.parameter != slice.parameter) continue;
            found =
                slice.row_begin >= whole.row_begin && slice.row_end <= whole.row_end &&
                whole.offset + (slice.row_begin - whole.row_begin) * whole.columns == end + offset;
          }
          CHECK(found);
          offset += slice.size();
        }
        CHECK(offset == part.size);
        end += part.size;
      }
      CHECK(end == all.size);
    }
  }
}

TEST_CASE("fragments take turns by the exchange's number", "[fragment]") {
  CHECK(FragmentOf(Exchange(1), 3) == Fragment{0, 3});
  CHECK(FragmentOf(Exchange(3), 3) == Fragment{2, 3});
  CHECK(FragmentOf(Exchange(4), 3) == Fragment{0, 3});
  CHECK(FragmentOf(Exchange((uint64_t{1} << 40) + 1), 1024) == Fragment{0, 1024});
}

TEST_CASE("rows that are longer than a fragment stay whole", "[fragment]") {
  const ModelShape shape = ShapeOfRows({{2, 1000}});
  const ShardSlices all = SlicesOf(shape, ShardId(0), 1);
  int64_t sizes = 0;
  for (int number = 0; number < 5; ++number) {
    const ShardSlices part = SlicesOfFragment(all, {number, 5});
    CHECK(part.size % 1000 == 0);
    sizes += part.size;
  }
  CHECK(sizes == 2000);
}

}  // namespace
}  // namespace tessera
