#include "worker/data/idx.h"

#include <sys/resource.h>

#include <catch2/catch.hpp>
#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include "common/base/sanitizer.h"
#include "tests/worker/data/files.h"

namespace tessera {
namespace {

using Floats = std::vector<float>;

TableSpec Spec(int64_t features, int64_t classes) {
  TableSpec spec;
  spec.features = features;
  spec.classes = classes;
  return spec;
}

std::string TwoLabels() { return WriteFile("labels", Idx(8, {2}, "\1\2")); }

// Two rows of these two-value rows with labels 1 and 2.
absl::StatusOr<Table> Read(const std::string& features, const TableSpec& spec = Spec(2, 3)) {
  return ReadIdx({WriteFile("features", features)}, {TwoLabels()}, spec);
}

template <typename Float>
std::string Bits(Float value) {
  uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof value);
  return BigEndian(bits, sizeof value);
}

TEST_CASE("u8 values stay u8 and rows of any rank are flat", "[idx]") {
  const auto table = Read(Idx(8, {2, 1, 2}, "\x01\x02\xfe\xff"));
  REQUIRE(table.ok());
  REQUIRE(std::get<U8Values>(table->values) == U8Values{1, 2, 254, 255});
  REQUIRE(std::get<Classes>(table->labels) == Classes{1, 2});
  REQUIRE(table->rows == 2);
  REQUIRE(table->bytes() == 4 + 8);
}

TEST_CASE("values of every other type become f32", "[idx]") {
  const auto i8 = Read(Idx(0x09, {2, 2}, "\x01\x80\xff\x7f"));
  REQUIRE(std::get<F32Values>(i8->values) == Floats{1, -128, -1, 127});
  const auto i16 = Read(Idx(0x0b, {2, 2}, std::string("\x01\x00\x80\x00\xff\xff\x00\x01", 8)));
  REQUIRE(std::get<F32Values>(i16->values) == Floats{256, -32768, -1, 1});
  const auto i32 = Read(Idx(
      0x0c, {2, 2},
      BigEndian(1, 4) + BigEndian(0xffffffff, 4) + BigEndian(0x80000000, 4) + BigEndian(65536, 4)));
  REQUIRE(std::get<F32Values>(i32->values) == Floats{1, -1, -2147483648.f, 65536});
  const auto f32 = Read(Idx(0x0d, {2, 2}, Bits(1.5f) + Bits(-0.1f) + Bits(1e-40f) + Bits(3e38f)));
  REQUIRE(std::get<F32Values>(f32->values) == Floats{1.5f, -0.1f, 1e-40f, 3e38f});
  const auto f64 = Read(Idx(0x0e, {2, 2}, Bits(1.5) + Bits(-0.1) + Bits(1e-300) + Bits(3e38)));
  REQUIRE(std::get<F32Values>(f64->values) == Floats{1.5f, -0.1f, 0, 3e38f});
}

TEST_CASE("values that are no finite float are refused with their row", "[idx]") {
  const std::string path = WriteFile("features", "");
  REQUIRE(Text(Read(Idx(0x0d, {2, 2}, Bits(1.f) + Bits(1.f) + Bits(1.f) + Bits(NAN))).status()) ==
          path + ": row 1 value 1 is nan, want a finite number that fits a float");
  REQUIRE(Text(Read(Idx(0x0e, {2, 2}, Bits(1.) + Bits(1e39) + Bits(1.) + Bits(1.))).status()) ==
          path + ": row 0 value 1 is 1e+39, want a finite number that fits a float");
}

TEST_CASE("a header that is no IDX header is refused with its bytes", "[idx]") {
  REQUIRE(Text(Read("\x89PNG and so on").status()).find("byte 0: IDX header is 89 50 4e 47") !=
          std::string::npos);
  REQUIRE_FALSE(Read(Idx(0x0a, {2, 2}, "\1\2\3\4")).ok());
  REQUIRE(Text(Read(Idx(8, {}, "")).status()).find("byte 3: rank is 0, want 1 to 8") !=
          std::string::npos);
  REQUIRE(Text(Read(Idx(8, {2, 1, 1, 1, 1, 1, 1, 1, 2}, "\1\2\3\4")).status()).find("rank is 9") !=
          std::string::npos);
}

TEST_CASE("sizes that do not fit the file are refused before memory is asked for", "[idx]") {
  // 2^31 rows; a product beyond 64 bits; a row beyond the limit; no rows.
  REQUIRE(Text(Read(Idx(8, {0x80000000u, 2}, "")).status()).find("byte 4: size 0 is 2147483648") !=
          std::string::npos);
  REQUIRE(Text(Read(Idx(8, {2, 0xffffffffu, 0xffffffffu, 0xffffffffu}, "")).status())
              .find("byte 8: size 1 is 4294967295, want 1 to 16777216") != std::string::npos);
  REQUIRE(Text(Read(Idx(8, {2, 4096, 4097}, "")).status())
              .find("byte 12: size 2 is 4097, want 1 to 4096") != std::string::npos);
  REQUIRE_FALSE(Read(Idx(8, {0, 2}, "")).ok());
  REQUIRE_FALSE(Read(Idx(8, {2, 0}, "")).ok());
  REQUIRE(Text(Read(Idx(14, {2147483647u, 16777216u}, "")).status())
              .find("content is 12 bytes, want ") != std::string::npos);
}

TEST_CASE("a gzip file cannot claim more than it could inflate to", "[idx]") {
  const std::string path = WriteFile("claim.gz", Gzip(Idx(8, {100000000, 2}, "\1\2")));
  const auto table = ReadIdx({path}, {TwoLabels()}, Spec(2, 3));
  REQUIRE(Text(table.status()).find("content is at most ") != std::string::npos);
  REQUIRE(Text(table.status()).find("want 200000012 for 100000000 x 2 values of 1 bytes") !=
          std::string::npos);
}

TEST_CASE("content behind the last value is refused, in a gzip file too", "[idx]") {
  REQUIRE_FALSE(Read(Idx(8, {2, 2}, "\1\2\3\4\5")).ok());
  const std::string path = WriteFile("long.gz", Gzip(Idx(8, {2, 2}, "\1\2\3\4\5")));
  REQUIRE(Text(ReadIdx({path}, {TwoLabels()}, Spec(2, 3)).status())
              .find("content goes on after byte 16") != std::string::npos);
}

TEST_CASE("a row size that is not the model's input names both", "[idx]") {
  const std::string path = WriteFile("features", "");
  REQUIRE(
      Text(Read(Idx(8, {2, 1, 2}, "\1\2\3\4"), Spec(784, 3)).status()) ==
      path +
          ": row size is 2 (2 x 1 x 2 with the rows first), want 784, the product of model.input");
}

TEST_CASE("labels must be one integer for each row, below the classes", "[idx]") {
  const std::string features = WriteFile("features", Idx(8, {2, 2}, "\1\2\3\4"));
  const auto read = [&](const std::string& labels) {
    return Text(ReadIdx({features}, {WriteFile("labels", labels)}, Spec(2, 3)).status());
  };
  const std::string path = WriteFile("labels", "");
  REQUIRE(read(Idx(8, {2}, "\2\3")) ==
          path + ": row 1: label is 3, want 0 to 2 (the model's classes)");
  REQUIRE(read(Idx(9, {2}, "\xff\1")) ==
          path + ": row 0: label is -1, want 0 to 2 (the model's classes)");
  REQUIRE(read(Idx(8, {3}, "\1\1\1")) ==
          path + ": has 3 labels, want 2, one for each row of " + features);
  REQUIRE(read(Idx(8, {2, 1}, "\1\1")).find("want an integer type and rank 1") !=
          std::string::npos);
  REQUIRE(read(Idx(13, {2}, Bits(1.f) + Bits(1.f))).find("want an integer type") !=
          std::string::npos);
  REQUIRE(read(Idx(12, {2}, BigEndian(2, 4) + BigEndian(0, 4))).empty());
}

TEST_CASE("a table beyond the memory limit is refused", "[idx]") {
  TableSpec spec = Spec(2, 3);
  spec.bytes_max = 12;
  REQUIRE(Read(Idx(8, {2, 2}, "\1\2\3\4"), spec).ok());
  spec.bytes_max = 11;
  REQUIRE(Read(Idx(8, {2, 2}, "\1\2\3\4"), spec).status().code() ==
          absl::StatusCode::kResourceExhausted);
}

// Lets this process have so many addresses; as many as before at the end.
class AddressLimit {
 public:
  explicit AddressLimit(size_t bytes) {
    REQUIRE(getrlimit(RLIMIT_AS, &before_) == 0);
    const struct rlimit limit = {bytes, before_.rlim_max};
    REQUIRE(setrlimit(RLIMIT_AS, &limit) == 0);
  }
  ~AddressLimit() { setrlimit(RLIMIT_AS, &before_); }

