#include "worker/data/byte_source.h"

#include <sys/stat.h>

#include <catch2/catch.hpp>
#include <random>
#include <string>

#include "tests/worker/data/files.h"

namespace tessera {
namespace {

// The whole content, read in pieces of `piece` bytes.
absl::StatusOr<std::string> ReadAll(const std::string& path, size_t piece) {
  auto source = ByteSource::Open(path);
  if (!source.ok()) return source.status();
  std::string content, buffer(piece, '\0');
  for (;;) {
    const absl::StatusOr<size_t> got = (*source)->Read(&buffer[0], piece);
    if (!got.ok()) return got.status();
    content.append(buffer, 0, *got);
    if (*got < piece) return content;
  }
}

// Compresses neither well nor badly, and is longer than the reader's buffer.
std::string SomeBytes(size_t count) {
  std::mt19937 random(5);
  std::string bytes;
  while (bytes.size() < count) bytes += std::to_string(random());
  return bytes;
}

TEST_CASE("a plain and a gzip file have the same content, in pieces of any size", "[byte_source]") {
  const std::string bytes = SomeBytes(1 << 20);
  const std::string plain = WriteFile("plain", bytes);
  const std::string zipped = WriteFile("zipped.gz", Gzip(bytes));
  for (const size_t piece : {7u, 4096u, 3000000u}) {
    REQUIRE(*ReadAll(plain, piece) == bytes);
    REQUIRE(*ReadAll(zipped, piece) == bytes);
  }
}

TEST_CASE("gzip members follow one another, empty ones too", "[byte_source]") {
  const std::string path = WriteFile("members.gz", Gzip("one ") + Gzip("") + Gzip("two"));
  REQUIRE(*ReadAll(path, 3) == "one two");
  REQUIRE(ReadAll(WriteFile("empty_content.gz", Gzip("")), 8)->empty());
}

TEST_CASE("zeros behind a gzip member are skipped, and nothing else", "[byte_source]") {
  const std::string zeros(700000, '\0');
  for (const std::string& pad : {std::string(1, '\0'), zeros}) {
    for (const size_t piece : {3u, 100u}) {
      REQUIRE(*ReadAll(WriteFile("padded.gz", Gzip("one two") + pad), piece) == "one two");
    }
    REQUIRE(*ReadAll(WriteFile("two.gz", Gzip("one ") + pad + Gzip("two") + pad), 3) == "one two");
    REQUIRE(ReadAll(WriteFile("tail.gz", Gzip("x") + pad + "tail"), 10).status().code() ==
            absl::StatusCode::kDataLoss);
    REQUIRE(ReadAll(WriteFile("only.gz", pad), 10).status().code() == absl::StatusCode::kDataLoss);
  }
  auto source = *ByteSource::Open(WriteFile("padded.gz", Gzip("abc") + zeros));
  char three[3];
  REQUIRE(source->ReadExactly(three, 3, "three").ok());
  REQUIRE(source->ExpectEnd().ok());
}

TEST_CASE("a gzip file that is cut anywhere is data loss", "[byte_source]") {
  const std::string whole =
      Gzip("some content that is long enough to have a few bytes of deflate data");
  for (size_t size = 0; size < whole.size(); ++size) {
    const auto content = ReadAll(WriteFile("cut.gz", whole.substr(0, size)), 1000);
    CAPTURE(size);
    REQUIRE(content.status().code() == absl::StatusCode::kDataLoss);
    REQUIRE(Text(content.status()).find("cut.gz: gzip data is bad at byte ") != std::string::npos);
  }
}

TEST_CASE("a gzip file with one flipped bit in its data or trailer is data loss", "[byte_source]") {
  const std::string content = "some content, some content, some more content";
  const std::string whole = Gzip(content);
  // The header's ten bytes hold a time and flags that may be anything.
  for (size_t i = 10; i < whole.size(); ++i) {
    for (int bit = 0; bit < 8; ++bit) {
      std::string bad = whole;
      bad[i] = static_cast<char>(bad[i] ^ (1 << bit));
      CAPTURE(i, bit);
      REQUIRE(ReadAll(WriteFile("flipped.gz", bad), 1000).status().code() ==
              absl::StatusCode::kDataLoss);
    }
  }
}

TEST_CASE("what is no gzip, or has more behind it, is data loss under a name in .gz",
          "[byte_source]") {
  REQUIRE(ReadAll(WriteFile("text.gz", "just text"), 10).status().code() ==
          absl::StatusCode::kDataLoss);
  REQUIRE(ReadAll(WriteFile("tail.gz", Gzip("x") + "tail"), 10).status().code() ==
          absl::StatusCode::kDataLoss);
}

TEST_CASE("ExpectEnd verifies the gzip trailer behind the last byte", "[byte_source]") {
  std::string bad = Gzip("abc");
  bad[bad.size() - 5] ^= 1;
  auto source = *ByteSource::Open(WriteFile("trailer.gz", bad));
  char three[3];
  // Whether the read or the end meets the trailer is zlib's affair; one of them must.
  const absl::Status read = source->ReadExactly(three, 3, "three");
  REQUIRE_FALSE((read.ok() && source->ExpectEnd().ok()));
}

TEST_CASE("content that is short or long is reported with its byte", "[byte_source]") {
  const std::string path = WriteFile("five", "12345");
  auto source = *ByteSource::Open(path);
  char bytes[8];
  REQUIRE(source->ReadExactly(bytes, 2, "a pair").ok());
  REQUIRE(Text(source->ReadExactly(bytes, 8, "a header")) ==
          path + ": content ends at byte 5, want 5 more for a header");
  source = *ByteSource::Open(path);
  REQUIRE(source->ReadExactly(bytes, 4, "four").ok());
  REQUIRE(Text(source->ExpectEnd()) == path + ": content goes on after byte 4, want its end there");
}

TEST_CASE("a missing file, a directory and a pipe are refused without waiting", "[byte_source]") {
  REQUIRE(ByteSource::Open("/nonexistent/file").status().code() == absl::StatusCode::kNotFound);
  REQUIRE(ByteSource::Open("/").status().code() == absl::StatusCode::kInvalidArgument);
  REQUIRE(ByteSource::Open("/dev/zero").status().code() == absl::StatusCode::kInvalidArgument);
  const std::string pipe = WriteFile("pipe", "") + ".fifo";
  REQUIRE(mkfifo(pipe.c_str(), 0600) == 0);
  REQUIRE(Text(ByteSource::Open(pipe).status()) == pipe + ": is not a regular file");
}

}  // namespace
}  // namespace tessera
