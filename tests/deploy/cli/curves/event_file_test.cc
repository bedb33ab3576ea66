#include "deploy/cli/curves/event_file.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <string>

namespace tessera {
namespace {

std::string Folder(const std::string& name) {
  const char* const base = std::getenv("TEST_TMPDIR");
  return std::string(base == nullptr ? "/tmp" : base) + "/" + name;
}

std::string ContentOf(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

void Evaluated(uint64_t step, double seconds, v1::JobStatus* status) {
  v1::HistoryEntry& entry = *status->add_history();
  entry.set_step(step);
  entry.set_seconds(seconds);
  entry.set_test_accuracy(0.5);
}

// The number of records, by their lengths; the first is that of the version.
int RecordsOf(const std::string& content) {
  int records = 0;
  for (size_t at = 0; at + 12 <= content.size(); ++records) {
    uint64_t length = 0;
    for (int i = 7; i >= 0; --i) length = length << 8 | static_cast<unsigned char>(content[at + i]);
    at += 8 + 4 + length + 4;
    CHECK(at <= content.size());
  }
  return records;
}

TEST_CASE("the checksum is Castagnoli's", "[cli][events]") {
  // RFC 3720, B.4.
  CHECK(Crc32c(std::string(32, '\0')) == 0x8a9136aau);
  CHECK(Crc32c(std::string(32, '\xff')) == 0x62a8ab43u);
  CHECK(Crc32c("123456789") == 0xe3069283u);
}

TEST_CASE("an event has the bytes of its fields between length and checksums", "[cli][events]") {
  const std::string record = ScalarsEvent(1.0, 300, {{"a", 0.5}});
  // Event: wall_time 1.0, step 300, summary of 10 bytes: a value of 8 with the tag "a" and 0.5 as float.
  const std::string data(
      "\x09\x00\x00\x00\x00\x00\x00\xf0\x3f\x10\xac\x02\x2a\x0a\x0a\x08\x0a\x01"
      "a\x15\x00\x00\x00\x3f",
      24);
  REQUIRE(record.size() == 8 + 4 + 24 + 4);
  CHECK(record.substr(0, 8) == std::string("\x18\0\0\0\0\0\0\0", 8));
  CHECK(record.substr(12, 24) == data);
}

TEST_CASE("scalars that are no numbers are left out", "[cli][events]") {
  CHECK(ScalarsEvent(1, 2, {{"a", 1}, {"b", NAN}, {"c", INFINITY}}) ==
        ScalarsEvent(1, 2, {{"a", 1}}));
}

TEST_CASE("each evaluation is written once, and again behind a restart where the job went back",
          "[cli][events]") {
  EventWriter events(Folder("events/below"));
  REQUIRE(events.Open().ok());
  v1::JobStatus status;
  REQUIRE(events.Write(status).ok());
  CHECK(events.path().empty());
  Evaluated(100, 1, &status);
  REQUIRE(events.Write(status).ok());
  REQUIRE(events.Write(status).ok());
  CHECK(RecordsOf(ContentOf(events.path())) == 2);
  Evaluated(200, 2, &status);
  REQUIRE(events.Write(status).ok());
  CHECK(RecordsOf(ContentOf(events.path())) == 3);
  SECTION("a status that has its last evaluation alone says nothing of the others") {
    v1::JobStatus cut;
    Evaluated(200, 2, &cut);
    REQUIRE(events.Write(cut).ok());
    CHECK(RecordsOf(ContentOf(events.path())) == 3);
    cut.clear_history();
    REQUIRE(events.Write(cut).ok());
    Evaluated(300, 3, &cut);
    REQUIRE(events.Write(cut).ok());
    CHECK(RecordsOf(ContentOf(events.path())) == 4);
  }
  SECTION("an evaluation that is made again voids the first") {
    status.mutable_history()->RemoveLast();
    Evaluated(200, 5, &status);
    REQUIRE(events.Write(status).ok());
    const std::string content = ContentOf(events.path());
    CHECK(RecordsOf(content) == 5);
    CHECK(content.find(std::string("\x3a\x02\x08\x01", 4)) != std::string::npos);
  }
}

TEST_CASE("a folder that is none is refused", "[cli][events]") {
  const std::string file = Folder("a_file");
  std::ofstream(file) << "x";
  const absl::Status status = EventWriter(file).Open();
  CHECK(absl::IsInvalidArgument(status));
  CHECK_THAT(std::string(status.message()), Catch::Contains("--tensorboard: got \"" + file));
}

}  // namespace
}  // namespace tessera
