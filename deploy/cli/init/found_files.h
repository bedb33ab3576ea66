// The files that a data set seems to be made of: what each is by its first bytes, and which are to train on.
#ifndef TESSERA_DEPLOY_CLI_INIT_FOUND_FILES_H_
#define TESSERA_DEPLOY_CLI_INIT_FOUND_FILES_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace tessera {

// The files of one format, each by its path. Labels are those that lie in files of their own, in the order of the
// features.
struct FoundFiles {
  // The value of data.format.
  std::string format;
  std::vector<std::string> train, train_labels;
  std::vector<std::string> test, test_labels;
  // No file is called a test file by its name: `test` is `train`.
  bool has_no_test = false;
};

// The format of one file, by its content and, where several formats begin with any bytes, by its name; "" where it
// is none. Pictures are "images".
absl::StatusOr<std::string> FormatOfFile(const std::string& path);

// Which rows a file or folder has by a word of its name. Test rows: test, t10k, eval, or ".t" at the end as in the
// LIBSVM collection; validation rows: val, valid, validation or dev; training rows: train or training.
enum class RowsKind { kUnknown, kTraining, kTest, kValidation };
RowsKind KindOfName(absl::string_view name);

// Looks at files, or at what lies in folders. Where these have data of several formats it takes the first one in the
// order of data.format that has training and test files, and else the first. Files whose names do not tell are training
// files, unless others are called so; validation files are test files where there are no others.
//   kNotFound, ...    a path is not there, or cannot be read
//   kInvalidArgument  there is no data in it: what was seen, and which formats there are
absl::StatusOr<FoundFiles> FindDataFiles(const std::vector<std::string>& paths);

}  // namespace tessera

#endif  // TESSERA_DEPLOY_CLI_INIT_FOUND_FILES_H_
