#include "deploy/cli/init/found_files.h"

#include <algorithm>
#include <cctype>
#include <cstdint>
#include <filesystem>
#include <map>
#include <system_error>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "common/base/check.h"
#include "common/base/printable.h"
#include "common/base/utf8.h"
#include "common/config/data_formats.h"
#include "worker/data/byte_source.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;

// The first bytes of a file that are looked at.
constexpr size_t kHeadBytes = 64 << 10;
// Files of a folder that are looked at; a set in more files is a set of pictures.
constexpr size_t kFilesMax = 256;
// What is told of a folder without data.
constexpr size_t kNamesShown = 5;
constexpr int64_t kCifarRecord = 3073, kCifar100Record = 3074;

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

// Fields of a line of text, as the formats of text have them.
bool IsCount(absl::string_view field) {
  return !field.empty() && std::all_of(field.begin(), field.end(), absl::ascii_isdigit);
}

bool IsEntry(absl::string_view field) {
  const size_t colon = field.find(':');
  double value;
  return colon != absl::string_view::npos && IsCount(field.substr(0, colon)) &&
         absl::SimpleAtod(field.substr(colon + 1), &value);
}

bool IsNumber(absl::string_view field) {
  double value;
  return absl::SimpleAtod(absl::StripAsciiWhitespace(field), &value);
}

std::string FormatOfText(absl::string_view head, bool is_whole, absl::string_view name) {
  std::vector<absl::string_view> lines = absl::StrSplit(head, '\n');
  // The last line of what was read may be cut off.
  if (!is_whole && lines.size() > 1) lines.pop_back();
  lines.erase(std::remove_if(lines.begin(), lines.end(),
                             [](absl::string_view line) {
                               line = absl::StripAsciiWhitespace(line);
                               return line.empty() || line[0] == '#';
                             }),
              lines.end());
  if (lines.empty()) return "";
  const auto words = [](absl::string_view line) {
    return std::vector<absl::string_view>(
        absl::StrSplit(line, absl::ByAnyChar(" \t\r"), absl::SkipEmpty()));
  };
  const auto is_entries = [&words](absl::string_view line) {
    const std::vector<absl::string_view> fields = words(line);
    return !fields.empty() && IsEntry(fields.back());
  };
  const std::vector<absl::string_view> first = words(lines[0]);
  if (lines.size() > 1 && first.size() == 3 && std::all_of(first.begin(), first.end(), IsCount) &&
      is_entries(lines[1])) {
    return "xc";
  }
  if (first.size() > 1 && IsEntry(first[1]) && is_entries(lines[0])) return "libsvm";
  const auto commas = [](absl::string_view line) {
    return std::count(line.begin(), line.end(), ',');
  };
  const int64_t fields = commas(lines[0]);
  const bool is_table =
      fields > 0 && std::all_of(lines.begin(), lines.end(),
                                [&](absl::string_view line) { return commas(line) == fields; });
  const std::vector<absl::string_view> row = absl::StrSplit(lines.back(), ',');
  const bool has_number = std::any_of(row.begin(), row.end(), IsNumber);
  if (absl::EndsWith(name, ".csv") || (is_table && lines.size() > 1 && has_number)) return "csv";
  return "text";
}

// The bytes of a file's content, inflated.
absl::StatusOr<int64_t> ContentBytes(const std::string& path) {
  TESSERA_ASSIGN_OR_RETURN(const auto source, ByteSource::Open(path, ByteSource::Kinds::kAnyText));
  std::string buffer(1 << 20, '\0');
  while (true) {
    TESSERA_ASSIGN_OR_RETURN(const size_t got, source->Read(&buffer[0], buffer.size()));
    if (got < buffer.size()) return source->offset();
  }
}

// A file whose bytes may be anything.
absl::StatusOr<std::string> FormatOfBytes(const std::string& path, absl::string_view name) {
  TESSERA_ASSIGN_OR_RETURN(const int64_t bytes, ContentBytes(path));
  if (bytes == 0) return std::string();
  if (bytes % kCifarRecord == 0 || bytes % kCifar100Record == 0) return std::string("cifar");
  if (absl::EndsWith(name, ".bin") && bytes % 2 == 0) return std::string("tokens");
  return std::string();
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
  const std::string name = LowerStem(fs::path(path).filename().string());
  if (IsPicture(name)) return std::string("images");
  TESSERA_ASSIGN_OR_RETURN(const auto source, ByteSource::Open(path, ByteSource::Kinds::kAnyText));
  std::string head(kHeadBytes, '\0');
  TESSERA_ASSIGN_OR_RETURN(const size_t bytes, source->Read(&head[0], head.size()));
  const bool is_whole = bytes < head.size();
  head.resize(bytes);
  if (absl::StartsWith(head, "\x93NUMPY")) return std::string("npy");
  constexpr absl::string_view kIdxTypes = "\x08\x09\x0b\x0c\x0d\x0e";
  if (head.size() > 4 && head[0] == 0 && head[1] == 0 &&
      kIdxTypes.find(head[2]) != absl::string_view::npos && head[3] > 0 && head[3] <= 8) {
    return std::string("idx");
  }
  // A character may be cut off where the head ends.
  const bool is_text =
      head.find('\0') == std::string::npos &&
      Utf8PrefixBytes(head) + (is_whole ? 0 : 4) > head.size() - (is_whole ? 1 : 0);
  if (head.empty()) return std::string();
  return is_text ? absl::StatusOr<std::string>(FormatOfText(head, is_whole, name))
                 : FormatOfBytes(path, name);
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
