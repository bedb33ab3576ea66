#include "tests/fuzz/scratch_file.h"

#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"

namespace tessera {
namespace {

const std::string& Folder() {
  static const std::string* const folder = [] {
    const char* const base = std::getenv("TEST_TMPDIR");
    auto* const made =
        new std::string(absl::StrCat(base == nullptr ? "/tmp" : base, "/fuzz-", getpid()));
    std::filesystem::create_directories(*made);
    std::atexit([] {
      std::error_code ignored;
      std::filesystem::remove_all(Folder(), ignored);
    });
    return made;
  }();
  return *folder;
}

}  // namespace

std::string WriteScratchFile(absl::string_view name, absl::string_view content) {
  const std::string path = absl::StrCat(Folder(), "/", name);
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file << content;
  file.close();
  TESSERA_CHECK(file.good());
  return path;
}

}  // namespace tessera
