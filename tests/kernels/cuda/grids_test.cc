// Grids: every element has its thread, once, also where there are more than 32 bits can count.
#include <algorithm>
#include <array>
#include <catch2/catch.hpp>
#include <vector>

#include "kernels/cuda/batch_norm_kernels.h"
#include "kernels/cuda/convolution_kernels.h"
#include "kernels/cuda/images.h"
#include "kernels/cuda/pooling_kernels.h"
#include "kernels/cuda/sparse_linear_kernels.h"
#include "kernels/cuda/tiles.h"
#include "kernels/cuda/vector_kernels.h"

namespace tessera::cuda {
namespace {

const std::vector<int64_t> kExtents = {0,
                                       1,
                                       31,
                                       32,
                                       33,
                                       63,
                                       64,
                                       65,
                                       127,
                                       128,
                                       129,
                                       1000,
                                       8192,
                                       65537,
                                       1 << 20,
                                       (1 << 24) + 1,
                                       int64_t{3} << 31};

}  // namespace

TEST_CASE("rows are cut into parts that cover them once and are long enough", "[grids]") {
  for (const int64_t rows : kExtents) {
    for (const int64_t columns : kExtents) {
      CAPTURE(rows, columns);
      const ColumnCut cut = ColumnCut::Of(rows, columns);
      CHECK(cut.tiles * ColumnCut::kWidth >= columns);
      CHECK((cut.tiles - 1) * ColumnCut::kWidth < columns);
      REQUIRE(cut.parts >= 1);
      CHECK(cut.parts * cut.part_rows >= rows);
      CHECK((rows == 0 || (cut.parts - 1) * cut.part_rows < rows));
      CHECK((cut.parts == 1 || cut.part_rows >= ColumnCut::kRowsMin));
      CHECK(cut.blocks() <= kBlocksMax);
      // Where there is enough to do all of a large GPU is at work, to the last round.
      if (rows >= 1024 * ColumnCut::kRowsMin && columns > 0) {
        const int64_t rounds = CeilDiv(cut.blocks(), ColumnCut::kAtOnce);
        CHECK(cut.blocks() * 10 >= rounds * ColumnCut::kAtOnce * 7);
      }
    }
  }
}

TEST_CASE("grids reach the last element and not a block further", "[grids]") {
  for (const int64_t n : kExtents) {
    CAPTURE(n);
    SubtractOp op = {};
    const Elementwise<SubtractOp> kernel(op, n);
    CHECK(kernel.blocks() * 4 * kernel.kThreads >= n);
    CHECK((n == 0 ? kernel.blocks() == 0 : (kernel.blocks() - 1) * 4 * kernel.kThreads < n));
    CHECK(kernel.blocks() <= kBlocksMax);
    const Elementwise<RoundOp> two({}, n);  // fours to a thread
    CHECK(two.blocks() * 8 * two.kThreads >= n);
    CHECK((n == 0 ? two.blocks() == 0 : (two.blocks() - 1) * 8 * two.kThreads < n));
    CHECK(ColumnMap<NormalizeOp, true>({}, n, 24).blocks() == CeilDiv(n, 256));
    CHECK(ColumnMap<NormalizeOp, false>({}, n, 3).blocks() == CeilDiv(n, 512));
    for (const int64_t columns : {int64_t{1}, int64_t{127}, int64_t{128}, int64_t{8192}}) {
      // Rows of a block: 64, or more of them where they are short.
      const ColumnMap<NormalizeOp, true> wide({}, n, columns);
      CHECK(wide.blocks() == CeilDiv(n, columns == 1 ? 2048 : 64) * CeilDiv(columns, 128));
      const ColumnMap<NormalizeOp, false> narrow({}, n, columns);
      CHECK(narrow.blocks() == CeilDiv(n, columns == 1 ? 2048 : 64) * CeilDiv(columns, 32));
      GatherColumns gather = {};
      gather.present = n;
      gather.outputs = columns;
      CHECK(gather.blocks() == CeilDiv(n, 32) * CeilDiv(columns, 32));
    }
  }
}

TEST_CASE("images are cut into launches whose items 32 bits count", "[grids]") {
  constexpr int64_t kMax = ImageWindows::kItemsMax;
  for (const int64_t rows : kExtents) {
    for (const int64_t size : kExtents) {
      CAPTURE(rows, size);
      if (size == 0 || size > kMax) continue;
      const int64_t images = ImagesWithin(rows, size, kMax);
      CHECK(images <= rows);
      CHECK(images * size <= kMax);
      // As many as there is room for.
      CHECK((images == rows || (images + 1) * size > kMax));
    }
  }
  CHECK(ImagesWithin(5, 100, 99) == 1);
  for (const int64_t items : {int64_t{1}, int64_t{255}, int64_t{256}, int64_t{257}, kMax}) {
    CAPTURE(items);
    MaxPool<true> pool = {};
    pool.items = static_cast<uint32_t>(items);
    CHECK(pool.blocks() == CeilDiv(items, 256));
    SumPatches sum = {};
    sum.items = static_cast<uint32_t>(items);
    CHECK(sum.blocks() == CeilDiv(items, 256));
    for (const int64_t columns : {1, 31, 32, 33, 4608}) {
      LayPatches<float> lay = {};
      lay.rows = static_cast<uint32_t>(items);
      lay.columns = static_cast<uint32_t>(columns);
      CHECK(lay.blocks() == CeilDiv(items, 64) * CeilDiv(columns, 32));
    }
  }
  TransposeSquares squares = {};
  squares.rows = 65;
  squares.columns = 64;
  CHECK(squares.blocks() == 3 * 2);
  CopyTiles tiles = {};
  tiles.rows = 65;
  tiles.columns = 64;
  CHECK(tiles.blocks() == 3 * 2);
}

TEST_CASE("windows and those who hold a place agree, to the last item of a launch", "[grids]") {
  for (const Window& window :
       {Window{1, 1, 1, 1, 0, 0}, Window{3, 3, 1, 1, 1, 1}, Window{3, 2, 2, 3, 2, 1},
        Window{2, 5, 4, 1, 0, 4}, Window{3, 3, int64_t{1} << 40, 2, 1, 0}}) {
    const ImageMap map = MapOf({2, 7, 6}, window, 2);
    const ImageWindows w = WindowsOf(map);
    using Pair = std::array<int64_t, 4>;  // place of to, place of from, i, j
    std::vector<Pair> inside, held;
    for (int32_t to = 0; to < map.to.positions(); ++to) {
      const ImageWindows::Place place = ImageWindows::PlaceAt(to, w.to_height, w.to_width);
      CHECK(w.To(place.image, place.y, place.x) == to);
      w.ForInside(place, [&](int32_t i, int32_t j, int64_t from) {
        inside.push_back({to, from, i, j});
      });
    }
    for (int32_t at = 0; at < map.from.positions(); ++at) {
      const ImageWindows::Place place = ImageWindows::PlaceAt(at, w.from_height, w.from_width);
      CHECK(w.From(place.image, place.y, place.x) == at);
      int64_t last = -1;
      w.ForHolders(place, [&](const ImageWindows::Place& to, int32_t i, int32_t j) {
        held.push_back({w.To(to.image, to.y, to.x), at, i, j});
        CHECK(held.back()[0] > last);
        last = held.back()[0];
      });
    }
    CHECK(!inside.empty());
    std::sort(held.begin(), held.end());
    std::sort(inside.begin(), inside.end());
    CHECK(held == inside);
  }
  const auto last = static_cast<uint32_t>(ImageWindows::kItemsMax - 1);
  const ImageWindows::Place place = ImageWindows::PlaceAt(last, 1 << 10, 1 << 11);
  CHECK((place.image == 1023 && place.y == 1023 && place.x == 2047));
}

TEST_CASE("an array is moved by fours only where it begins at a multiple of their size",
          "[grids]") {
  alignas(64) float values[16] = {};
  SubtractOp op = {};
  op.in[0] = values;
  op.in[1] = values + 4;
  op.out[0] = values + 8;
  CHECK(Elementwise<SubtractOp>(op, 4).aligned);
  for (const int array : {0, 1, 2}) {
    SubtractOp shifted = op;
    if (array == 2) {
      shifted.out[0] += 2;
    } else {
      shifted.in[array] += 1;
    }
    CHECK_FALSE(Elementwise<SubtractOp>(shifted, 4).aligned);
  }
}

}  // namespace tessera::cuda
