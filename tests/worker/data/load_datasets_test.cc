#include <sys/resource.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cmath>
#include <fstream>
#include <limits>
#include <string>
#include <vector>

#include "google/protobuf/text_format.h"
#include "common/base/sanitizer.h"
#include "common/metrics/process_memory.h"
#include "tests/worker/data/files.h"
#include "worker/data/dataset.h"
#include "worker/data/load_datasets.h"

namespace tessera {
namespace {

using Floats = std::vector<float>;

// Starts in the test's own directory.
v1::Data Job(const std::string& text) {
  v1::Data data;
  REQUIRE(google::protobuf::TextFormat::ParseFromString(text, &data));
  const std::string path = WriteFile("here", "");
  data.set_directory(path.substr(0, path.rfind('/')));
  return data;
}

v1::Data CsvJob(absl::string_view train, absl::string_view test, const std::string& more = "") {
  WriteFile("train.csv", train);
  WriteFile("test.csv", test);
  return Job("format: 'csv' train { features: 'train.csv' } test { features: 'test.csv' } " + more);
}

Floats Features(const Dataset& data, std::vector<uint32_t> rows) {
  Floats out(rows.size() * data.inputs());
  BatchView view;
  view.features = out.data();
  data.FillBatch(rows, view);
  return out;
}

Floats Targets(const Dataset& data, std::vector<uint32_t> rows) {
  Floats out(rows.size() * data.outputs());
  BatchView view;
  view.targets = out.data();
  data.FillBatch(rows, view);
  return out;
}

std::string Wrong(const v1::Data& data, const ModelEnds& ends = {2, 3, false}) {
  return Text(LoadDatasets(data, ends).status());
}

TEST_CASE("rows that take more than the job's memory_limit are refused while they are read",
          "[load_datasets][strangers]") {
  std::string rows;
  for (int row = 0; row < 400'000; ++row) rows += "1,5,0\n";
  v1::Job job;
  *job.mutable_data() = CsvJob(rows, "5,6,2\n");
  job.mutable_cluster()->set_memory_limit(1 << 20);
  const uint64_t before = ReadProcessMemory().peak_rss_bytes;
  const auto sets = LoadDatasets(job, {2, 3, false});
  CHECK(absl::IsResourceExhausted(sets.status()));
  CHECK(std::string(sets.status().message())
            .find("; cluster.memory_limit is 1048576 bytes, which is all that a worker may take") !=
        std::string::npos);
  CHECK(ReadProcessMemory().peak_rss_bytes - before < 4 << 20);
  job.mutable_cluster()->set_memory_limit(0);
  CHECK(LoadDatasets(job, {2, 3, false}).ok());
}

TEST_CASE("the test set is normalised with the training set's constants", "[load_datasets]") {
  const auto sets = LoadDatasets(
      CsvJob("1,5,0\n3,5,1\n", "5,6,2\n", "normalize { per_feature: true }"), {2, 3, false});
  REQUIRE(sets.ok());
  REQUIRE(Features(sets->train, {0, 1}) == Floats{-1, 0, 1, 0});
  REQUIRE(Features(sets->test, {0}) == Floats{3, 1});
}

TEST_CASE("data.normalize holds for all features and is off when absent", "[load_datasets]") {
  const v1::Data with = CsvJob("1,5,0\n", "3,3,0\n", "normalize { mean: 1 stddev: 2 }");
  REQUIRE(Features(LoadDatasets(with, {2, 3, false})->train, {0}) == Floats{0, 2});
  const v1::Data without = CsvJob("1,5,0\n", "3,3,0\n");
  REQUIRE(Features(LoadDatasets(without, {2, 3, false})->test, {0}) == Floats{3, 3});
}

TEST_CASE("labels of a model that learns numbers are read as they are", "[load_datasets]") {
  ModelEnds ends{2, 1, false};
  ends.numbers = true;
  const auto check = [&](const v1::Data& data) {
    CAPTURE(data.format());
    const auto sets = LoadDatasets(data, ends);
    REQUIRE(sets.ok());
    CHECK_FALSE(sets->train.has_classes());
    CHECK(Targets(sets->train, {2, 0, 1}) == Floats{1e3f, -2.5f, 7});
    CHECK(Targets(sets->test, {0}) == Floats{0.125f});
    CHECK(Features(sets->train, {0}) == Floats{1, 5});
    CHECK(sets->notes.empty());
    CHECK(sets->train.Sum() != sets->test.Sum());
  };
  check(CsvJob("1,5,-2.5\n3,5,7\n0,1,1e3\n", "5,6,0.125\n"));
  WriteFile("train.svm", "-2.5 1:1 2:5\n7 1:3 2:5\n1e3 2:1\n");
  WriteFile("test.svm", "0.125 1:5 2:6\n");
  check(Job("format: 'libsvm' train { features: 'train.svm' } test { features: 'test.svm' }"));
  const auto npy = [](const std::vector<float>& values, const std::string& shape) {
    return Npy("<f4", shape,
               {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float)});
  };
  WriteFile("train.npy", npy({1, 5, 3, 5, 0, 1}, "(3, 2)"));
  WriteFile("train_labels.npy", npy({-2.5f, 7, 1e3f}, "(3,)"));
  WriteFile("test.npy", npy({5, 6}, "(1, 2)"));
  WriteFile("test_labels.npy", npy({0.125f}, "(1, 1)"));
  const v1::Data arrays = Job(
      "format: 'npy' train { features: 'train.npy' labels: 'train_labels.npy' } test { features: "
      "'test.npy' labels: 'test_labels.npy' }");
  check(arrays);

  const auto wrong = [&](const v1::Data& data) { return Wrong(data, ends); };
  CHECK(wrong(CsvJob("1,5,nan\n", "5,6,0\n"))
            .find("train.csv:1: label is \"nan\", want a finite number") != std::string::npos);
  WriteFile("train.svm", "x 1:1\n");
  CHECK(wrong(Job("format: 'libsvm' train { features: 'train.svm' } test { features: 'test.svm' }"))
            .find("train.svm:1: label is \"x\", want a finite number") != std::string::npos);
  WriteFile("train_labels.npy", npy({1, 2, 3, 4, 5, 6}, "(3, 2)"));
  CHECK(wrong(arrays).find("train_labels.npy: labels have shape (3, 2), want (3,) or (3, 1): one "
                           "number for each row") != std::string::npos);
  WriteFile("train_labels.npy", npy({1, INFINITY, 3}, "(3,)"));
  CHECK(wrong(arrays).find("train_labels.npy: row 1 value 0 is inf") != std::string::npos);
  WriteFile("train_labels.npy", npy({1, 2}, "(2,)"));
  CHECK(wrong(arrays).find("train_labels.npy: has 2 labels, want 3") != std::string::npos);
}

TEST_CASE("constants that would make inputs infinite are refused", "[load_datasets]") {
  v1::Data data = CsvJob("1,5,0\n", "3,3,0\n", "normalize { mean: 1 stddev: 2 }");
  const double infinity = std::numeric_limits<double>::infinity();
  for (const double stddev : {0.0, -1.0, 1e-300, infinity, std::nan("")}) {
    data.mutable_normalize()->set_stddev(0, stddev);
    REQUIRE(Wrong(data).find("data.normalize: mean is 1 and stddev is ") == 0);
  }
  data.mutable_normalize()->set_stddev(0, 1);
  data.mutable_normalize()->set_mean(0, infinity);
  REQUIRE(Wrong(data).find("data.normalize: ") == 0);
}

TEST_CASE("idx and npy want a file of labels and one of features, the others want no labels",
          "[load_datasets]") {
  REQUIRE(Wrong(Job("format: 'idx' train { features: 'a' } test { features: 'a' labels: 'b' }")) ==
          "data.train.labels: is not given, want a file, as data.format is idx");
  REQUIRE(Wrong(Job("format: 'idx' train { features: ['a', 'b'] labels: 'c' }")) ==
          "data.train.labels: names 1 file, want 2, one for each of data.train.features");
  REQUIRE(Wrong(Job("format: 'csv' train { features: 'a' labels: 'b' }")) ==
          "data.train.labels: is given, want none: a csv file carries its labels");
  REQUIRE(Wrong(Job("format: 'csv' train { }")) ==
          "data.train.features: names no file, want one or more");
  REQUIRE(Wrong(Job("format: 'npy' train { features: 'a' }")) ==
          "data.train.labels: is not given, want a file, as data.format is npy");
  REQUIRE(Wrong(Job("format: 'npy' train { features: ['a', 'b'] labels: 'c' }")) ==
          "data.train.labels: names 1 file, want 2, one for each of data.train.features");
  REQUIRE(Wrong(Job("format: 'mat' train { features: 'a' }")) ==
          "data.format: is \"mat\", want idx, csv, libsvm, xc, cifar, npy, images, tokens or text");
}

// The files that the case below writes.
v1::Data NpyJob(const std::string& train, const std::string& test) {
  return Job("format: 'npy' train { features: '" + train +
             "' labels: 'labels.npy' } test { features: '" + test + "' labels: '" +
             (train == test ? "labels.npy" : "test_labels.npy") + "' }");
}

TEST_CASE("npy values are taken as they are, but for bytes, of which 255 is 1", "[load_datasets]") {
  WriteFile("labels.npy", Npy("<i8", "(2,)", LittleEndian(2, 8) + LittleEndian(0, 8)));
  WriteFile("test_labels.npy", Npy("|b1", "(1,)", "\1"));
  WriteFile("bytes.npy", Npy("|u1", "(2, 1, 2)", std::string("\0\xff\x33\0", 4)));
  WriteFile("shorts.npy", Npy(">i2", "(1, 2)", std::string("\0\xff\xff\xff", 4)));
  WriteFile("two_shorts.npy", Npy(">i2", "(2, 2)", std::string("\0\1\0\2\0\3\0\4", 8)));
  const v1::Data data = NpyJob("bytes.npy", "bytes.npy");
  const auto sets = LoadDatasets(data, {2, 3, false});
  REQUIRE(sets.ok());
  REQUIRE(sets->train.is_bytes());
  REQUIRE(Features(sets->train, {0, 1}) == Floats{0, 1, 0x33 * (1 / 255.f), 0});
  const auto shorts = LoadDatasets(NpyJob("two_shorts.npy", "shorts.npy"), {2, 3, false});
  REQUIRE_FALSE(shorts->train.is_bytes());
  REQUIRE(Features(shorts->test, {0}) == Floats{255, -1});
  // Several sigmoid outputs: one class for each row, as in idx.
  REQUIRE(Targets(LoadDatasets(data, {2, 3, true})->train, {0, 1}) == Floats{0, 0, 1, 1, 0, 0});
}

std::string Bytes(size_t count) { return std::string(count, '\1'); }

// idx or npy features of these sizes; each value takes `value_bytes`, 1 (u8) or 4 (f32).
std::string ArrayFile(const std::string& format, const std::vector<uint32_t>& sizes,
                      int value_bytes) {
  size_t count = static_cast<size_t>(value_bytes);
  std::string shape = "(";
  for (const uint32_t size : sizes) {
    count *= size;
    shape += std::to_string(size) + ", ";
  }
  if (format == "idx") return Idx(value_bytes == 1 ? 8 : 13, sizes, Bytes(count));
  return Npy(value_bytes == 1 ? "|u1" : "<f4", shape + ")", Bytes(count));
}

v1::Data ArrayJob(const std::string& format, const std::string& train, const std::string& test) {
  const std::string zeros(2, '\0');
  WriteFile("array_train", train);
  WriteFile("array_test", test);
  WriteFile("array_labels", format == "idx" ? Idx(8, {2}, zeros) : Npy("|u1", "(2,)", zeros));
  return Job("format: '" + format +
             "' train { features: 'array_train' labels: 'array_labels' } "
             "test { features: 'array_test' labels: 'array_labels' }");
}

// (N, 8, 8, 3) was read as [3, 8, 8].
TEST_CASE("rows in another order than model.input are refused with the transpose that fits",
          "[load_datasets]") {
  ModelEnds ends{192, 2, false, {3, 8, 8}};
  for (const std::string format : {"idx", "npy"}) {
    for (const int bytes : {1, 4}) {
      CAPTURE(format, bytes);
      const std::string right = ArrayFile(format, {2, 3, 8, 8}, bytes);
      REQUIRE(LoadDatasets(ArrayJob(format, right, right), ends).ok());
      for (const std::vector<uint32_t>& sizes :
           {std::vector<uint32_t>{2, 192}, {2, 3, 64}, {2, 1, 3, 8, 8}, {2, 3, 8, 8, 1}}) {
        REQUIRE(LoadDatasets(ArrayJob(format, ArrayFile(format, sizes, bytes), right), ends).ok());
      }
      const v1::Data wrong = ArrayJob(format, ArrayFile(format, {2, 8, 8, 3}, bytes), right);
      REQUIRE(Wrong(wrong, ends) ==
              wrong.directory() +
                  "/array_train: rows are [8, 8, 3], want [3, 8, 8], which is model.input, "
                  "or that flattened: as many values, in another order; save "
                  "x.transpose(0, 3, 1, 2), where x is this array");
      REQUIRE(Wrong(ArrayJob(format, right, ArrayFile(format, {2, 64, 3}, bytes)), ends)
                  .find("array_test: rows are [64, 3], want [3, 8, 8]") != std::string::npos);
      REQUIRE(Wrong(ArrayJob(format, ArrayFile(format, {2, 4, 48}, bytes), right), ends)
                  .find("in another order") != std::string::npos);
    }
  }
}

TEST_CASE("a flat model takes rows of any shape, one and the same in both files",
          "[load_datasets]") {
  const ModelEnds ends{192, 2, false, {192}};
  for (const std::string format : {"idx", "npy"}) {
    CAPTURE(format);
    const std::string last = ArrayFile(format, {2, 8, 8, 3}, 1),
                      flat = ArrayFile(format, {2, 192}, 1),
                      first = ArrayFile(format, {2, 3, 8, 8}, 1);
    REQUIRE(LoadDatasets(ArrayJob(format, last, last), ends).ok());
    REQUIRE(LoadDatasets(ArrayJob(format, first, flat), ends).ok());
    REQUIRE(Wrong(ArrayJob(format, first, last), ends)
                .find("array_test: rows are [8, 8, 3], want [3, 8, 8], which is the training rows' "
                      "shape, "
                      "or that flattened: as many values, in another order; save "
                      "x.transpose(0, 3, 1, 2), where x is this array") != std::string::npos);
  }
}

// uint8 is divided by 255 and the same numbers as floats are not: 1.0000, then 0.2500.
TEST_CASE("bytes in one file and other numbers in the other are refused", "[load_datasets]") {
  const ModelEnds ends{3, 2, false};
  for (const std::string format : {"idx", "npy"}) {
    CAPTURE(format);
    const std::string bytes = ArrayFile(format, {2, 3}, 1), floats = ArrayFile(format, {2, 3}, 4);
    REQUIRE(LoadDatasets(ArrayJob(format, floats, floats), ends).ok());
    REQUIRE(LoadDatasets(ArrayJob(format, bytes, bytes), ends).ok());
    const v1::Data data = ArrayJob(format, floats, bytes);
    const std::string there = data.directory();
    REQUIRE(Wrong(data, ends) ==
            there +
                "/array_test: values are bytes, which are divided by 255, want "
                "numbers that are taken as they are, as those of " +
                there +
                "/array_train: the model would see test rows on another scale; "
                "save both files as one type");
    REQUIRE(Wrong(ArrayJob(format, bytes, floats), ends)
                .find("array_test: values are numbers that are taken as they are, want bytes") !=
            std::string::npos);
    // Both are of one kind, and the model was trained on the other.
    const ModelFacts of_bytes = LoadDatasets(ArrayJob(format, bytes, bytes), ends)->facts;
    const auto trained = [&](const std::string& now) {
      return LoadDatasets(ArrayJob(format, now, now), ends, kDatasetBytesMax, &of_bytes).status();
    };
    REQUIRE(trained(bytes).ok());
    REQUIRE(Text(trained(floats))
                .find("array_train: values are numbers that are taken as they are, want bytes, "
                      "which are divided by 255, as those that the checkpoint's model was trained "
                      "on") != std::string::npos);
  }
}

TEST_CASE("what csv files say of their columns holds for training and test rows together",
          "[load_datasets]") {
  v1::Data data = CsvJob("label,a,b\n0,1,2\n1,3,4\n", "0,1,2\n", "label_column: 'first'");
  const auto sets = LoadDatasets(data, {2, 3, false});
  REQUIRE(Features(sets->train, {1}) == Floats{3, 4});
  REQUIRE(Features(sets->test, {0}) == Floats{1, 2});
  data.set_label_column("label");
  REQUIRE(Wrong(data).find("test.csv:1: file has no header") != std::string::npos);
  data.clear_label_column();
  REQUIRE(Wrong(data).find("set data.label_column to label") != std::string::npos);
  REQUIRE(Wrong(CsvJob("a,b,label\n1,2,0\n", "b,a,label\n1,2,0\n"))
              .find("test.csv:1: header has \"b\" as field 1") != std::string::npos);
}

TEST_CASE("records of two labels are read as data.labels says", "[load_datasets]") {
  WriteFile("two.bin", '\3' + CifarRecord(7, 1) + '\4' + CifarRecord(9, 1));
  v1::Data data = Job("format: 'cifar' train { features: 'two.bin' } test { features: 'two.bin' }");
  REQUIRE(Wrong(data, {3072, 100, false}).find("set data.labels to fine or coarse") !=
          std::string::npos);
  data.set_labels("fine");
  REQUIRE(Targets(LoadDatasets(data, {3072, 10, true})->train, {1})[9] == 1);
  data.set_labels("coarse");
  REQUIRE(Targets(LoadDatasets(data, {3072, 10, true})->train, {1})[4] == 1);
}

std::string Notes(const v1::Data& data, const ModelEnds& ends = {2, 3, false}) {
  const auto sets = LoadDatasets(data, ends);
  REQUIRE(sets.ok());
  std::string notes;
  for (const std::string& note : sets->notes) notes += note + "\n";
  return notes;
}

TEST_CASE("classes of the test set that no training row has are a note", "[load_datasets]") {
  REQUIRE(Notes(CsvJob("1,2,0\n1,2,1\n", "1,2,2\n")) ==
          "data.test has rows of class 2, and data.train has none: no model can have learned to "
          "answer it\n");
  REQUIRE(Notes(CsvJob("1,2,0\n1,2,1\n", "1,2,1\n")).empty());
  // Others may have it.
  REQUIRE(Notes(CsvJob("1,2,0\n", "1,2,2\n", "partition: 'local'")).empty());
}

TEST_CASE("values of both sets that are on two scales are a note", "[load_datasets]") {
  REQUIRE(
      Notes(CsvJob("1,0.5,0\n0,1,1\n", "255,128,0\n")) ==
      "values of data.train go up to 1 and those of data.test up to 255: are both on one scale?\n");
  REQUIRE(Notes(CsvJob("1,0.5,0\n0,1,1\n", "-90,7,0\n")).empty());
  REQUIRE(Notes(CsvJob("0,0,0\n0,0,1\n", "255,128,0\n")).empty());
}

TEST_CASE("a file without rows is refused", "[load_datasets]") {
  REQUIRE(Wrong(CsvJob("a,b,c\n", "1,2,0\n")).find("train.csv: has no rows, want at least one") !=
          std::string::npos);
  REQUIRE(Wrong(CsvJob("1,2,0\n", "")).find("test.csv: has no rows") != std::string::npos);
}

TEST_CASE("a path that is absolute does not start in the directory", "[load_datasets]") {
  v1::Data data = CsvJob("1,2,0\n", "1,2,0\n");
  data.mutable_train()->set_features(0, data.directory() + "/train.csv");
  REQUIRE(LoadDatasets(data, {2, 3, false}).ok());
  data.mutable_train()->set_features(0, "missing.csv");
  REQUIRE(LoadDatasets(data, {2, 3, false}).status().code() == absl::StatusCode::kNotFound);
  REQUIRE(Wrong(data).find(data.directory() + "/missing.csv: cannot open") == 0);
}

TEST_CASE("training and test set share the memory limit", "[load_datasets]") {
  const v1::Data data = CsvJob("1,2,0\n1,2,0\n", "1,2,0\n");
  REQUIRE(LoadDatasets(data, {2, 3, false}, 36).ok());
  REQUIRE(LoadDatasets(data, {2, 3, false}, 35).status().code() ==
          absl::StatusCode::kResourceExhausted);
  // Whoever reckons what a process needs reads no more than that may have.
  v1::Job job;
  *job.mutable_data() = data;
  job.mutable_cluster()->set_memory_limit(36);
  REQUIRE(LoadDatasets(job, {2, 3, false}).ok());
  job.mutable_cluster()->set_memory_limit(35);
  const absl::Status status = LoadDatasets(job, {2, 3, false}).status();
  REQUIRE(status.code() == absl::StatusCode::kResourceExhausted);
  REQUIRE(Text(status).find("cluster.memory_limit is 35 bytes") != std::string::npos);
}

TEST_CASE("rows that there is no memory for are refused by the name of their file",
          "[load_datasets]") {
  if (kHasSanitizer) return;  // They take far more addresses themselves.
  std::string rows;
  for (int i = 0; i < 4 << 20; ++i) rows += "1,1,0\n";
  const v1::Data job = CsvJob(rows, "1,1,0\n");
  struct rlimit before;
  REQUIRE(getrlimit(RLIMIT_AS, &before) == 0);
  int64_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages;
  const struct rlimit little = {static_cast<rlim_t>(pages * getpagesize() + (16 << 20)),
                                before.rlim_max};
  REQUIRE(setrlimit(RLIMIT_AS, &little) == 0);
  const absl::Status status = LoadDatasets(job, {2, 3, false}).status();
  REQUIRE(setrlimit(RLIMIT_AS, &before) == 0);
  REQUIRE(status.code() == absl::StatusCode::kResourceExhausted);
  REQUIRE(Text(status).find("data.train.features: no memory for the rows of ") == 0);
}

TEST_CASE("one sigmoid output takes the labels -1 and +1 of a libsvm file as 0 and 1",
          "[load_datasets]") {
  WriteFile("train.txt", "+1 1:1\n-1 2:1\n");
  WriteFile("test.txt", "-1 1:1\n-1\n+1\n");
  const v1::Data data =
      Job("format: 'libsvm' train { features: 'train.txt' } test { features: 'test.txt' }");
  const auto sets = LoadDatasets(data, {2, 1, true});
  REQUIRE(sets.ok());
  REQUIRE(Targets(sets->train, {0, 1}) == Floats{1, 0});
  REQUIRE(Targets(sets->test, {0, 1, 2}) == Floats{0, 0, 1});
  REQUIRE(Features(sets->test, {0, 1}) == Floats{1, 0, 0, 0});
}

TEST_CASE("several sigmoid outputs take sets of labels", "[load_datasets]") {
  WriteFile("train.txt", "0,2 1:1\n1 2:1\n 1:3\n");
  WriteFile("test.txt", "2 1:1\n");
  const v1::Data data =
      Job("format: 'libsvm' train { features: 'train.txt' } test { features: 'test.txt' }");
  const auto sets = LoadDatasets(data, {2, 3, true});
  REQUIRE(sets.ok());
  REQUIRE_FALSE(sets->train.has_classes());
  REQUIRE(sets->test.has_classes());
  REQUIRE(Targets(sets->train, {0, 1, 2}) == Floats{1, 0, 1, 0, 1, 0, 0, 0, 0});
  REQUIRE(Targets(sets->test, {0}) == Floats{0, 0, 1});
}

v1::Data XcJob(const std::string& more = "") {
  WriteFile("train.xc", "3 5 3\n0,2 0:1\n1 1:1\n 0:3\n");
  WriteFile("test.xc", "1 5 3\n2 4:2\n");
  return Job("format: 'xc' train { features: 'train.xc' } test { features: 'test.xc' } " + more);
}

TEST_CASE("xc rows are sparse however narrow they are, and have sets of labels",
          "[load_datasets]") {
  const auto sets = LoadDatasets(XcJob("normalize { stddev: 2 }"), {5, 3, true});
  REQUIRE(sets.ok());
  REQUIRE(sets->train.sparse());
  REQUIRE(Targets(sets->train, {0, 2}) == Floats{1, 0, 1, 0, 0, 0});
  REQUIRE(Features(sets->test, {0}) == Floats{0, 0, 0, 0, 1});
  REQUIRE(Wrong(XcJob(), {6, 3, true}).find(":1: header says 5 features, want 6") !=
          std::string::npos);
}

TEST_CASE("what would fill the zeros of xc rows is refused", "[load_datasets]") {
  for (const char* const normalize :
       {"normalize { mean: 0.1 stddev: 1 }", "normalize { per_feature: true }"}) {
    REQUIRE(Wrong(XcJob(normalize), {5, 3, true}).find("data.normalize: would make zeros") == 0);
  }
}

TEST_CASE("libsvm rows that are normalised beside zero are read as ever", "[load_datasets]") {
  WriteFile("train.txt", "0 1:1\n1 900:1\n");
  WriteFile("test.txt", "0 2:1\n");
  const std::string files =
      "format: 'libsvm' train { features: 'train.txt' } "
      "test { features: 'test.txt' } ";
  REQUIRE(LoadDatasets(Job(files), {900, 2, false})->train.sparse());
  REQUIRE_FALSE(LoadDatasets(Job(files + "normalize { mean: 0.5 stddev: 1 }"), {900, 2, false})
                    ->train.sparse());
  REQUIRE_FALSE(LoadDatasets(Job(files + "normalize { per_feature: true }"), {900, 2, false})
                    ->train.sparse());
}

TEST_CASE("the sparse rows of per-feature data agree with the same rows in csv",
          "[load_datasets]") {
  WriteFile("train.txt", "0 1:1\n1 2:4\n2 1:3 2:2\n");
  WriteFile("test.txt", "0 2:1\n");
  const v1::Data sparse =
      Job("format: 'libsvm' train { features: 'train.txt' } test { features: 'test.txt' } "
          "normalize { per_feature: true }");
  const v1::Data dense =
      CsvJob("1,0,0\n0,4,1\n3,2,2\n", "0,1,0\n", "normalize { per_feature: true }");
  const auto a = LoadDatasets(sparse, {2, 3, false}), b = LoadDatasets(dense, {2, 3, false});
  REQUIRE(Features(a->train, {0, 1, 2}) == Features(b->train, {0, 1, 2}));
  REQUIRE(Features(a->test, {0}) == Features(b->test, {0}));
}

v1::Data LibsvmJob(absl::string_view train, absl::string_view test) {
  WriteFile("train.svm", train);
  WriteFile("test.svm", test);
  return Job("format: 'libsvm' train { features: 'train.svm' } test { features: 'test.svm' }");
}

TEST_CASE("a trained model's labels keep their numbers, whichever rows are named now",
          "[load_datasets]") {
  const ModelEnds ends{2, 3, true};
  const auto trained = LoadDatasets(LibsvmJob("10 1:1\n20 2:1\n30 1:2\n", "30 1:1\n"), ends);
  REQUIRE(trained.ok());
  REQUIRE(trained->facts.labels == std::vector<int64_t>{10, 20, 30});
  const v1::Data other = LibsvmJob("20 1:1\n30 2:1\n", "30 1:1\n10 2:1\n");
  // By themselves these number 20 and 30 as 0 and 1, and do not know 10.
  REQUIRE(Wrong(other, ends).find("label is 10") != std::string::npos);
  const auto again = LoadDatasets(other, ends, kDatasetBytesMax, &trained->facts);
  REQUIRE(again.ok());
  REQUIRE(Targets(again->train, {0, 1}) == Floats{0, 1, 0, 0, 0, 1});
  REQUIRE(Targets(again->test, {0, 1}) == Floats{0, 0, 1, 1, 0, 0});
  REQUIRE(again->facts.ReadsAs(trained->facts));
  const absl::Status unknown =
      LoadDatasets(LibsvmJob("20 1:1\n", "7 1:1\n"), ends, kDatasetBytesMax, &trained->facts)
          .status();
  REQUIRE(Text(unknown).find("label is 7, want one of 10, 20, 30") != std::string::npos);
}

TEST_CASE("a trained model's labels that were classes stay classes", "[load_datasets]") {
  const ModelEnds ends{2, 3, true};
  const auto trained = LoadDatasets(LibsvmJob("0 1:1\n2 2:1\n", "1 1:1\n"), ends);
  REQUIRE(trained->facts.labels.empty());
  // By themselves 2 and 3 are numbered as 0 and 1.
  REQUIRE(Wrong(LibsvmJob("2 1:1\n3 1:1\n", "2 1:1\n"), ends).empty());
  const absl::Status other =
      LoadDatasets(LibsvmJob("2 1:1\n3 1:1\n", "2 1:1\n"), ends, kDatasetBytesMax, &trained->facts)
          .status();
  REQUIRE(Text(other).find("label is 3, want 0 to 2") != std::string::npos);
}

TEST_CASE("a trained model's normalisation holds, whichever rows and constants are named now",
          "[load_datasets]") {
  const std::string normalize =
      GENERATE("normalize { per_feature: true }", "normalize { mean: 7 stddev: 9 }");
  ModelFacts facts;
  facts.mean = {1, 2};
  facts.stddev = {2, 4};
  const v1::Data data = CsvJob("100,5,0\n3,50,1\n", "5,6,2\n", normalize);
  const auto sets = LoadDatasets(data, {2, 3, false}, kDatasetBytesMax, &facts);
  REQUIRE(sets.ok());
  REQUIRE(Features(sets->train, {1}) == Floats{1, 12});
  REQUIRE(Features(sets->test, {0}) == Floats{2, 1});
  REQUIRE(sets->facts.ReadsAs(facts));
  v1::Job job;
  job.mutable_model()->add_input(2);
  *job.mutable_data() = data;
  REQUIRE(NormalizesOtherwise(job, facts) == (normalize.find("mean") != std::string::npos));
  facts.mean = {7};
  facts.stddev = {9};
  REQUIRE(NormalizesOtherwise(job, facts) == (normalize.find("mean") == std::string::npos));
}

TEST_CASE("data of another kind than a model was trained with are refused", "[load_datasets]") {
  const auto refusal = [](const v1::Data& data, const ModelFacts& facts, const ModelEnds& ends) {
    return Text(LoadDatasets(data, ends, kDatasetBytesMax, &facts).status());
  };
  ModelFacts facts;
  facts.mean = {1, 2, 3};
  facts.stddev = {1, 1, 1};
  const v1::Data csv = CsvJob("1,5,0\n", "3,3,0\n");
  REQUIRE(refusal(csv, facts, {2, 3, false}) ==
          "checkpoint: normalisation is of 3 inputs, and the job's model has 2");
  REQUIRE(refusal(XcJob(""), facts, {3, 3, true}).find("data.format: is xc, ") == 0);
  facts = {{1, 2, 3}, {0}, {1}, 0, {}};
  REQUIRE(refusal(csv, facts, {2, 3, false}).find("data.format: is csv, and the checkpoint's") ==
          0);
  REQUIRE(
      refusal(LibsvmJob("1 1:1\n", "1 1:1\n"), facts, {2, 2, true}) ==
      "labels that the model was trained with are 1, 2, 3, want at most 2 (the model's classes)");
}

TEST_CASE("a data set in several idx files is the one of a single file", "[load_datasets]") {
  const std::string values = "\1\2\3\4\5\6\7", labels("\0\1\1\0\1\0\1", 7);
  WriteFile("all", Idx(8, {7, 1}, values));
  WriteFile("all_labels", Idx(8, {7}, labels));
  WriteFile("first", Idx(8, {4, 1}, values.substr(0, 4)));
  WriteFile("first_labels", Idx(8, {4}, labels.substr(0, 4)));
  WriteFile("rest", Idx(8, {3, 1}, values.substr(4)));
  WriteFile("rest_labels", Idx(8, {3}, labels.substr(4)));
  const std::string test = "test { features: 'all' labels: 'all_labels' }";
  const auto one = LoadDatasets(
      Job("format: 'idx' train { features: 'all' labels: 'all_labels' } " + test), {1, 2, false});
  const auto several =
      LoadDatasets(Job("format: 'idx' train { features: ['first', 'rest'] labels: ['first_labels', "
                       "'rest_labels'] } " +
                       test),
                   {1, 2, false});
  REQUIRE(one.ok());
  REQUIRE(several.ok());
  REQUIRE(several->train.Sum() == one->train.Sum());
  REQUIRE(several->train.rows() == 7);
}

}  // namespace
}  // namespace tessera
