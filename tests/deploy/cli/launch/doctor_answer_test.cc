#include "deploy/cli/launch/doctor_answer.h"

#include <catch2/catch.hpp>
#include <string>
#include <vector>

namespace tessera {
namespace {

TEST_CASE("the problems are found in what a doctor says", "[cli][launch]") {
  CHECK(ProblemsOf("Welcome {you}!\n{\n  \"problems\": 2,\n  \"findings\": [\n"
                   "    {\n      \"kind\": \"ok\",\n      \"what\": \"job\"\n    },\n"
                   "    {\n      \"kind\": \"problem\",\n      \"what\": \"no data\",\n"
                   "      \"advice\": \"bring it\"\n    },\n"
                   "    {\n      \"kind\": \"problem\",\n      \"what\": \"no room\",\n"
                   "      \"advice\": \"\"\n    }\n  ]\n}\n") ==
        std::vector<std::string>{"no data\n    -> bring it", "no room"});
  CHECK(ProblemsOf("").empty());
  CHECK(ProblemsOf("sh: 1: tessera: not found\n").empty());
  CHECK(ProblemsOf("{\"findings\": [1, {\"kind\": 2}]}").empty());
}

}  // namespace
}  // namespace tessera
