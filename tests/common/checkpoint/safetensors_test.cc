// The safetensors layout: what is written is what is read, and nothing that is wrong is.
#include "common/checkpoint/safetensors.h"

#include <catch2/catch.hpp>
#include <cstring>
#include <filesystem>
#include <limits>

#include "common/checkpoint/safetensors_reader.h"
#include "common/checkpoint/safetensors_writer.h"
#include "tests/common/checkpoint/saved_model.h"

namespace tessera {
namespace {

std::string WithLength(const std::string& header, const std::string& data) {
  std::string length(8, '\0');
  for (int i = 0; i < 8; ++i) {
    length[static_cast<size_t>(i)] = static_cast<char>(header.size() >> (8 * i));
  }
  return length + header + data;
}

std::string ErrorOf(const std::string& header, int64_t data_bytes) {
  const auto parsed = ParseTensorHeader("x.safetensors", header, data_bytes);
  return parsed.ok() ? "" : std::string(parsed.status().message());
}

TEST_CASE("tensors come back as they were written, in pieces of any size", "[safetensors]") {
  const std::string path = EmptyFolder() + "/a.safetensors";
  std::vector<float> matrix(6);
  for (size_t i = 0; i < matrix.size(); ++i) matrix[i] = static_cast<float>(i) + 0.5f;
  const uint64_t counts[] = {1, std::numeric_limits<uint64_t>::max()};
  auto writer = SafetensorsWriter::Create(
      path,
      {{"w", "F32", {2, 3}}, {"nothing", "F32", {0, 3}}, {"counts", "U64", {2}}, {"one", "U8", {}}},
      {{"format", "pt"}});
  REQUIRE(writer.ok());
  CHECK((*writer)->missing_bytes() == 24 + 16 + 1);
  const char* bytes = reinterpret_cast<const char*>(matrix.data());
  for (const int64_t size : {1, 7, 0, 16}) {
    REQUIRE((*writer)->Append(bytes, size).ok());
    bytes += size;
  }
  REQUIRE((*writer)->Append(counts, sizeof(counts)).ok());
  REQUIRE((*writer)->Append("z", 1).ok());
  const auto file = (*writer)->Finish();
  REQUIRE(file.ok());
  CHECK(file->name == "a.safetensors");
  CHECK(file->bytes == static_cast<int64_t>(TextOf(path).size()));
  CHECK(*SumOfFile(path, file->bytes) == file->sum);

  const auto reader = SafetensorsReader::Open(path);
  REQUIRE(reader.ok());
  CHECK((*reader)->metadata() == TensorMetadata{{"format", "pt"}});
  CHECK((*reader)->tensors().size() == 4);
  std::vector<float> read(4);
  REQUIRE((*reader)->Read(*(*reader)->Find("w"), 4, 16, read.data()).ok());
  CHECK(read == std::vector<float>{1.5f, 2.5f, 3.5f, 4.5f});
  uint64_t second = 0;
  REQUIRE((*reader)->Read(*(*reader)->Find("counts"), 8, 8, &second).ok());
  CHECK(second == counts[1]);
  CHECK((*reader)->Find("none") == nullptr);
  CHECK((*reader)->Want("w", "F32", {2, 3}).ok());
  CHECK((*reader)->Want("w", "F32", {3, 2}).status().message() ==
        "\"" + path + "\": tensor \"w\": is [2, 3] of F32, want [3, 2] of F32");
  CHECK((*reader)->Want("v", "F32", {1}).status().message() ==
        "\"" + path + "\": tensor \"v\": is missing, want [1] of F32");
}

TEST_CASE("a large tensor in small pieces has the sum of its file", "[safetensors]") {
  const std::string path = EmptyFolder() + "/b.safetensors";
  const int64_t entries = 700'001;
  auto writer = SafetensorsWriter::Create(path, {{"w", "F32", {entries}}}, {});
  REQUIRE(writer.ok());
  for (int64_t i = 0; i < entries; ++i) {
    const float value = static_cast<float>(i);
    REQUIRE((*writer)->Append(&value, sizeof(value)).ok());
  }
  const auto file = (*writer)->Finish();
  REQUIRE(file.ok());
  CHECK(*SumOfFile(path, file->bytes) == file->sum);
  const auto reader = SafetensorsReader::Open(path);
  REQUIRE(reader.ok());
  float last = 0;
  REQUIRE((*reader)->Read((*reader)->tensors()[0], (entries - 1) * 4, 4, &last).ok());
  CHECK(last == static_cast<float>(entries - 1));
}

TEST_CASE("two that write the same file of a checkpoint write two", "[safetensors]") {
  const std::string folder = EmptyFolder();
  const auto create = [&] {
    return SafetensorsWriter::CreatePart(folder, "c.safetensors", {{"b", "U8", {1}}}, {});
  };
  auto first = create(), second = create();
  REQUIRE(first.ok());
  REQUIRE(second.ok());
  REQUIRE((*first)->Append("1", 1).ok());
  REQUIRE((*second)->Append("2", 1).ok());
  for (auto* const writer : {&second, &first}) {
    const auto file = (**writer)->Finish();
    REQUIRE(file.ok());
    CHECK(file->name == "c.safetensors");
    const std::string path = folder + "/" + WrittenName(*file);
    CHECK(TextOf(path).back() == (writer == &first ? '1' : '2'));
    CHECK(*SumOfFile(path, file->bytes) == file->sum);
  }
}

TEST_CASE("the data of a written file begin at a multiple of 64", "[safetensors]") {
  for (int length = 1; length < 70; ++length) {
    const auto header =
        FormatTensorHeader({{std::string(static_cast<size_t>(length), 'n'), "F32", {1}}}, {});
    REQUIRE(header.ok());
    CHECK(header->size() % 64 == 0);
    CHECK(ParseTensorHeader("x", absl::string_view(*header).substr(8), 4).ok());
  }
}

TEST_CASE("tensors that no file can have are not written", "[safetensors]") {
  CHECK(FormatTensorHeader({{"a", "F32", {1}}, {"a", "F32", {1}}}, {}).status().message() ==
        "tensor \"a\": is given twice, or has the metadata's name");
  CHECK_FALSE(FormatTensorHeader({{"__metadata__", "F32", {1}}}, {}).ok());
  CHECK(FormatTensorHeader({{"a", "F33", {1}}}, {}).status().message() ==
        "tensor \"a\": [1] of F33 is no size that a file can have");
  CHECK_FALSE(FormatTensorHeader({{"a", "F32", {-1}}}, {}).ok());
  CHECK_FALSE(FormatTensorHeader({{"a", "F32", {int64_t{1} << 40, int64_t{1} << 40}}}, {}).ok());
  const int64_t half = int64_t{1} << 60;
  CHECK_FALSE(FormatTensorHeader({{"a", "F32", {half}}, {"b", "F32", {half}}}, {}).ok());
}

TEST_CASE("whatever is wrong with a header is said with the tensor's name", "[safetensors]") {
  const std::string good = R"({"w":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})";
  REQUIRE(ErrorOf(good, 8).empty());
  REQUIRE(ErrorOf(good + "   ", 8).empty());
  const struct {
    const char* header;
    const char* error;
  } cases[] = {
      {"", "\"x.safetensors\": is no safetensors file: its header does not begin with {"},
      {" {}", "\"x.safetensors\": is no safetensors file: its header does not begin with {"},
      {"{", "\"x.safetensors\": header: is not JSON"},
      {R"({"w":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}} x)",
       "\"x.safetensors\": header: is not JSON"},
      {R"({"w":3})", "\"x.safetensors\": tensor \"w\": is number, want an object"},
      {R"({"w":{"shape":[2],"data_offsets":[0,8]}})",
       "\"x.safetensors\": tensor \"w\".dtype: is missing, want a string"},
      {R"({"w":{"dtype":"F31","shape":[2],"data_offsets":[0,8]}})",
       "\"x.safetensors\": tensor \"w\".dtype: is \"F31\", which is no dtype of safetensors"},
      {R"({"w":{"dtype":"F32","shape":[2],"data_offsets":[0,8],"x":1}})",
       "\"x.safetensors\": tensor \"w\".x: unknown key"},
      {R"({"w":{"dtype":"F32","shape":[2,-1],"data_offsets":[0,8]}})",
       "\"x.safetensors\": tensor \"w\".shape: want at most 16 integers that are not negative"},
      {R"({"w":{"dtype":"F32","shape":[2.0],"data_offsets":[0,8]}})",
       "\"x.safetensors\": tensor \"w\".shape: want at most 16 integers that are not negative"},
      {R"({"w":{"dtype":"F32","shape":[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,2],"data_offsets":[0,8]}})",
       "\"x.safetensors\": tensor \"w\".shape: want at most 16 integers that are not negative"},
      {R"({"w":{"dtype":"F32","shape":[2],"data_offsets":[0]}})",
       "\"x.safetensors\": tensor \"w\".data_offsets: want two integers that are not negative"},
      {R"({"w":{"dtype":"F32","shape":[2],"data_offsets":[8,0]}})",
       "\"x.safetensors\": tensor \"w\".data_offsets: are [8, 0], want them in order and within 8 "
       "bytes of data"},
      {R"({"w":{"dtype":"F32","shape":[3],"data_offsets":[0,12]}})",
       "\"x.safetensors\": tensor \"w\".data_offsets: are [0, 12], want them in order and within 8 "
       "bytes of data"},
      {R"({"w":{"dtype":"F32","shape":[3],"data_offsets":[0,8]}})",
       "\"x.safetensors\": tensor \"w\": data_offsets hold 8 bytes, but [3] of F32 is 12"},
      {R"({"w":{"dtype":"F32","shape":[4611686018427387904,4],"data_offsets":[0,8]}})",
       "\"x.safetensors\": tensor \"w\": data_offsets hold 8 bytes, but [4611686018427387904, 4] "
       "of F32 overflows"},
      {R"({"w":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})",
       "\"x.safetensors\": tensor \"w\": data_offsets begin at 4, want 0; nothing fills the hole"},
      {R"({"v":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},
           "w":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})",
       "\"x.safetensors\": tensor \"w\": data_offsets begin at 4, want 8; it overlaps the one "
       "before"},
      {R"({"w":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})",
       "\"x.safetensors\": data are 8 bytes, but the tensors fill 4"},
      {R"({"w":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},
           "w":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})",
       "\"x.safetensors\": header: \"w\" is given twice"},
      {R"({"w":{"dtype":"F32","dtype":"F32","shape":[2],"data_offsets":[0,8]}})",
       "\"x.safetensors\": header: \"dtype\" is given twice"},
      {R"({"__metadata__":{"a":1},"w":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})",
       "\"x.safetensors\": __metadata__.a: is number, want a string"},
      {R"({"__metadata__":[],"w":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})",
       "\"x.safetensors\": __metadata__: is array, want an object"},
  };
  for (const auto& c : cases) CHECK(ErrorOf(c.header, 8) == c.error);
}

