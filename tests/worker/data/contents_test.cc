// Files whose contents are not what their names or the job say: the same rules, and the same words, in every format.
#include <catch2/catch.hpp>
#include <string>
#include <utility>
#include <vector>

#include "tests/worker/data/files.h"
#include "worker/data/dataset.h"
#include "worker/data/load_datasets.h"

namespace tessera {
namespace {

struct Format {
  std::string name;
  // Of features, and of labels where they are apart.
  std::string bytes;
  std::string labels;
  ModelEnds ends;
  bool text = false;
  // Any text may be such a file.
  bool any_text = false;
};

ModelEnds TokenEnds(int64_t vocabulary) {
  ModelEnds ends;
  ends.tokens = true;
  ends.inputs = ends.places = 2;
  ends.outputs = vocabulary;
  return ends;
}

// Each a row of class 0 and one of class 1.
std::vector<Format> Formats() {
  const std::string two = std::string("\0\1", 2),
                    floats = LittleEndian(0x3f800000, 4) + LittleEndian(0, 4);
  return {
      {"idx", Idx(8, {2, 2}, "\1\2\3\4"), Idx(8, {2}, two), {2, 2, false}},
      {"npy", Npy("<f4", "(2, 1)", floats), Npy("|u1", "(2,)", two), {1, 2, false}},
      {"csv", "1,2,0\n3,4,1\n", "", {2, 2, false}, true},
      {"libsvm", "0 1:1\n1 2:1\n", "", {2, 2, false}, true},
      {"xc", "2 2 2\n0 0:1\n1 1:1\n", "", {2, 2, false}, true},
      {"cifar", CifarRecord(0, 1) + CifarRecord(1, 9), "", {3072, 2, false}},
      {"tokens", std::string("\1\0\2\0\0\0\1\0\1\0", 10), "", TokenEnds(65536)},
      {"text", "a text", "", TokenEnds(500), false, true},
  };
}

v1::Data JobOf(const Format& format, const std::string& train, const std::string& test) {
  v1::Data data;
  data.set_format(format.name);
  data.mutable_train()->add_features(train);
  data.mutable_test()->add_features(test);
  if (format.labels.empty()) return data;
  const std::string labels = WriteFile("labels", format.labels);
  data.mutable_train()->add_labels(labels);
  data.mutable_test()->add_labels(labels);
  return data;
}

// What is said of training features with these contents, behind their path; "" where they are read.
std::string Said(const Format& format, const std::string& name, absl::string_view bytes) {
  const std::string path = WriteFile(name, bytes), test = WriteFile("test", format.bytes);
  const auto data = LoadDatasets(JobOf(format, path, test), format.ends);
  if (data.ok()) {
    const auto plain = LoadDatasets(JobOf(format, test, test), format.ends);
    REQUIRE(data->train.Sum() == plain->train.Sum());
    return "";
  }
  const std::string message = Text(data.status());
  REQUIRE(message.substr(0, path.size() + 2) == path + ": ");
  return message.substr(path.size() + 2);
}

TEST_CASE("gzip is inflated whatever the file's name", "[contents]") {
  for (const Format& format : Formats()) {
    CAPTURE(format.name);
    REQUIRE(Said(format, "plain", format.bytes).empty());
    REQUIRE(Said(format, "named.gz", Gzip(format.bytes)).empty());
    REQUIRE(Said(format, "unnamed", Gzip(format.bytes)).empty());
  }
}

TEST_CASE("a name in .gz of what is no gzip is told in every format", "[contents]") {
  for (const Format& format : Formats()) {
    CAPTURE(format.name);
    REQUIRE(
        Said(format, "named.gz", format.bytes) ==
        "gzip data is bad at byte 0 of the file: its name ends in .gz, and its content is no gzip; "
        "give it its name without .gz, or compress it");
  }
}

TEST_CASE("an empty file is told in every format", "[contents]") {
  for (const Format& format : Formats()) {
    CAPTURE(format.name);
    REQUIRE(Said(format, "empty", "") == "has no rows: it is empty, 0 bytes");
    REQUIRE(Said(format, "empty.gz", "") == "has no rows: it is empty, 0 bytes");
  }
}

TEST_CASE("what is no data is told by what it is, in every format, inflated or not", "[contents]") {
  struct Content {
    std::string bytes;
    std::string said;
  };
  std::string tar(512, 'x');
  tar.replace(257, 5, "ustar");
  const std::vector<Content> contents = {
      {"\x28\xb5\x2f\xfd and so on",
       "compressed by zstd, want data; unpack it with zstd -d, or compress it with gzip"},
      {std::string("\xfd"
                   "7zXZ\0...",
                   9),
       "compressed by xz, want data; unpack it with xz -d"},
      {"BZh91AY&SY...", "compressed by bzip2, want data"},
      {"PK\3\4...", "a ZIP archive, want data; unpack it; of an .npz save each array with np.save"},
      {tar, "a tar archive, want data; unpack it with tar -xf, and name the files in it"},
      {"\x89HDF\r\n\x1a\n", "an HDF5 file"},
      {"PAR1...", "a Parquet file"},
      {"\x80\x02}q\1(U", "a Python pickle, which is a program and is never run, want data"},
      {std::string("\x80\4\x95\x10\0\0\0\0\0\0\0.", 12), "a Python pickle"},
      {"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 12345\n",
       "a Git LFS pointer, not the file itself, want data; get the file with git lfs pull"},
      {"\n  <!DOCTYPE html>\n<html>404</html>\n",
       "an HTML or XML page, as a server sends it in place of a file, want data"},
      {"\xef\xbb\xbf<html><body>", "an HTML or XML page"},
      {"<?xml version=\"1.0\"?><Error><Code>AccessDenied</Code></Error>", "an HTML or XML page"},
      {"{\"code\":403,\"message\":\"no\"}", "JSON, as a server sends it in place of a file"},
  };
  for (const Format& format : Formats()) {
    for (const Content& content : contents) {
      const bool is_text = content.said.find("JSON") == 0 || content.said.find("an HTML") == 0;
      if (is_text && format.any_text) continue;
      CAPTURE(format.name, content.said);
      REQUIRE(Said(format, "other", content.bytes).find("content is " + content.said) == 0);
      REQUIRE(Said(format, "other.gz", content.bytes).find("content is " + content.said) == 0);
      REQUIRE(Said(format, "other.gz", Gzip(content.bytes))
                  .find("content is gzip of what is " + content.said) == 0);
    }
  }
}

TEST_CASE("pixels may begin as a page does", "[contents]") {
  for (const std::string start : {"{\"", "[{"}) {
    const std::string record = start + std::string(3071, '\1');
    const std::string path = WriteFile("pixels", record);
    v1::Data data;
    data.set_format("cifar");
    data.mutable_train()->add_features(path);
    data.mutable_test()->add_features(path);
    REQUIRE(LoadDatasets(data, {3072, 200, false}).ok());
  }
}

TEST_CASE("labels of such contents are told too", "[contents]") {
  for (Format format : Formats()) {
    if (format.labels.empty()) continue;
    CAPTURE(format.name);
    const std::string features = WriteFile("features", format.bytes);
    format.labels = "<html>";
    REQUIRE(Text(LoadDatasets(JobOf(format, features, features), format.ends).status())
                .find("labels: content is an HTML or XML page") != std::string::npos);
  }
}

TEST_CASE("text that is not UTF-8 is told in every format of text", "[contents]") {
  for (const Format& format : Formats()) {
    if (!format.text) continue;
    CAPTURE(format.name);
    std::string wide;
    for (const char c : format.bytes) wide += std::string(1, c) + '\0';
    REQUIRE(Said(format, "wide", "\xff\xfe" + wide)
                .find("content is text in UTF-16, want text in UTF-8; iconv") == 0);
    REQUIRE(
        Said(format, "wide", wide).find("content is no text, for its first line has zero bytes") ==
        0);
    REQUIRE(Said(format, "mark", "\xef\xbb\xbf" + format.bytes).empty());
    REQUIRE(Said(format, "array", Npy("<f4", "(2, 1)", "12345678"))
                .find("content is a NumPy file, want text") == 0);
  }
}

// Those whose files carry labels.
std::vector<Format> LabelledFormats() {
  std::vector<Format> formats;
  for (Format format : Formats()) {
    if (!format.ends.tokens) formats.push_back(std::move(format));
  }
  return formats;
}

// Row i has the label labels[i]; features do not matter.
std::string LabelsSaid(const Format& format, const std::vector<int>& labels, int classes) {
  std::string bytes, apart;
  const auto n = static_cast<uint32_t>(labels.size());
  if (format.name == "xc") bytes = std::to_string(n) + " 2 " + std::to_string(classes) + "\n";
  for (const int label : labels) {
    const std::string text = std::to_string(label);
    if (format.name == "csv") bytes += "1,2," + text + "\n";
    if (format.name == "libsvm") bytes += text + " 1:1\n";
    if (format.name == "xc") bytes += text + " 0:1\n";
    if (format.name == "cifar") bytes += CifarRecord(label, 0);
    apart += static_cast<char>(label);
  }
  Format changed = format;
  changed.ends.outputs = classes;
  if (format.name == "idx") {
    bytes = Idx(8, {n, 2}, std::string(2 * n, '\1'));
    changed.labels = Idx(9, {n}, apart);
  }
  if (format.name == "npy") {
    const std::string shape = "(" + std::to_string(n) + ",)";
    bytes = Npy("<f4", shape, std::string(4 * n, '\0'));
    changed.labels = Npy("|i1", shape, apart);
  }
  const std::string path = WriteFile("rows", bytes);
  const auto data = LoadDatasets(JobOf(changed, path, path), changed.ends);
  if (!data.ok()) return Text(data.status());
  std::string notes;
  for (const std::string& note : data->notes) notes += note + "\n";
  return notes;
}

TEST_CASE("labels that seem to start at 1 are told in every format, and are numbered in libsvm",
          "[contents]") {
  const std::string advice =
      "; the labels go from 1 to 3, so they seem to start at 1: subtract 1 from each";
  for (const Format& format : LabelledFormats()) {
    CAPTURE(format.name);
    const std::string said = LabelsSaid(format, {3, 1, 2, 3}, 3);
    if (format.name == "libsvm") {
      REQUIRE(said.empty());
      continue;
    }
    REQUIRE(said.size() > advice.size());
    REQUIRE(said.substr(said.size() - advice.size()) == advice);
    // Not where another label is in the way of that.
    REQUIRE(LabelsSaid(format, {3, 1, 0, 3}, 3).find("seem") == std::string::npos);
    REQUIRE(LabelsSaid(format, {3, 1, 4, 3}, 3).find("seem") == std::string::npos);
    REQUIRE(LabelsSaid(format, {3, 1, 4, 3}, 3).find("want ") != std::string::npos);
  }
}

TEST_CASE("labels from 1 beside an output too many are a note in every format", "[contents]") {
  for (const Format& format : LabelledFormats()) {
    CAPTURE(format.name);
    REQUIRE(LabelsSaid(format, {3, 1, 2, 3}, 4) ==
            "labels go from 1 to 3 and the model's classes from 0 to 3: class 0 has no row; where "
            "labels start at 1, subtract 1 from each and let the last layer have 3 outputs\n");
    REQUIRE(LabelsSaid(format, {3, 1, 2, 0}, 4).empty());
  }
}

TEST_CASE("labels of one class are a note in every format", "[contents]") {
  for (const Format& format : LabelledFormats()) {
    CAPTURE(format.name);
    REQUIRE(LabelsSaid(format, {2, 2}, 3) ==
            "all labels of data.train are the same, class 2 of 0 to 2: a model learns to answer it "
            "whatever the row is; are they the labels?\n");
  }
}

TEST_CASE("labels -1 and 1 are told where they are no classes", "[contents]") {
  for (const Format& format : LabelledFormats()) {
    if (format.name == "cifar" || format.name == "libsvm") continue;  // has bytes; has a map
    CAPTURE(format.name);
    REQUIRE(
        LabelsSaid(format, {1, -1, 1}, 2).find("; the labels seem to be -1 and 1: write 0 and 1") !=
        std::string::npos);
  }
}

}  // namespace
}  // namespace tessera
