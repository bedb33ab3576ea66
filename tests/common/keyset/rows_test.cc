#include "common/keyset/rows.h"

#include <catch2/catch.hpp>
#include <string>
#include <vector>

namespace tessera {
namespace {

ModelShape Shape() {
  v1::Model model;
  model.add_input(7);
  for (const int units : {11, 3}) {
    v1::Linear* const linear = model.add_layers()->mutable_linear();
    linear->set_units(units);
    linear->set_bias(true);
  }
  return *ShapeOf(model);
}

TEST_CASE("every row of a range is some server's, once, where its dense order has it",
          "[keyset][rows]") {
  const ModelShape shape = Shape();
  const int servers = GENERATE(1, 2, 3, 20);
  for (int p = 0; p < static_cast<int>(shape.parameters.size()); ++p) {
    const ParameterSpec& spec = shape.parameters[p];
    for (int64_t begin = 0; begin <= spec.rows; ++begin) {
      for (int64_t end = begin; end <= spec.rows; ++end) {
        std::vector<int> seen(spec.rows);
        for (int s = 0; s < servers; ++s) {
          const ShardSlices slices = SlicesOf(shape, ShardId(s), servers);
          const Slice owned = OwnedRows(slices, {p, begin, end});
          for (int64_t row = owned.row_begin; row < owned.row_end; ++row) ++seen[row];
          if (owned.size() == 0) continue;
          CHECK(owned.columns == spec.columns);
          for (const Slice& slice : slices.slices) {
            if (slice.parameter != p) continue;
            CHECK(owned.offset ==
                  slice.offset + (owned.row_begin - slice.row_begin) * slice.columns);
          }
        }
        for (int64_t row = 0; row < spec.rows; ++row) {
          CHECK(seen[row] == (row >= begin && row < end));
        }
      }
    }
  }
}

TEST_CASE("rows that a parameter does not have are refused by what it has", "[keyset][rows]") {
  const ModelShape shape = Shape();
  const auto word = [&](const RowRange& rows) {
    return std::string(CheckRows(shape, rows).message());
  };
  CHECK(word({0, 0, 11}).empty());
  CHECK(word({3, 3, 3}).empty());
  CHECK(word({4, 0, 1}) == "rows: parameter is 4, want 0 to 3");
  CHECK(word({-1, 0, 1}) == "rows: parameter is -1, want 0 to 3");
  CHECK(word({0, 5, 12}) == "rows: are 5 to 12 of layers.0.weight, want them between 0 and 11");
  CHECK(word({1, 3, 2}) == "rows: are 3 to 2 of layers.0.bias, want them between 0 and 11");
  CHECK(word({1, -1, 2}) == "rows: are -1 to 2 of layers.0.bias, want them between 0 and 11");
}

}  // namespace
}  // namespace tessera
