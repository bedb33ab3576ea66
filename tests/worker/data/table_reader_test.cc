#include "worker/data/table_reader.h"

#include <string>

#include "catch2/catch.hpp"
#include "common/config/data_formats.h"
#include "tests/worker/data/files.h"
#include "worker/data/file_formats.h"

namespace tessera {
namespace {

v1::Data MissingFiles(const DataFormat& format) {
  v1::Data data;
  data.set_format(std::string(format.name));
  data.set_directory("/no/such/folder");
  data.mutable_train()->add_features("rows");
  if (format.labels_apart) data.mutable_train()->add_labels("labels");
  return data;
}

absl::Status Read(const v1::Data& data) {
  TrainingConventions conventions(data);
  TableSpec spec;
  spec.features = 3 * 32 * 32;
  spec.classes = 10;
  return ReadTable(data, data.train(), "data.train", spec, &conventions).status();
}

TEST_CASE("every format has a reader, which names a file that is missing", "[table_reader]") {
  for (const DataFormat& format : DataFormats()) {
    INFO(format.name);
    const absl::Status status = Read(MissingFiles(format));
    REQUIRE(status.code() == absl::StatusCode::kNotFound);
    REQUIRE(std::string(status.message()).find("/no/such/folder/rows") != std::string::npos);
  }
}

TEST_CASE("the table has the formats of the job file and no others", "[table_reader]") {
  REQUIRE(FileFormats().size() == DataFormats().size());
  for (const DataFormat& format : DataFormats()) {
    REQUIRE(FileFormatOf(format.name).name == format.name);
  }
}

TEST_CASE("every format says whether its labels have a file of their own", "[table_reader]") {
  for (const DataFormat& format : DataFormats()) {
    INFO(format.name);
    v1::Data data = MissingFiles(format);
    data.mutable_train()->clear_labels();
    if (!format.labels_apart) data.mutable_train()->add_labels("labels");
    const std::string said(Read(data).message());
    REQUIRE(said.find(format.labels_apart ? "data.train.labels: is not given, want a file"
                                          : "data.train.labels: is given, want none") == 0);
  }
}

TEST_CASE("a path is relative to data.directory unless it is absolute", "[table_reader]") {
  v1::Data data;
  REQUIRE(DataFilePath(data, "a") == "a");
  data.set_directory("d");
  REQUIRE(DataFilePath(data, "a") == "d/a");
  REQUIRE(DataFilePath(data, "/a") == "/a");
  data.set_directory("d/");
  REQUIRE(DataFilePath(data, "a") == "d/a");
}

}  // namespace
}  // namespace tessera
