#include "worker/data/data_notes.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace tessera {
namespace {

// Messages stay short enough to read.
constexpr size_t kListedNotesMax = 12;
// Values that go so much further than those of training are on another scale, as 0 to 255 is beside 0 to 1.
constexpr float kScaleRatioMin = 100;

// Whether each class occurs.
std::vector<bool> ClassesOf(const Table& table, int64_t classes) {
  std::vector<bool> there(static_cast<size_t>(classes));
  const auto& all = std::holds_alternative<Classes>(table.labels)
                        ? std::get<Classes>(table.labels)
                        : std::get<ClassSets>(table.labels).classes;
  for (const int32_t c : all) there[static_cast<size_t>(c)] = true;
  return there;
}

float MostOf(const F32Values& values) {
  float most = 0;
  for (const float value : values) most = std::max(most, std::abs(value));
  return most;
}

// Notes what is odd about the classes of the rows: training rows of one class alone, labels that begin with 1, and test
// rows of classes that training has not.
void NoteClasses(const std::vector<bool>& trained, const std::vector<bool>& tested,
                 std::vector<std::string>* notes) {
  const auto classes = static_cast<int64_t>(trained.size());
  const int64_t count = std::count(trained.begin(), trained.end(), true);
  if (count == 1) {
    const auto only = std::find(trained.begin(), trained.end(), true) - trained.begin();
    notes->push_back(absl::StrCat(
        "all labels of data.train are the same, class ", only, " of 0 to ", classes - 1,
        ": a model learns to answer it whatever the row is; are they the labels?"));
  } else if (!trained.front() && !tested.front() && trained.back() && classes > 2) {
    notes->push_back(absl::StrCat("labels go from 1 to ", classes - 1,
                                  " and the model's classes from 0 to ", classes - 1,
                                  ": class 0 has no row; where labels start at 1, subtract 1 from "
                                  "each and let the last layer have ",
                                  classes - 1, " outputs"));
  }
  std::vector<int64_t> unknown;
  for (int64_t c = 0; c < classes; ++c) {
    if (tested[c] && !trained[c]) unknown.push_back(c);
  }
  if (unknown.empty()) return;
  const auto end = unknown.begin() + std::min(unknown.size(), kListedNotesMax);
  notes->push_back(
      absl::StrCat("data.test has rows of ", unknown.size() == 1 ? "class " : "classes ",
                   absl::StrJoin(unknown.begin(), end, ", "), end == unknown.end() ? "" : ", ...",
                   ", and data.train has none: no model can have learned to answer ",
                   unknown.size() == 1 ? "it" : "them"));
}

}  // namespace

std::vector<std::string> NotesOn(const Table& train, const Table& test, const TableSpec& spec) {
  std::vector<std::string> notes;
  const auto* const train_values = std::get_if<F32Values>(&train.values);
  const auto* const test_values = std::get_if<F32Values>(&test.values);
  if (train_values != nullptr && test_values != nullptr) {
    const float of_train = MostOf(*train_values), of_test = MostOf(*test_values);
    // Zeros alone are on every scale.
    const float least = std::min(of_train, of_test), most = std::max(of_train, of_test);
    if (least > 0 && most / least >= kScaleRatioMin) {
      notes.push_back(absl::StrCat("values of data.train go up to ", of_train,
                                   " and those of data.test up to ", of_test,
                                   ": are both on one scale?"));
    }
  }
  // Workers with files of their own do not see the classes of the others.
  if (spec.local_files || spec.classes < 2 || train.is_tokens()) return notes;
  const std::vector<bool> trained = ClassesOf(train, spec.classes);
  if (std::holds_alternative<Classes>(train.labels)) {
    NoteClasses(trained, ClassesOf(test, spec.classes), &notes);
  } else if (std::count(trained.begin(), trained.end(), true) == 0) {
    notes.push_back("no row of data.train has a label: a model learns to answer none");
  }
  return notes;
}

}  // namespace tessera
