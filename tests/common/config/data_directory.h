// The data files of the job of job_text.h, for tests of a reader that looks for them.
#ifndef TESSERA_TESTS_COMMON_CONFIG_DATA_DIRECTORY_H_
#define TESSERA_TESTS_COMMON_CONFIG_DATA_DIRECTORY_H_

#include <sys/stat.h>

#include <cstdlib>
#include <fstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/common/config/job_text.h"

namespace tessera {

// A folder with the files that kJob names.
struct DataDirectory {
  DataDirectory() : path(absl::StrCat(std::getenv("TEST_TMPDIR"), "/data")) {
    mkdir(path.c_str(), 0700);
    for (const char* name : {"a.gz", "b.gz", "c.gz", "d.gz"}) Write(name);
  }
  void Write(const std::string& name) const { std::ofstream(path + "/" + name) << "x"; }

  std::string Errors(const std::vector<std::string>& overrides,
                     const JobOptions& options = {}) const {
    const std::string parent = path.substr(0, path.rfind('/'));
    return FormatJobErrors(ReadJob({kJob, "x.yaml", parent, overrides}, options).errors);
  }

  const std::string path;
};

}  // namespace tessera

#endif  // TESSERA_TESTS_COMMON_CONFIG_DATA_DIRECTORY_H_
