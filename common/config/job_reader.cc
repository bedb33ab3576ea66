#include "common/config/job_reader.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "common/config/job_check.h"
#include "common/config/job_paths.h"
#include "common/config/message_reader.h"
#include "common/config/override.h"
#include "common/config/yaml_tree.h"

namespace tessera {
namespace {

// Fills `text`; returns what went wrong, or nothing.
std::string ReadText(const std::string& path, std::string* text) {
  // Without O_NONBLOCK a pipe without a writer would hold us for ever.
  const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (file < 0) return absl::StrCat("cannot be read: ", std::strerror(errno));
  std::string problem;
  char buffer[1 << 16];
  while (problem.empty()) {
    const ssize_t got = read(file, buffer, sizeof(buffer));
    if (got < 0 && errno == EINTR) continue;
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

}  // namespace

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
  MessageReader(&errors, &positions).Read(root, "", {0, 1, 1}, &reading.job);
  ResolveJobPaths(source.directory, &reading.job);
  if (root.is_map()) {
    CheckJob(positions, &reading.job, &errors);
    if (options.check_files) CheckDataFiles(positions, reading.job, &errors);
  }
  reading.errors = errors.Sorted();
  return reading;
}

JobReading ReadJobFile(const std::string& path, const std::vector<std::string>& overrides,
                       const JobOptions& options) {
  JobSource source;
  source.path = path;
  source.overrides = overrides;
  const std::string problem = ReadText(path, &source.text);
  std::error_code no_directory;
  source.directory = std::filesystem::absolute(path, no_directory).parent_path().string();
  if (problem.empty() && !no_directory) return ReadJob(source, options);
  JobReading reading;
  reading.errors.push_back(
      {path, 0, 0, "", problem.empty() ? no_directory.message() : problem});
  return reading;
}

}  // namespace tessera
