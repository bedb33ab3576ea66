#include "deploy/cli/launch/supervised_files.h"

#include <cstdio>
#include <fstream>

#include "absl/strings/str_cat.h"

namespace tessera {

absl::Status SupervisedFiles::WriteExit(const ChildProcess::Exit& exit) const {
  // Whoever sees the file may read it at once.
  const std::string part = this->exit() + ".part";
  std::ofstream file(part);
  file << exit.code << " " << exit.signal << " " << exit.why << "\n";
  file.close();
  if (!file || std::rename(part.c_str(), this->exit().c_str()) != 0) {
    return absl::UnavailableError(
        absl::StrCat(part, ": cannot be written; is there room on its disk?"));
  }
  return absl::OkStatus();
}

std::optional<ChildProcess::Exit> SupervisedFiles::ReadExit() const {
  std::ifstream file(exit());
  ChildProcess::Exit exit;
  if (!(file >> exit.code >> exit.signal)) return std::nullopt;
  // A blank stands between the numbers and the words, which may be none.
  file.ignore(1);
  std::getline(file, exit.why);
  return exit;
}

}  // namespace tessera
