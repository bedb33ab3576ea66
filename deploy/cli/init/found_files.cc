#include "deploy/cli/init/found_files.h"

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "common/base/check.h"
#include "common/base/printable.h"
#include "common/config/data_formats.h"
#include "worker/data/file_formats.h"
#include "worker/data/file_head.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;

// Files of a folder that are looked at; a set in more files is a set of pictures.
constexpr size_t kFilesMax = 256;
// What is told of a folder without data.
constexpr size_t kNamesShown = 5;

std::string LowerStem(absl::string_view name) {
  std::string lower = absl::AsciiStrToLower(name);
  return std::string(absl::StripSuffix(lower, ".gz"));
}

bool IsPicture(absl::string_view name) {
  const std::string lower = absl::AsciiStrToLower(name);
  return absl::EndsWith(lower, ".jpg") || absl::EndsWith(lower, ".jpeg") ||
         absl::EndsWith(lower, ".png");
}

// Words that are no data although they are text, as they lie beside many data sets.
bool IsAboutData(absl::string_view name) {
  const std::string lower = absl::AsciiStrToLower(name);
  for (const absl::string_view begin : {"readme", "license", "licence", "copying", "changelog"}) {
    if (absl::StartsWith(lower, begin)) return true;
  }
  for (const absl::string_view end :
       {".md", ".yaml", ".yml", ".json", ".py", ".sh", "sums", ".html"}) {
    if (absl::EndsWith(lower, end)) return true;
  }
  return absl::StartsWith(lower, ".");
}

// A file or a folder of class folders that was found.
struct Found {
  std::string path;
  std::string format;
};

// Whether a folder has a folder with a picture in it.
bool HasClasses(const fs::path& folder) {
  std::error_code error;
  for (const auto& sub : fs::directory_iterator(folder, error)) {
    if (!sub.is_directory(error) || absl::StartsWith(sub.path().filename().string(), ".")) continue;
    for (const auto& file : fs::directory_iterator(sub.path(), error)) {
      if (IsPicture(file.path().filename().string())) return true;
    }
  }
  return false;
}

absl::Status AddFolder(const std::string& path, std::vector<Found>* found,
                       std::vector<std::string>* seen) {
  if (HasClasses(path)) {
    found->push_back({path, "images"});
    return absl::OkStatus();
  }
  std::error_code error;
  std::vector<fs::path> entries;
  for (const auto& entry : fs::directory_iterator(path, error)) entries.push_back(entry.path());
  if (error) {
    return absl::NotFoundError(absl::StrCat("\"", path, "\": ", error.message()));
  }
  std::sort(entries.begin(), entries.end());
  size_t files = 0;
  for (const fs::path& entry : entries) {
    const std::string name = entry.filename().string();
    if (fs::is_directory(entry, error)) {
      if (HasClasses(entry)) {
        found->push_back({entry.string(), "images"});
      } else {
        seen->push_back(name + "/");
      }
      continue;
    }
    if (IsAboutData(name) || IsPicture(name) || ++files > kFilesMax) {
      seen->push_back(name);
      continue;
    }
    const absl::StatusOr<std::string> format = FormatOfFile(entry.string());
    if (format.ok() && !format->empty()) {
      found->push_back({entry.string(), *format});
    } else {
      seen->push_back(name);
    }
  }
  return absl::OkStatus();
}

// Whether a file of arrays has labels by its name: "train-labels-idx1-ubyte", "y_train.npy".
bool IsLabelsName(const std::string& path) {
  const std::string name = LowerStem(fs::path(path).filename().string());
  for (const absl::string_view word : absl::StrSplit(name, absl::ByAnyChar("-_. "))) {
    if (word == "y" || absl::StartsWith(word, "label") || absl::StartsWith(word, "target")) {
      return true;
    }
  }
  return false;
}

void Add(const std::string& path, bool has_labels, std::vector<std::string>* features,
         std::vector<std::string>* labels) {
  (has_labels && IsLabelsName(path) ? labels : features)->push_back(path);
}

