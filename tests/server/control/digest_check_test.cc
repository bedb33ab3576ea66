// Whether servers begin with the same values.
#include "server/control/digest_check.h"

#include <catch2/catch.hpp>

namespace tessera {
namespace {

TEST_CASE("servers whose files of initial values differ are refused with both sums", "[control]") {
  JobFacts facts;
  CHECK(CheckInitialSum("server 1", 0, facts).ok());
  CHECK(CheckInitialSum("server 1", 0xab, facts) ==
        absl::InvalidArgumentError(
            "server 1: model.init: its file is of sum 00000000000000ab, want none, as server 0 has "
            "it; give all servers the same file"));
  facts.initial_sum = 0xcd;
  CHECK(CheckInitialSum("server 1", 0xcd, facts).ok());
  for (const uint64_t sum : {0, 0xab}) {
    const absl::Status refused = CheckInitialSum("server 2", sum, facts);
    CHECK(refused.code() == absl::StatusCode::kInvalidArgument);
    CHECK(std::string(refused.message()).find("want of sum 00000000000000cd") != std::string::npos);
  }
}

}  // namespace
}  // namespace tessera
