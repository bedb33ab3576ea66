// Every reader against files that are cut, changed or made of noise. Whatever the bytes, a reader
// answers with a table that keeps its promises or with a status that names the file.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <functional>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "tests/worker/data/files.h"
#include "worker/data/cifar.h"
#include "worker/data/csv.h"
#include "worker/data/idx.h"
#include "worker/data/libsvm.h"
#include "worker/data/npy.h"
#include "worker/data/text.h"
#include "worker/data/tokens.h"
#include "worker/data/xc.h"

namespace tessera {
namespace {

constexpr int64_t kBytesMax = 1 << 20;

struct Format {
  std::string name;
  // A well-formed file.
  std::string bytes;
  std::function<absl::StatusOr<Table>(const std::string& path)> read;
  // A text that is cut between rows, or within the last number, is well-formed too.
  bool text = false;
};

TableSpec Spec(int64_t features, bool class_sets = false) {
  TableSpec spec;
  spec.features = features;
  spec.classes = 3;
  spec.class_sets = class_sets;
  spec.bytes_max = kBytesMax;
  return spec;
}

std::vector<Format> Formats() {
  const std::string features = WriteFile("good_features", Idx(8, {3, 2}, "\1\2\3\4\5\6"));
  const std::string labels = WriteFile("good_labels", Idx(8, {3}, std::string("\1\2\0", 3)));
  const auto read_idx = [=](const std::string& path) { return ReadIdx({path}, {labels}, Spec(2)); };
  std::string floats, doubles;
  for (int i = 0; i < 6; ++i) floats += BigEndian(0x3f800000 + i, 4);
  for (int i = 0; i < 6; ++i) doubles += LittleEndian(0x3ff0000000000000 + i, 8);
  const std::string npy_labels =
      WriteFile("good_labels.npy", Npy("|u1", "(3,)", std::string("\1\2\0", 3)));
  const auto read_npy = [=](const std::string& path) {
    return ReadNpy({path}, {npy_labels}, Spec(2));
  };
  const std::string npy_features =
      WriteFile("good_features.npy", Npy("|u1", "(3, 2)", "\1\2\3\4\5\6"));
  return {
      {"idx_u8", Idx(8, {3, 1, 2}, "\1\2\3\4\5\6"), read_idx},
      {"idx_f32", Idx(13, {3, 2}, floats), read_idx},
      {"idx_labels", Idx(8, {3}, std::string("\1\2\0", 3)),
       [=](const std::string& path) { return ReadIdx({features}, {path}, Spec(2)); }},
      {"npy_u8", NpyOfHeader("{'descr':'|u1','fortran_order':False,'shape':(3,2)}", "\1\2\3\4\5\6"),
       read_npy},
      {"npy_f64",
       NpyOfHeader("{'shape':(3,1,2), 'descr':'<f8', 'fortran_order':False}\n", doubles, 2),
       read_npy},
      {"npy_labels",
       NpyOfHeader("{'descr':'<i2','fortran_order':False,'shape':(3,1)}",
                   std::string("\1\0\2\0\0\0", 6)),
       [=](const std::string& path) { return ReadNpy({npy_features}, {path}, Spec(2)); }},
      {"csv", "a,b,c\n1,2.5,0\n-3,4e1,2\r\n5,6,1\n",
       [](const std::string& path) { return ReadCsv({path}, Spec(2)); }, true},
      {"libsvm", "0 1:1 2:-2\n2 2:0.5 # last\n1\n",
       [](const std::string& path) {
         std::optional<LabelMap> map;
         return ReadLibsvm({path}, Spec(2), map);
       },
       true},
      {"libsvm_sets", "0,2 1:1 2:2\n 2:5\n1\n",
       [](const std::string& path) {
         std::optional<LabelMap> map;
         return ReadLibsvm({path}, Spec(2, true), map);
       },
       true},
      {"xc", "3 2 3\n0,2 0:1 1:2\n 1:5\n1\n",
       [](const std::string& path) { return ReadXc({path}, Spec(2, true)); }, true},
      {"cifar", CifarRecord(0, 1) + CifarRecord(2, 9),
       [](const std::string& path) { return ReadCifar({path}, Spec(3072)); }},
      {"tokens", std::string("\1\0\2\0\0\0\1\0\1\0", 10),
       [](const std::string& path) { return ReadTokens({path}, Spec(2), TokenType::kUint16); },
       true},
      {"text", "a\xc3\xa9\na\n",
       [](const std::string& path) {
         std::optional<Characters> characters;
         return ReadCharacters({path}, Spec(2), &characters);
       },
       true},
  };
}

// What table.h promises of every table.
void CheckTable(const Table& table) {
  REQUIRE(table.bytes() <= kBytesMax);
  if (table.is_tokens()) {
    const TokenRows& rows = *std::get<HeldTokens>(table.values);
    std::vector<int32_t> tokens(rows.tokens.size());
    rows.tokens.Read(0, rows.tokens.size(), tokens.data());
    for (const int32_t token : tokens) REQUIRE((token >= 0 && token < 3));
    REQUIRE(table.rows == (rows.tokens.size() - 1) / 2);
    return;
  }
  for (int64_t i = 0; i < table.rows; ++i) {
    const std::vector<float> row = Row(table, i);
    REQUIRE(std::all_of(row.begin(), row.end(), [](float value) { return std::isfinite(value); }));
  }
  if (const auto* classes = std::get_if<Classes>(&table.labels)) {
    REQUIRE(static_cast<int64_t>(classes->size()) == table.rows);
    for (const int32_t c : *classes) REQUIRE((c >= 0 && c < 3));
  } else {
    const auto& sets = std::get<ClassSets>(table.labels);
    REQUIRE(static_cast<int64_t>(sets.begin.size()) == table.rows + 1);
    for (const int32_t c : sets.classes) REQUIRE((c >= 0 && c < 3));
  }
}

// Reads the bytes, plain or gzipped, and checks what comes back. True where it is a table.
bool Survives(const Format& format, const std::string& bytes, const std::string& suffix) {
  const std::string path = WriteFile("malformed_" + format.name + suffix, bytes);
  const absl::StatusOr<Table> table = format.read(path);
  if (table.ok()) {
    CheckTable(*table);
    return true;
  }
  REQUIRE(Text(table.status()).find("malformed_" + format.name) != std::string::npos);
  REQUIRE(table.status().code() != absl::StatusCode::kUnknown);
  return false;
}

TEST_CASE("the files that the other cases break are well-formed", "[malformed_files]") {
  for (const Format& format : Formats()) {
    CAPTURE(format.name);
    REQUIRE(Survives(format, format.bytes, ""));
    REQUIRE(Survives(format, Gzip(format.bytes), ".gz"));
  }
}

TEST_CASE("a file that is cut at any byte is refused, or is a shorter text", "[malformed_files]") {
  for (const Format& format : Formats()) {
    // Records of thousands of equal steps: every 64th byte and the ends of records will do.
    const size_t stride = format.bytes.size() > 1000 ? 64 : 1;
    for (size_t size = 0; size < format.bytes.size(); size += size < 64 ? 1 : stride) {
      CAPTURE(format.name, size);
      const bool whole = Survives(format, format.bytes.substr(0, size), "");
      const bool may_be_whole = format.text || (format.name == "cifar" && size % 3073 == 0);
      REQUIRE((may_be_whole || !whole));
      REQUIRE(Survives(format, Gzip(format.bytes.substr(0, size)), ".gz") == whole);
    }
  }
}

TEST_CASE("a gzip file that is cut at any byte is refused in every format", "[malformed_files]") {
  for (const Format& format : Formats()) {
    const std::string zipped = Gzip(format.bytes);
    for (size_t size = 0; size < zipped.size(); ++size) {
      CAPTURE(format.name, size);
      REQUIRE_FALSE(Survives(format, zipped.substr(0, size), ".gz"));
    }
  }
}

std::string Mutated(std::string bytes, std::mt19937& random) {
  static constexpr char kTelling[] = "0123456789,:.-+eE \n\r\t#\"\0nx";
  for (int changes = 1 + random() % 4; changes > 0; --changes) {
    const size_t at = bytes.empty() ? 0 : random() % bytes.size();
    const char byte = random() % 2 == 0 ? static_cast<char>(random())
                                        : kTelling[random() % (sizeof kTelling - 1)];
    switch (random() % 4) {
      case 0:
        if (!bytes.empty()) bytes[at] = byte;
        break;
      case 1:
        bytes.insert(at, 1, byte);
        break;
      case 2:
        if (!bytes.empty()) bytes.erase(at, 1 + random() % 4);
        break;
      default:
        // The header of binary files is where sizes are.
        if (bytes.size() > 16) bytes[random() % 16] = byte;
    }
  }
  return bytes;
}

TEST_CASE("changed bytes give a sound table or a status, whatever the seed", "[malformed_files]") {
  for (const Format& format : Formats()) {
    const int seeds = format.bytes.size() > 1000 ? 200 : 2000;
    for (int seed = 0; seed < seeds; ++seed) {
      std::mt19937 random(seed);
      CAPTURE(format.name, seed);
      const std::string bytes = Mutated(format.bytes, random);
      const bool sound = Survives(format, bytes, "");
      if (seed % 4 == 0) REQUIRE(Survives(format, Gzip(bytes), ".gz") == sound);
      if (seed % 4 == 1) Survives(format, Mutated(Gzip(format.bytes), random), ".gz");
    }
  }
}

TEST_CASE("noise gives a status or a sound table, whatever the seed", "[malformed_files]") {
  for (const Format& format : Formats()) {
    for (int seed = 0; seed < 500; ++seed) {
      std::mt19937 random(1000 + seed);
      std::string noise(random() % 300, '\0');
      for (char& byte : noise) byte = static_cast<char>(random());
      CAPTURE(format.name, seed);
      Survives(format, noise, "");
      Survives(format, noise, ".gz");
    }
  }
}

}  // namespace
}  // namespace tessera
