// One bad job for each thing that can be wrong, with the exact message.
#include <catch2/catch.hpp>

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/common/config/job_text.h"

namespace tessera {
namespace {

struct Bad {
  const char* from;
  const char* to;
  const char* errors;
};

const Bad kBad[] = {
    // Keys.
    {"  epochs: 3", "  epochs: 3\n  epohcs: 4", "x"},
};

TEST_CASE("each bad job gets exactly its message", "[job_errors]") {
  for (const Bad& bad : kBad) {
    INFO(bad.from << " -> " << bad.to);
    CHECK(Errors(JobWith(bad.from, bad.to)) == bad.errors);
  }
}

}  // namespace
}  // namespace tessera
