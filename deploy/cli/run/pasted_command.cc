#include "deploy/cli/run/pasted_command.h"

#include <stdlib.h>
#include <unistd.h>

#include <filesystem>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "deploy/cli/run/shell_word.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;

std::string AbsolutePath(const std::string& path) {
  std::error_code error;
  const fs::path whole = fs::absolute(path, error);
  return error ? path : whole.lexically_normal().string();
}

// Whether a shell that is given `name` starts this program.
bool IsOnPath(const std::string& name) {
  const char* const path = getenv("PATH");
  if (path == nullptr) return false;
  for (const absl::string_view folder : absl::StrSplit(path, ':')) {
    if (folder.empty() || folder[0] != '/') continue;  // Another folder's there.
    const fs::path found = fs::path(std::string(folder)) / name;
    std::error_code error;
    if (access(found.c_str(), X_OK) != 0 || fs::is_directory(found, error)) continue;
    return fs::equivalent(found, "/proc/self/exe", error);
  }
  return false;
}

}  // namespace

std::string ThisProgram(const std::string& called_as) {
  const std::string name = fs::path(called_as).filename().string();
  if (!name.empty() && IsOnPath(name)) return ShellWord(name);
  std::error_code error;
  const bool is_path = called_as.find('/') != std::string::npos && fs::exists(called_as, error);
  const fs::path self = is_path ? fs::path(called_as) : fs::read_symlink("/proc/self/exe", error);
  return ShellWord(AbsolutePath(self.string()));
}

std::string SecurityFlags(const SecurityFiles& files) {
  std::string flags;
  const auto add = [&flags](absl::string_view name, const std::string& path) {
    if (!path.empty()) absl::StrAppend(&flags, " --", name, " ", ShellWord(AbsolutePath(path)));
  };
  add("authority", files.authority);
  add("certificate", files.certificate);
  add("private-key", files.private_key);
  add("token-file", files.token_file);
  return flags;
}

}  // namespace tessera