 private:
  struct rlimit before_;
};

TEST_CASE("what a gzip file claims is not asked for before it has delivered", "[idx]") {
  if (kHasSanitizer) return;  // They take far more addresses themselves.
  const std::string labels = WriteFile("labels512", Idx(8, {512}, std::string(512, '\1')));
  const TableSpec spec = Spec(1 << 24, 3);
  // 8 GiB of values: no more than 9 MB can inflate to.
  const std::string claim =
      WriteFile("claim.gz", Gzip(Idx(8, {512, 1 << 24}, "\1\2")) + std::string(9 << 20, 'x'));
  const std::string plain = WriteFile("claim", Idx(8, {512, 1 << 24}, ""));
  std::filesystem::resize_file(plain, (int64_t{8} << 30) + 12);
  const AddressLimit limit(size_t{2} << 30);
  REQUIRE(ReadIdx({claim}, {labels}, spec).status().code() == absl::StatusCode::kDataLoss);
  const absl::Status status = ReadIdx({plain}, {labels}, spec).status();
  REQUIRE(status.code() == absl::StatusCode::kResourceExhausted);
  REQUIRE(Text(status) ==
          plain +
              ": no memory for 512 x 16777216 values, 8589936640 bytes with their labels, as its "
              "header claims");
}

TEST_CASE("files of many chunks are read whole", "[idx]") {
  std::string values, labels;
  for (int i = 0; i < 200000; ++i) values.push_back(static_cast<char>(i * 7));
  for (int i = 0; i < 100000; ++i) labels.push_back(static_cast<char>(i % 3));
  const auto table = ReadIdx({WriteFile("many.gz", Gzip(Idx(8, {100000, 2}, values)))},
                             {WriteFile("many_labels", Idx(8, {100000}, labels))}, Spec(2, 3));
  REQUIRE(table.ok());
  REQUIRE(std::string(std::get<U8Values>(table->values).begin(),
                      std::get<U8Values>(table->values).end()) == values);
  REQUIRE(std::get<Classes>(table->labels)[99999] == 0);
  REQUIRE(std::get<Classes>(table->labels)[99998] == 2);
}

}  // namespace
}  // namespace tessera
