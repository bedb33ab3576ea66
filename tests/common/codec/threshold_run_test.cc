#include "common/codec/threshold_run.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <vector>

#include "tests/common/codec/coded_bytes.h"

namespace tessera {
namespace {

TEST_CASE("all paths send and hold back the same", "[codec][threshold][paths]") {
  for (const int64_t size : {0, 1, 7, 8, 15, 16, 17, 100, 4095, 4096}) {
    for (const float tau : {0.001f, 0.5f, 2.0f}) {
      std::vector<float> update = Normal(size + 1, static_cast<int>(size));
      if (size > 20) update[12] = std::nanf("");
      std::vector<float> wanted = Normal(size + 1, 2);
      const std::vector<float> before = wanted;
      std::vector<uint32_t> wanted_marks(size + kThresholdSlack);
      const ThresholdRun run = RunThreshold(CodecPath::kScalar, update.data() + 1,
                                            wanted.data() + 1, size, tau, wanted_marks.data());
      for (const CodecPath path : PathsHere()) {
        std::vector<float> residual = before;
        std::vector<uint32_t> marks(size + kThresholdSlack);
        const ThresholdRun got =
            RunThreshold(path, update.data() + 1, residual.data() + 1, size, tau, marks.data());
        REQUIRE(got.marks == run.marks);
        REQUIRE((got.largest >= 0x7f800000u) == (run.largest >= 0x7f800000u));
        REQUIRE(std::equal(marks.begin(), marks.begin() + run.marks, wanted_marks.begin()));
        for (int64_t i = 0; i <= size; ++i) {
          REQUIRE((residual[i] == wanted[i] || (residual[i] != residual[i] && i == 12)));
        }
      }
    }
  }
}

}  // namespace
}  // namespace tessera
