#include "deploy/doctor/data_check.h"

#include <sys/stat.h>

#include <catch2/catch.hpp>
#include <fstream>
#include <iterator>
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

TEST_CASE("pictures that cannot be read are named, and counted for each set", "[doctor]") {
  const std::string here = WriteFile("here", "");
  const std::string root = here.substr(0, here.rfind('/')) + "/pictures";
  for (const char* folder : {"", "/a", "/b"}) mkdir((root + folder).c_str(), 0700);
  const std::string good = "tests/worker/data/picture/testdata/colour.png";
  std::ifstream file(good, std::ios::binary);
  const std::string png(std::istreambuf_iterator<char>(file), {});
  WriteFile("pictures/a/one.png", png);
  WriteFile("pictures/b/cut.png", png.substr(0, png.size() - 20));
  WriteFile("pictures/b/two.png", png);
  v1::Job job;
  job.mutable_data()->set_format("images");
  job.mutable_data()->mutable_train()->add_features(root);
  job.mutable_data()->mutable_test()->add_features(root);
  job.mutable_data()->set_resize(9);
  job.mutable_data()->set_crop(8);
  for (const int64_t size : {3, 8, 8}) job.mutable_model()->add_input(size);
  job.mutable_model()->add_layers()->mutable_linear()->set_units(2);
  job.mutable_train()->set_batch_size(1);
  job.mutable_cluster()->set_workers(1);
  const Findings findings = CheckData(job, *ShapeOf(job.model())).findings;
  REQUIRE(findings.size() == 5);
  CHECK(findings[0].kind == Finding::Kind::kGood);
  for (const size_t i : {1, 3}) {
    CHECK(findings[i].kind == Finding::Kind::kNote);
    CHECK(findings[i].what.find("data: " + root + "/b/cut.png: is a PNG picture that does not") ==
          0);
  }
  CHECK(findings[2].what == "data: 1 picture of data.train cannot be read");
  CHECK(findings[4].what == "data: 1 picture of data.test cannot be read");
}

}  // namespace
}  // namespace tessera
