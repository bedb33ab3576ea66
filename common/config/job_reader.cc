#include "common/config/job_reader.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <map>
#include <system_error>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "common/config/data_check.h"
#include "common/config/job_check.h"
#include "common/config/job_paths.h"
#include "common/config/local_check.h"
#include "common/config/message_reader.h"
#include "common/config/override.h"
#include "common/config/tensor_file.h"
#include "common/config/yaml_tree.h"

namespace tessera {
namespace {

constexpr int kWriterPauseMaxMs = 60 * 1000;

// Fills `text`; returns what went wrong, or nothing.
std::string ReadText(const std::string& path, std::string* text) {
  // O_NONBLOCK keeps a pipe without a writer from holding us for ever.
  const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (file < 0) {
    return absl::StrCat(
        "cannot be read: ", std::strerror(errno),
        path == "-" ? "; \"-\" is a file's name, and /dev/stdin the standard input" : "");
  }
  std::string problem;
  char buffer[1 << 16];
  while (problem.empty()) {
    const ssize_t got = read(file, buffer, sizeof(buffer));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && errno == EAGAIN) {
      pollfd writer{file, POLLIN, 0};
      if (poll(&writer, 1, kWriterPauseMaxMs) == 0) {
        problem = "cannot be read: nothing came for 60 s";
      }
      continue;
    }
    if (got < 0) problem = absl::StrCat("cannot be read: ", std::strerror(errno));
    if (got <= 0) break;
    text->append(buffer, got);
    if (text->size() > kJobFileBytesMax) {
      problem = absl::StrCat("more than ", kJobFileBytesMax, " bytes, want a job file");
    }
  }
  close(file);
  return problem;
}

// Reads what can be read only once, such as a pipe: the text is kept, however often it is asked for.
std::string ReadOnce(const std::string& path, std::string* text) {
  struct Kept {
    std::string text, problem;
  };
  static absl::Mutex mutex(absl::kConstInit);
  static auto* const all = new std::map<std::string, Kept>;
  absl::MutexLock lock(&mutex);
  const auto [kept, is_new] = all->try_emplace(path);
  if (is_new) kept->second.problem = ReadText(path, &kept->second.text);
  *text = kept->second.text;
  return kept->second.problem;
}

// Whether the file names model.tensors, which decides what other keys there may be. No text is no file.
bool NamesTensors(const YamlNode& root) {
  const YamlNode* node = &root;
  for (const absl::string_view name : {"model", "tensors"}) {
    if (!node->is_map()) return false;
    const auto key = std::find_if(node->keys.begin(), node->keys.end(),
                                  [name](const YamlKey& each) { return each.name == name; });
    if (key == node->keys.end()) return false;
    node = &node->items[static_cast<size_t>(key - node->keys.begin())];
  }
  return !node->is_null() && !(node->is_scalar() && node->text.empty());
}

}  // namespace

bool CanBeReadOnce(const std::string& path) {
  std::error_code error;
  const std::filesystem::file_status status = std::filesystem::status(path, error);
  if (error || std::filesystem::is_directory(status)) return false;
  if (!std::filesystem::is_regular_file(status)) return true;
  // A file may stand behind it, but only for this process.
  const std::string name = std::filesystem::absolute(path, error).lexically_normal().string();
  return absl::StartsWith(name, "/dev/fd/") || absl::StartsWith(name, "/proc/") ||
         name == "/dev/stdin";
}

JobReading ReadJob(const JobSource& source, const JobOptions& options) {
  JobReading reading;
  JobErrors errors(source.path, source.overrides);
  YamlNode root;
  if (!ParseYaml(source.text, 0, &root, &errors)) {
    reading.errors = errors.Sorted();
    return reading;
  }
  if (root.is_null()) {
    errors.Add({0, 1, 1}, "", "empty, want a job");
    reading.errors = errors.Sorted();
    return reading;
  }
  if (root.is_map()) {
    ApplyOverrides(source.overrides, *v1::Job::descriptor(), &root, &errors);
  }
  Positions positions;
  const bool of_tensors = NamesTensors(root);
  MessageReader(&errors, &positions, of_tensors).Read(root, "", {0, 1, 1}, &reading.job);
  ResolveJobPaths(source.directory, &reading.job);
  if (root.is_map()) {
    if (of_tensors) {
      ReadTensorFile(positions, options.may_lack_tensors, reading.job.mutable_model(), &errors);
    }
    CheckJob(positions, &reading.job, &errors);
    if (!options.may_be_open) RefuseOpenKeys(positions, reading.job, &errors);
    const bool check = options.check_files;
    if (check) CheckDataFiles(positions, reading.job, &errors);
    if (check && options.check_security) CheckSecurityFiles(positions, reading.job, &errors);
    if (check && options.check_restore) CheckRestoreFolder(positions, reading.job, &errors);
  }
  reading.errors = errors.Sorted();
  return reading;
}

JobReading ReadJobFile(const std::string& path, const std::vector<std::string>& overrides,
                       const JobOptions& options) {
  JobSource source;
  source.path = path;
  source.overrides = overrides;
  std::error_code no_directory;
  std::string problem;
  if (CanBeReadOnce(path)) {
    problem = ReadOnce(path, &source.text);
    source.directory = std::filesystem::current_path(no_directory).string();
  } else {
    problem = ReadText(path, &source.text);
    source.directory = std::filesystem::absolute(path, no_directory).parent_path().string();
  }
  if (problem.empty() && !no_directory) return ReadJob(source, options);
  JobReading reading;
  reading.errors.push_back({path, 0, 0, "", problem.empty() ? no_directory.message() : problem});
  return reading;
}

}  // namespace tessera