// The files of one format as sets.
FoundFiles SetsOf(absl::string_view format, const std::vector<Found>& found) {
  FoundFiles files;
  files.format = std::string(format);
  const bool has_labels = DataFormatOf(format).labels_apart;
  const auto kind_of = [](const Found& each) {
    return KindOfName(fs::path(each.path).filename().string());
  };
  const auto has = [&](RowsKind kind) {
    return std::any_of(found.begin(), found.end(), [&](const Found& each) {
      return each.format == format && kind_of(each) == kind;
    });
  };
  // Beside files that say what they are, others are about something else, as the means of features are.
  const bool takes_unknown = !has(RowsKind::kTraining), takes_validation = !has(RowsKind::kTest);
  for (const Found& each : found) {
    if (each.format != format) continue;
    const RowsKind kind = kind_of(each);
    if (kind == RowsKind::kTest || (kind == RowsKind::kValidation && takes_validation)) {
      Add(each.path, has_labels, &files.test, &files.test_labels);
    } else if (kind == RowsKind::kTraining || (kind == RowsKind::kUnknown && takes_unknown)) {
      Add(each.path, has_labels, &files.train, &files.train_labels);
    }
  }
  if (files.train.empty()) {
    std::swap(files.train, files.test);
    std::swap(files.train_labels, files.test_labels);
  }
  files.has_no_test = files.test.empty();
  if (files.has_no_test) {
    files.test = files.train;
    files.test_labels = files.train_labels;
  }
  return files;
}

}  // namespace

absl::StatusOr<std::string> FormatOfFile(const std::string& path) {
  if (IsPicture(fs::path(path).filename().string())) return std::string("images");
  TESSERA_ASSIGN_OR_RETURN(const FileHead head, FileHead::Read(path));
  if (head.bytes().empty()) return std::string();
  for (const FileFormat* const format : FileFormats()) {
    if (format->is == nullptr) continue;
    TESSERA_ASSIGN_OR_RETURN(const bool is, format->is(head));
    if (is) return std::string(format->name);
  }
  return std::string();
}

RowsKind KindOfName(absl::string_view name) {
  static constexpr std::pair<absl::string_view, RowsKind> kWords[] = {
      {"train", RowsKind::kTraining},   {"training", RowsKind::kTraining},
      {"test", RowsKind::kTest},        {"t10k", RowsKind::kTest},
      {"eval", RowsKind::kTest},        {"val", RowsKind::kValidation},
      {"valid", RowsKind::kValidation}, {"validation", RowsKind::kValidation},
      {"dev", RowsKind::kValidation}};
  const std::string lower = LowerStem(name);
  if (absl::EndsWith(lower, ".t")) return RowsKind::kTest;
  for (const absl::string_view part : absl::StrSplit(lower, absl::ByAnyChar("-_. "))) {
    for (const auto& [word, kind] : kWords) {
      if (part == word) return kind;
    }
  }
  return RowsKind::kUnknown;
}

absl::StatusOr<FoundFiles> FindDataFiles(const std::vector<std::string>& paths) {
  std::vector<Found> found;
  std::vector<std::string> seen;
  for (const std::string& path : paths) {
    std::error_code error;
    if (!fs::exists(path, error)) {
      return absl::NotFoundError(absl::StrCat("got \"", path,
                                              "\", want a folder or files with data; ", path,
                                              ": No such file or directory"));
    }
    if (fs::is_directory(path, error)) {
      TESSERA_RETURN_IF_ERROR(AddFolder(path, &found, &seen));
      continue;
    }
    // What is wrong with a file that the user names is told in the reader's words.
    TESSERA_ASSIGN_OR_RETURN(const std::string format, FormatOfFile(path));
    if (format.empty() || format == "images") {
      seen.push_back(fs::path(path).filename().string());
    } else {
      found.push_back({path, format});
    }
  }
  const FoundFiles* best = nullptr;
  std::vector<FoundFiles> sets;
  for (const DataFormat& format : DataFormats()) {
    FoundFiles files = SetsOf(format.name, found);
    if (!files.train.empty()) sets.push_back(std::move(files));
  }
  for (const FoundFiles& files : sets) {
    if (best == nullptr || (best->has_no_test && !files.has_no_test)) best = &files;
  }
  if (best != nullptr) return *best;
  const size_t more = seen.size() - std::min(seen.size(), kNamesShown);
  seen.resize(seen.size() - more);
  return absl::InvalidArgumentError(absl::StrCat(
      "no data in ", absl::StrJoin(paths, ", "), ": saw ",
      seen.empty() ? "no files" : ToPrintable(absl::StrJoin(seen, ", ")),
      more > 0 ? absl::StrCat(" and ", more, " more") : "", ", want files of ", DataFormatNames(),
      " (docs/operating/data.md says what each is; pictures lie in a folder for each class)"));
}

}  // namespace tessera
