// Products of blocks: each entry is the chain of fused multiply-adds that the header says, wherever it lies.
#include "kernels/cpu/block_product.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <random>
#include <vector>

namespace tessera {
namespace {

std::vector<float> Values(int64_t n, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(n);
  for (float& value : values) value = normal(random);
  return values;
}

}  // namespace

TEST_CASE("an entry of a block's product is a chain of fused multiply-adds, at every size",
          "[block_product]") {
  constexpr int64_t kGuard = 3;
  for (const int64_t rows : {0, 1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 23}) {
    for (const int64_t columns : {0, 16, 32, 48, 80}) {
      for (const int64_t depth : {0, 1, 5, 33}) {
        for (const bool turned : {false, true}) {
          for (const bool adds : {false, true}) {
            CAPTURE(rows, columns, depth, turned, adds);
            const int64_t a_row = turned ? 1 : depth + 2, a_step = turned ? rows + 1 : 1;
            const int64_t b_row = columns + 5, c_row = columns + kGuard;
            const std::vector<float> a = Values((rows + 2) * (depth + 2), 1),
                                     b = Values((depth + 1) * b_row, 2),
                                     before = Values((rows + 1) * c_row, 3);
            std::vector<float> want = before, got = before;
            for (int64_t i = 0; i < rows; ++i) {
              for (int64_t j = 0; j < columns; ++j) {
                float sum = adds ? before[i * c_row + j] : 0.0f;
                for (int64_t k = 0; k < depth; ++k) {
                  sum = std::fma(a[i * a_row + k * a_step], b[k * b_row + j], sum);
                }
                want[i * c_row + j] = sum;
              }
            }
            MultiplyBlock(rows, columns, depth, {a.data(), a_row, a_step, b.data(), b_row}, adds,
                          got.data(), c_row);
            REQUIRE(got == want);
          }
        }
      }
    }
  }
}

}  // namespace tessera
