#include "deploy/cli/run/find_program.h"

#include <unistd.h>

#include <filesystem>
#include <system_error>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace tessera {

absl::StatusOr<std::string> FindProgram(const std::string& name,
                                        const std::string& build_directory) {
  std::error_code error;
  const std::filesystem::path self = std::filesystem::read_symlink("/proc/self/exe", error);
  const std::filesystem::path here = self.parent_path();
  for (const std::filesystem::path& candidate :
       {here / name, here / ".." / ".." / build_directory / name}) {
    if (access(candidate.c_str(), X_OK) == 0) return candidate.lexically_normal().string();
  }
  return absl::NotFoundError(absl::StrCat(name, ": not found beside ", self.string(),
                                          "; build it: bazel build //", build_directory, ":",
                                          name));
}

}  // namespace tessera
