#include "worker/data/picture_files.h"

#include <dirent.h>
#include <sys/stat.h>
#include <xxhash.h>

#include <algorithm>
#include <cerrno>
#include <memory>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "common/base/check.h"
#include "worker/data/byte_source.h"
#include "worker/data/limits.h"
#include "worker/data/line_source.h"

namespace tessera {
namespace {

// Linux' PATH_MAX.
constexpr int64_t kPathBytesMax = 4096;
// Class folders that a message names.
constexpr size_t kNamesListedMax = 8;

struct Entry {
  std::string name;
  bool is_folder = false;
  int64_t bytes = 0;
};

bool IsPictureName(absl::string_view name) {
  const std::string lower = absl::AsciiStrToLower(name);
  return absl::EndsWith(lower, ".jpg") || absl::EndsWith(lower, ".jpeg") ||
         absl::EndsWith(lower, ".png");
}

absl::StatusOr<Entry> EntryOf(const std::string& path, std::string name) {
  struct stat about;
  if (stat(path.c_str(), &about) != 0) {
    return absl::ErrnoToStatus(errno, absl::StrCat(path, ": cannot be read"));
  }
  const bool is_folder = S_ISDIR(about.st_mode);
  // Devices and pipes would block, or never end.
  if (!is_folder && !S_ISREG(about.st_mode)) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": is no file and no folder"));
  }
  return Entry{std::move(name), is_folder, static_cast<int64_t>(about.st_size)};
}

// What a folder has, by name, but for names that begin with a dot.
absl::StatusOr<std::vector<Entry>> EntriesOf(const std::string& folder) {
  const std::unique_ptr<DIR, int (*)(DIR*)> opened(opendir(folder.c_str()), closedir);
  if (opened == nullptr) {
    return absl::ErrnoToStatus(errno, absl::StrCat(folder, ": cannot be read"));
  }
  std::vector<Entry> entries;
  for (;;) {
    errno = 0;
    // readdir tells the end and a failure by the same null.
    const dirent* const found = readdir(opened.get());
    if (found == nullptr && errno != 0) {
      return absl::ErrnoToStatus(errno, absl::StrCat(folder, ": cannot be read"));
    }
    if (found == nullptr) break;
    const std::string name = found->d_name;
    if (name[0] == '.') continue;
    TESSERA_ASSIGN_OR_RETURN(Entry entry, EntryOf(absl::StrCat(folder, "/", name), name));
    entries.push_back(std::move(entry));
  }
  // The system gives names in any order: rows must have the same order on all workers.
  std::sort(entries.begin(), entries.end(),
            [](const Entry& a, const Entry& b) { return a.name < b.name; });
  return entries;
}

std::string NamesText(const std::vector<std::string>& names) {
  const size_t listed = std::min(names.size(), kNamesListedMax);
  return absl::StrCat(absl::StrJoin(names.begin(), names.begin() + listed, ", "),
                      listed < names.size() ? ", ..." : "");
}

absl::Status CheckNames(const std::string& folder, const std::vector<std::string>& names,
                        const TableSpec& spec, const std::vector<std::string>& wanted) {
  // Test folders number their classes as training folders do.
  if (!wanted.empty() && names != wanted) {
    return absl::InvalidArgumentError(absl::StrCat(
        folder, ": class folders are ", NamesText(names), " (", names.size(), "), want ",
        NamesText(wanted), " (", wanted.size(), "), as the first folder of data.train has"));
  }
  if (static_cast<int64_t>(names.size()) == spec.classes) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      folder, ": has ", names.size(), names.size() == 1 ? " class folder" : " class folders",
      names.empty() ? "" : absl::StrCat(" (", NamesText(names), ")"), ", want ", spec.classes,
      ", one for each class of the model"));
}

// Adds rows and sums them up.
class Appender {
 public:
  explicit Appender(PictureFiles* files) : files_(*files) {}

  absl::Status Add(std::string path, absl::string_view name, int64_t bytes, int32_t of_class) {
    if (static_cast<int64_t>(files_.paths.size()) == kRowsMax) {
      return absl::InvalidArgumentError(
          absl::StrCat(path, ": is beyond the ", kRowsMax, " rows that there may be"));
    }
    // Names, sizes and classes are summed, not the pictures, which would all have to be read.
    const int64_t numbers[] = {bytes, of_class, static_cast<int64_t>(name.size())};
    files_.sum = XXH3_64bits_withSeed(numbers, sizeof numbers, files_.sum);
    files_.sum = XXH3_64bits_withSeed(name.data(), name.size(), files_.sum);
    files_.paths.push_back(std::move(path));
    files_.classes.push_back(of_class);
    return absl::OkStatus();
  }

