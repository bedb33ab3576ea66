// Grids: every element has its thread, once, also where there are more than 32 bits can count.
#include <catch2/catch.hpp>
#include <vector>

#include "kernels/cuda/batch_norm_kernels.h"
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
    for (const int64_t columns : {int64_t{1}, int64_t{127}, int64_t{128}, int64_t{8192}}) {
      const ColumnMap<NormalizeOp, true> wide{{}, {}, n, columns};
      CHECK(wide.blocks() == CeilDiv(n, 64) * CeilDiv(columns, 128));
      const ColumnMap<NormalizeOp, false> narrow{{}, {}, n, columns};
      CHECK(narrow.blocks() == CeilDiv(n, 64) * CeilDiv(columns, 32));
      GatherColumns gather = {};
      gather.present = n;
      gather.outputs = columns;
      CHECK(gather.blocks() == CeilDiv(n, 32) * CeilDiv(columns, 32));
    }
  }
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