TEST_CASE("a header nested without end is refused", "[safetensors]") {
  const std::string deep = "{\"a\":" + std::string(1'000'000, '[');
  CHECK(ErrorOf(deep, 8) == "\"x.safetensors\": header: is nested more than 16 deep");
}

TEST_CASE("a file that is shorter than its length says is refused before it is read",
          "[safetensors]") {
  const std::string path = EmptyFolder() + "/c.safetensors";
  const auto error = [&](const std::string& bytes) {
    WriteText(path, bytes);
    const auto reader = SafetensorsReader::Open(path);
    return reader.ok() ? std::string() : std::string(reader.status().message());
  };
  CHECK(error("") == "\"" + path + "\": is no safetensors file: it has 0 bytes");
  CHECK(error("1234567") == "\"" + path + "\": is no safetensors file: it has 7 bytes");
  CHECK(error(std::string(8, '\xff') + "{}") ==
        "\"" + path + "\": header is 18446744073709551615 bytes, want at most 2");
  CHECK(error(WithLength("{}", "").substr(0, 9)) ==
        "\"" + path + "\": header is 2 bytes, want at most 1");
  std::string huge = WithLength("{}", "");
  const uint64_t length = 100000001;
  std::memcpy(huge.data(), &length, sizeof(length));
  WriteText(path, huge);
  std::filesystem::resize_file(path, length + 8);
  CHECK(SafetensorsReader::Open(path).status().message() ==
        "\"" + path + "\": header is 100000001 bytes, want at most 100000000");
  CHECK(error(WithLength("{}", "")).empty());
  CHECK(SafetensorsReader::Open(path + "-not-there").status().code() ==
        absl::StatusCode::kNotFound);
  CHECK_FALSE(SafetensorsReader::Open("/").ok());
}

}  // namespace
}  // namespace tessera