 private:
  PictureFiles& files_;
};

absl::Status AppendFolder(const std::string& folder, const TableSpec& spec,
                          std::vector<std::string>* class_names, PictureFiles* files) {
  TESSERA_ASSIGN_OR_RETURN(const std::vector<Entry> entries, EntriesOf(folder));
  std::vector<std::string> names;
  for (const Entry& entry : entries) {
    if (entry.is_folder) {
      names.push_back(entry.name);
    } else if (IsPictureName(entry.name)) {
      return absl::InvalidArgumentError(
          absl::StrCat(folder, "/", entry.name,
                       ": is a picture beside the class folders, want each in the folder of its "
                       "class"));
    }
  }
  TESSERA_RETURN_IF_ERROR(CheckNames(folder, names, spec, *class_names));
  *class_names = names;
  Appender rows(files);
  for (size_t c = 0; c < names.size(); ++c) {
    // The index of a class folder, in the order of names, is its class.
    const std::string of_class = absl::StrCat(folder, "/", names[c]);
    TESSERA_ASSIGN_OR_RETURN(std::vector<Entry> pictures, EntriesOf(of_class));
    for (const Entry& picture : pictures) {
      const std::string path = absl::StrCat(of_class, "/", picture.name);
      if (picture.is_folder) {
        return absl::InvalidArgumentError(
            absl::StrCat(path, ": is a folder within that of a class, want pictures only"));
      }
      TESSERA_RETURN_IF_ERROR(rows.Add(path, absl::StrCat(names[c], "/", picture.name),
                                       picture.bytes, static_cast<int32_t>(c)));
    }
  }
  return absl::OkStatus();
}

absl::Status AppendList(const std::string& list, const TableSpec& spec, PictureFiles* files) {
  TESSERA_ASSIGN_OR_RETURN(auto bytes, ByteSource::Open(list));
  LineSource lines(std::move(bytes), kPathBytesMax);
  const size_t slash = list.rfind('/');
  // Paths in a list are relative to the list.
  const std::string folder = slash == std::string::npos ? "" : list.substr(0, slash + 1);
  Appender rows(files);
  for (;;) {
    absl::string_view line;
    TESSERA_ASSIGN_OR_RETURN(const bool more, lines.Next(&line));
    if (!more) return absl::OkStatus();
    line = absl::StripAsciiWhitespace(line);
    // Paths may have blanks: the label is behind the last one.
    const size_t blank = line.find_last_of(" \t");
    if (blank == absl::string_view::npos) {
      return absl::InvalidArgumentError(
          absl::StrCat(lines.where(), ": is \"", line, "\", want a path and a label"));
    }
    const std::string name(absl::StripAsciiWhitespace(line.substr(0, blank)));
    int64_t label = 0;
    if (!absl::SimpleAtoi(line.substr(blank + 1), &label) || label < 0 || label >= spec.classes) {
      return absl::InvalidArgumentError(absl::StrCat(lines.where(), ": label is \"",
                                                     line.substr(blank + 1), "\", want 0 to ",
                                                     spec.classes - 1, " (the model's classes)"));
    }
    const std::string path = name[0] == '/' ? name : folder + name;
    const absl::StatusOr<Entry> entry = EntryOf(path, name);
    if (!entry.ok()) {
      return absl::Status(entry.status().code(),
                          absl::StrCat(lines.where(), ": ", entry.status().message()));
    }
    if (entry->is_folder) {
      return absl::InvalidArgumentError(
          absl::StrCat(lines.where(), ": ", path, " is a folder, want a picture"));
    }
    TESSERA_RETURN_IF_ERROR(rows.Add(path, name, entry->bytes, static_cast<int32_t>(label)));
  }
}

}  // namespace

int64_t PictureFiles::bytes() const {
  auto sum = static_cast<int64_t>(paths.capacity() * sizeof(std::string));
  for (const std::string& path : paths) sum += static_cast<int64_t>(path.capacity() + 1);
  return sum;
}

absl::Status AppendPictureFiles(const std::string& path, const TableSpec& spec,
                                std::vector<std::string>* class_names, PictureFiles* files) {
  TESSERA_ASSIGN_OR_RETURN(const Entry entry, EntryOf(path, path));
  const size_t before = files->paths.size();
  TESSERA_RETURN_IF_ERROR(entry.is_folder ? AppendFolder(path, spec, class_names, files)
                                          : AppendList(path, spec, files));
  if (files->paths.size() > before) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(path, ": has no pictures, want at least one"));
}

}  // namespace tessera
