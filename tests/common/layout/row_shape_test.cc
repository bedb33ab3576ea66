#include "common/layout/row_shape.h"

#include <catch2/catch.hpp>
#include <string>
#include <vector>

namespace tessera {
namespace {

using Sizes = std::vector<int64_t>;

TEST_CASE("rows that are model.input flattened, or that model.input flattens, lie in its order",
          "[row_shape]") {
  CHECK(IsSameOrder(Sizes{3, 8, 8}, Sizes{3, 8, 8}));
  CHECK(IsSameOrder(Sizes{192}, Sizes{3, 8, 8}));
  CHECK(IsSameOrder(Sizes{3, 64}, Sizes{3, 8, 8}));
  CHECK(IsSameOrder(Sizes{24, 8}, Sizes{3, 8, 8}));
  CHECK(IsSameOrder(Sizes{64, 64}, Sizes{4096}));
  CHECK(IsSameOrder(Sizes{8, 8, 3}, Sizes{192}));
  CHECK(IsSameOrder(Sizes{28, 28}, Sizes{784}));
  CHECK(IsSameOrder(Sizes{28, 28}, Sizes{1, 28, 28}));
  CHECK(IsSameOrder(Sizes{28, 28, 1}, Sizes{1, 28, 28}));
  CHECK(IsSameOrder(Sizes{1, 1, 784, 1}, Sizes{1, 28, 28}));
  CHECK(IsSameOrder(Sizes{1}, Sizes{1}));
  CHECK(IsSameOrder(Sizes{}, Sizes{1}));
}

TEST_CASE("rows with as many values in another order do not", "[row_shape]") {
  CHECK_FALSE(IsSameOrder(Sizes{8, 8, 3}, Sizes{3, 8, 8}));
  CHECK_FALSE(IsSameOrder(Sizes{8, 3, 8}, Sizes{3, 8, 8}));
  CHECK_FALSE(IsSameOrder(Sizes{64, 3}, Sizes{3, 8, 8}));
  CHECK_FALSE(IsSameOrder(Sizes{1, 8, 8, 3}, Sizes{3, 8, 8}));
  CHECK_FALSE(IsSameOrder(Sizes{4, 48}, Sizes{3, 8, 8}));
  CHECK_FALSE(IsSameOrder(Sizes{5, 7}, Sizes{7, 5}));
  CHECK_FALSE(IsSameOrder(Sizes{4, 2, 3}, Sizes{2, 2, 6}));
}

TEST_CASE("the transpose that fits is told, with a reshape where axes were lost", "[row_shape]") {
  CHECK(TransposeTo(Sizes{8, 8, 3}, Sizes{3, 8, 8}) == "x.transpose(0, 3, 1, 2)");
  CHECK(TransposeTo(Sizes{8, 3, 8}, Sizes{3, 8, 8}) == "x.transpose(0, 2, 1, 3)");
  CHECK(TransposeTo(Sizes{10, 12, 3}, Sizes{3, 10, 12}) == "x.transpose(0, 3, 1, 2)");
  CHECK(TransposeTo(Sizes{12, 10, 3}, Sizes{3, 10, 12}) == "x.transpose(0, 3, 2, 1)");
  CHECK(TransposeTo(Sizes{64, 3}, Sizes{3, 8, 8}) ==
        "x.reshape(-1, 8, 8, 3).transpose(0, 3, 1, 2)");
  CHECK(TransposeTo(Sizes{1, 8, 8, 3}, Sizes{3, 8, 8}) ==
        "x.reshape(-1, 8, 8, 3).transpose(0, 3, 1, 2)");
  CHECK(TransposeTo(Sizes{3, 8, 8}, Sizes{8, 8, 3}) == "x.transpose(0, 2, 3, 1)");
  CHECK(TransposeTo(Sizes{7, 5}, Sizes{5, 7}) == "x.transpose(0, 2, 1)");
  CHECK(TransposeTo(Sizes{4, 48}, Sizes{3, 8, 8}) == "");
  CHECK(TransposeTo(Sizes{2, 96}, Sizes{3, 8, 8}) == "");
}

TEST_CASE("a shape is written as in a job", "[row_shape]") {
  CHECK(ShapeText(Sizes{3, 8, 8}) == "[3, 8, 8]");
  CHECK(ShapeText(Sizes{784}) == "[784]");
}

}  // namespace
}  // namespace tessera
