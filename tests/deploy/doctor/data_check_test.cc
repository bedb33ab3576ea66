#include "deploy/doctor/data_check.h"

#include <catch2/catch.hpp>
#include <string>

#include "tests/worker/data/files.h"

namespace tessera {
namespace {

// Of two features and three classes; the training set is also the test set.
Findings Examine(const std::string& rows) {
  v1::Job job;
  job.mutable_data()->set_format("csv");
  const std::string path = WriteFile("rows.csv", rows);
  job.mutable_data()->mutable_train()->add_features(path);
  job.mutable_data()->mutable_test()->add_features(path);
  job.mutable_model()->add_input(2);
  job.mutable_model()->add_layers()->mutable_linear()->set_units(3);
  job.mutable_train()->set_batch_size(1);
  job.mutable_cluster()->set_workers(1);
  return CheckData(job, *ShapeOf(job.model())).findings;
}

TEST_CASE("what is no fault of the data is a note beside the rows that there are", "[doctor]") {
  const Findings good = Examine("1,2,0\n1,2,1\n"), one_class = Examine("1,2,1\n1,2,1\n");
  REQUIRE(good.size() == 1);
  CHECK(good[0].kind == Finding::Kind::kGood);
  REQUIRE(one_class.size() == 2);
  CHECK(one_class[0].kind == Finding::Kind::kGood);
  CHECK(one_class[1].kind == Finding::Kind::kNote);
  CHECK(one_class[1].what.find("data: all labels of data.train are the same, class 1 of 0 to 2") ==
        0);
}

TEST_CASE("a file that workers would refuse is a problem in their words", "[doctor]") {
  const Findings findings = Examine("label,a,b\n0,1,2\n");
  REQUIRE(findings.size() == 1);
  CHECK(findings[0].kind == Finding::Kind::kProblem);
  CHECK(findings[0].what.find("rows.csv:1: header has \"label\" and ends with \"b\"") !=
        std::string::npos);
}

}  // namespace
}  // namespace tessera
