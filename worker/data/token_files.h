// The tokens of files that stay on disk: each window is read from its place when it is asked for.
#ifndef TESSERA_WORKER_DATA_TOKEN_FILES_H_
#define TESSERA_WORKER_DATA_TOKEN_FILES_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "worker/data/token_windows.h"
#include "worker/data/value_source.h"

namespace tessera {

// The tokens of all files are one sequence. Constant after construction. Files stay open.
class TokenFiles final : public ValueSource {
 public:
  struct File {
    std::string path;
    int64_t tokens = 0;
  };

  // Tokens are little-endian integers of `token_bytes` (2 or 4) in [0, vocabulary). Errors of open(2) come with their
  // own codes.
  static absl::StatusOr<StoredValues> Open(const std::vector<File>& files, int token_bytes,
                                           int64_t vocabulary, const TokenWindows& windows);
  ~TokenFiles() override;

  bool is_bytes() const override { return false; }
  // Writes the row and the token behind it, context + 1 floats.
  //   kDataLoss  the file has changed since it was opened
  absl::Status Read(uint32_t row, std::optional<uint64_t> epoch, void* out) const override;
  bool draws() const override { return windows_.trains; }
  int64_t bytes() const override { return 0; }

 private:
  struct Opened {
    std::string path;
    // The number of the file's first token.
    int64_t first = 0;
    int64_t tokens = 0;
    int descriptor = -1;
  };

  TokenFiles(int token_bytes, int64_t vocabulary, const TokenWindows& windows)
      : token_bytes_(token_bytes), vocabulary_(vocabulary), windows_(windows) {}
  absl::Status ReadFrom(const Opened& file, int64_t begin, int64_t count, float* out) const;

  const int token_bytes_;
  const int64_t vocabulary_;
  const TokenWindows windows_;
  std::vector<Opened> files_;
};

}  // namespace tessera

#endif  // TESSERA_WORKER_DATA_TOKEN_FILES_H_
