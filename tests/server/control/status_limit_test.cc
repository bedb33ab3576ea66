#include "server/control/status_limit.h"

#include <catch2/catch.hpp>
#include <string>

namespace tessera {
namespace {

v1::JobStatus Status(size_t members, size_t entries, size_t servers) {
  v1::JobStatus status;
  status.set_job("j");
  for (size_t i = 0; i < members; ++i) status.add_members()->set_description("0123456789");
  for (size_t i = 0; i < entries; ++i) status.add_history()->set_step(i + 1);
  for (size_t i = 0; i < servers; ++i) status.add_servers()->set_address("0123456789");
  return status;
}

TEST_CASE("a status that fits stays as it is", "[status_limit]") {
  v1::JobStatus status = Status(10, 10, 2);
  const std::string before = status.SerializeAsString();
  CHECK(LimitStatus(status.ByteSizeLong(), &status).empty());
  CHECK(status.SerializeAsString() == before);
}

TEST_CASE("of a status that is too large the longest lists are left out", "[status_limit]") {
  v1::JobStatus status = Status(1000, 10, 2);
  CHECK(LimitStatus(1000, &status) == "members");
  CHECK(status.members_size() == 0);
  CHECK(status.history_size() == 10);
  status = Status(1000, 1000, 2);
  status.set_report_json(std::string(1000, 'x'));
  CHECK(LimitStatus(1000, &status) == "members, history and report");
  REQUIRE(status.history_size() == 1);
  CHECK(status.history(0).step() == 1000);
  CHECK(status.servers_size() == 2);
  status = Status(1000, 1000, 1000);
  CHECK(LimitStatus(1000, &status) == "members, history, report and servers");
  CHECK(status.ByteSizeLong() <= 1000);
  CHECK(status.job() == "j");
}

}  // namespace
}  // namespace tessera
