#include "common/config/data_formats.h"

#include <set>
#include <string>

#include "catch2/catch.hpp"
#include "common/config/schema.h"
#include "proto/job.pb.h"

namespace tessera {
namespace {

TEST_CASE("the job file takes exactly the formats of the table", "[data_formats]") {
  const auto* const field = v1::Data::descriptor()->FindFieldByName("format");
  const auto& taken = KeyOf(*field).one_of();
  std::set<std::string> names;
  for (const DataFormat& format : DataFormats()) names.emplace(format.name);
  REQUIRE(names.size() == DataFormats().size());
  REQUIRE(names == std::set<std::string>(taken.begin(), taken.end()));
}

TEST_CASE("a format is found by its name and by no other", "[data_formats]") {
  for (const DataFormat& format : DataFormats()) {
    REQUIRE(FindDataFormat(format.name) == &format);
    REQUIRE(&DataFormatOf(format.name) == &format);
    REQUIRE(DataFormatNames().find(std::string(format.name)) != std::string::npos);
  }
  REQUIRE(FindDataFormat("") == nullptr);
  REQUIRE(FindDataFormat("IDX") == nullptr);
}

TEST_CASE("a format's own key is a key of text in the job's data section", "[data_formats]") {
  std::set<absl::string_view> keys;
  for (const DataFormat& format : DataFormats()) {
    if (format.own_key.empty()) continue;
    const auto* const field = v1::Data::descriptor()->FindFieldByName(std::string(format.own_key));
    REQUIRE(field != nullptr);
    REQUIRE(field->type() == google::protobuf::FieldDescriptor::TYPE_STRING);
    REQUIRE_FALSE(field->is_repeated());
    REQUIRE(keys.insert(format.own_key).second);
  }
  REQUIRE(keys.size() == 4);
}

TEST_CASE("a format whose rows have fixed sizes says how many values that is", "[data_formats]") {
  for (const DataFormat& format : DataFormats()) {
    for (const int64_t size : format.row_sizes) REQUIRE(size > 0);
    REQUIRE_FALSE((format.stays_sparse && !format.row_sizes.empty()));
  }
}

}  // namespace
}  // namespace tessera
