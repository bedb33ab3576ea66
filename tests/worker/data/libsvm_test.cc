#include "worker/data/libsvm.h"

#include <catch2/catch.hpp>
#include <optional>
#include <string>
#include <vector>

#include "tests/worker/data/files.h"

namespace tessera {
namespace {

using Floats = std::vector<float>;

TableSpec Spec(int64_t classes, bool class_sets = false) {
  TableSpec spec;
  spec.features = 3;
  spec.classes = classes;
  spec.class_sets = class_sets;
  return spec;
}

absl::StatusOr<Table> Read(absl::string_view text, const TableSpec& spec) {
  std::optional<LabelMap> labels;
  return ReadLibsvm({WriteFile("rows.txt", text)}, spec, labels);
}

std::string Wrong(absl::string_view text, const TableSpec& spec = Spec(2)) {
  const std::string path = WriteFile("rows.txt", "");
  const std::string message = Text(Read(text, spec).status());
  REQUIRE(message.substr(0, path.size()) == path);
  return message.substr(path.size());
}

TEST_CASE("index j is feature j - 1 and what is not written is 0", "[libsvm]") {
  const auto table = Read("0 1:1 3:-0.5\n1 2:2e1\n0\n", Spec(2));
  REQUIRE(table.ok());
  REQUIRE(table->rows == 3);
  REQUIRE(Row(*table, 0) == Floats{1, 0, -0.5f});
  REQUIRE(Row(*table, 1) == Floats{0, 20, 0});
  REQUIRE(Row(*table, 2) == Floats{0, 0, 0});
  REQUIRE(std::get<Classes>(table->labels) == Classes{0, 1, 0});
}

TEST_CASE("comments, tabs, CRLF, trailing spaces and written zeros do not matter", "[libsvm]") {
  const auto table = Read("# a file\r\n0\t1:1  3:0 \r\n\n1 2:2 # a row\n   # nothing\n", Spec(2));
  REQUIRE(table.ok());
  REQUIRE(table->rows == 2);
  REQUIRE(Row(*table, 0) == Floats{1, 0, 0});
  REQUIRE(std::get<SparseValues>(table->values).value.size() == 2);
}

TEST_CASE("labels -1 and +1 become 0 and 1, whichever comes first", "[libsvm]") {
  REQUIRE(std::get<Classes>(Read("+1 1:1\n-1 1:1\n", Spec(2))->labels) == Classes{1, 0});
  REQUIRE(std::get<Classes>(Read("-1 1:1\n1 1:1\n", Spec(2))->labels) == Classes{0, 1});
}

TEST_CASE("labels from 1 on and labels with gaps become classes in their order", "[libsvm]") {
  REQUIRE(std::get<Classes>(Read("3\n1\n2\n", Spec(3))->labels) == Classes{2, 0, 1});
  REQUIRE(std::get<Classes>(Read("1990\n-7\n2020\n", Spec(10))->labels) == Classes{1, 0, 2});
}

TEST_CASE("labels that are classes already stay what they are, even where some are missing",
          "[libsvm]") {
  REQUIRE(std::get<Classes>(Read("1\n3\n", Spec(4))->labels) == Classes{1, 3});
}

TEST_CASE("the test set's labels are mapped as the training set's", "[libsvm]") {
  std::optional<LabelMap> labels;
  REQUIRE(ReadLibsvm({WriteFile("train.txt", "5\n7\n9\n")}, Spec(3), labels).ok());
  const std::string path = WriteFile("test.txt", "9\n5\n");
  REQUIRE(std::get<Classes>(ReadLibsvm({path}, Spec(3), labels)->labels) == Classes{2, 0});
  WriteFile("test.txt", "9\n8\n");
  REQUIRE(Text(ReadLibsvm({path}, Spec(3), labels).status()) ==
          path + ":2: label is 8, want one of 5, 7, 9 (as in the training set)");
}

TEST_CASE("more different labels than classes are refused at the first too many", "[libsvm]") {
  REQUIRE(Wrong("1\n2\n1\n3\n") ==
          ":4: label is 3 after 2 other ones, want at most 2 in all (the model's classes)");
}

TEST_CASE("a worker with files of its own refuses labels that others may number otherwise",
          "[libsvm]") {
  TableSpec spec = Spec(3);
  spec.local_files = true;
  REQUIRE(Read("0\n2\n", spec).ok());
  REQUIRE(Read("-1\n1\n", spec).ok());
  REQUIRE(std::get<Classes>(Read("-1\n", spec)->labels) == Classes{0});
  REQUIRE(std::get<Classes>(Read("+1\n", spec)->labels) == Classes{1});
  REQUIRE(Wrong("1\n3\n", spec)
              .find("labels are 1, 3, want 0 to 2, or -1 and 1: with data.partition local") !=
          std::string::npos);
  REQUIRE_FALSE(Read("-1\n0\n", spec).ok());
  REQUIRE_FALSE(Read("-1\n",
                     [] {
                       TableSpec one = Spec(1);
                       one.local_files = true;
                       return one;
                     }())
                    .ok());
}

// With classes 1 to 3 the first of these was 1, 2 -> 1, 2, and the second 1, 2, 3 -> 0, 1, 2.
TEST_CASE("workers with files of their own give a label the same class, or one refuses",
          "[libsvm]") {
  TableSpec spec = Spec(3);
  spec.local_files = true;
  REQUIRE(std::get<Classes>(Read("1\n2\n", spec)->labels) == Classes{1, 2});
  REQUIRE_FALSE(Read("1\n2\n3\n", spec).ok());
  std::optional<LabelMap> labels;
  REQUIRE(ReadLibsvm({WriteFile("train.txt", "-1\n")}, spec, labels).ok());
  REQUIRE(std::get<Classes>(ReadLibsvm({WriteFile("test.txt", "1\n-1\n")}, spec, labels)->labels) ==
          Classes{1, 0});
}

// layer_separation refused a worker with sets beside one that had none.
TEST_CASE("workers with files of their own keep labels in one way", "[libsvm]") {
  TableSpec spec = Spec(3, true);
  REQUIRE(std::get<Classes>(Read("1\n2\n", spec)->labels) == Classes{1, 2});
  spec.local_files = true;
  const auto table = Read("1\n2\n", spec);
  REQUIRE(std::get<ClassSets>(table->labels).begin == NumberArray<int64_t>{0, 1, 2});
  REQUIRE(std::get<ClassSets>(table->labels).classes == NumberArray<int32_t>{1, 2});
  spec.class_sets = false;
  REQUIRE(std::holds_alternative<Classes>(Read("1\n2\n", spec)->labels));
}

TEST_CASE("rows may have sets of labels where the model predicts sets", "[libsvm]") {
  const auto table = Read("2,0 1:1\n1:5\n 2:1\n1 3:1\n", Spec(3, true));
  REQUIRE(table.ok());
  const auto& sets = std::get<ClassSets>(table->labels);
  REQUIRE(sets.begin == std::vector<int64_t>{0, 2, 2, 2, 3});
  REQUIRE(sets.classes == std::vector<int32_t>{0, 2, 1});
  REQUIRE(Row(*table, 1) == Floats{5, 0, 0});
  REQUIRE(Wrong("1,2,1 1:1\n", Spec(3, true)) == ":1: label 1 is there twice, want it once");
  REQUIRE(Wrong("1,,2 1:1\n", Spec(3, true)) == ":1: label is \"\", want an integer");
}

TEST_CASE("sets of labels are refused where the model predicts one class", "[libsvm]") {
  REQUIRE(
      Wrong("0,1 1:1\n").find(":1: row has 2 labels, want one; sets of labels need model.loss") ==
      0);
  REQUIRE(Wrong("0 1:1\n1:1\n").find(":2: row has 0 labels, want one") == 0);
}

TEST_CASE("a malformed line is named with what it has and what is wanted", "[libsvm]") {
  REQUIRE(
      Wrong("0 0:1\n") ==
      ":1: index is \"0\", want 1 to 3 (the product of model.input); where indices count from "
      "0, let the file begin with the line \"# Column indices are zero-based\", as scikit-learn "
      "writes it with a comment");
  REQUIRE(Wrong("0 1:1\n0 4:1\n") ==
          ":2: index is \"4\", want 1 to 3 (the product of model.input)");
  REQUIRE(Wrong("0 qid:1\n").find(":1: index is \"qid\"") == 0);
  REQUIRE(Wrong("0 2:1 2:1\n") == ":1: index is 2 after 2, want ascending ones");
  REQUIRE(Wrong("0 3:1 1:1\n") == ":1: index is 1 after 3, want ascending ones");
  REQUIRE(Wrong("0 1:x\n") == ":1: value at index 1 is \"x\", want a finite number");
  REQUIRE(Wrong("0 1:\n") == ":1: value at index 1 is \"\", want a finite number");
  REQUIRE(Wrong("0 1:1:1\n") == ":1: value at index 1 is \"1:1\", want a finite number");
  REQUIRE(Wrong("0 1:inf\n") == ":1: value at index 1 is \"inf\", want a finite number");
  REQUIRE(Wrong("0 17\n") == ":1: entry is \"17\", want index:value");
  REQUIRE(Wrong("0.5 1:1\n") == ":1: label is \"0.5\", want an integer");
  REQUIRE(Wrong("0 99999999999999999999:1\n").find(":1: index is \"99999999999999999999\"") == 0);
}

// What dump_svmlight_file writes with a comment. The indices of row 0 are all from 1 on, so nothing else tells.
TEST_CASE("a comment before the rows says from where indices count", "[libsvm]") {
  const std::string by = "# Generated by dump_svmlight_file from scikit-learn 1.2.1\n";
  const auto zero =
      Read(by + "# Column indices are zero-based\n#\n# mine\n0 1:5\n1 0:1 2:3\n", Spec(2));
  REQUIRE(zero.ok());
  REQUIRE(Row(*zero, 0) == Floats{0, 5, 0});
  REQUIRE(Row(*zero, 1) == Floats{1, 0, 3});
  const auto one = Read(by + "# Column indices are one-based\n0 1:5\n", Spec(2));
  REQUIRE(Row(*one, 0) == Floats{5, 0, 0});
  REQUIRE(Wrong("# Column indices are zero-based\n0 3:1\n") ==
          ":2: index is \"3\", want 0 to 2 (the product of model.input - 1)");
}

TEST_CASE("where indices count from is each file's own, and said before its rows", "[libsvm]") {
  std::optional<LabelMap> labels;
  const auto table =
      ReadLibsvm({WriteFile("zero.txt", "# zero-based\n0 0:1\n"), WriteFile("one.txt", "1 1:1\n"),
                  WriteFile("zero_too.txt", "# 0-based\n1 2:1 # not one-based\n")},
                 Spec(2), labels);
  REQUIRE(table.ok());
  REQUIRE(Row(*table, 0) == Floats{1, 0, 0});
  REQUIRE(Row(*table, 1) == Floats{1, 0, 0});
  REQUIRE(Row(*table, 2) == Floats{0, 0, 1});
  REQUIRE(Wrong("0 1:1\n# Zero-Based\n0 1:1\n") ==
          ":2: comment says that indices count from 0, want it before the first row: those above "
          "were read as counting from 1");
}

TEST_CASE("rows beyond the memory limit are refused", "[libsvm]") {
  TableSpec spec = Spec(2);
  spec.bytes_max = 200;
  std::string text;
  for (int i = 0; i < 100; ++i) text += "0 1:1 2:1 3:1\n";
  REQUIRE(Read(text, spec).status().code() == absl::StatusCode::kResourceExhausted);
}

}  // namespace
}  // namespace tessera
