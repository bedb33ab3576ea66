// From tokens, as a reader comes upon them, to a table whose rows are windows of them (token_windows.h).
#ifndef TESSERA_WORKER_DATA_TOKEN_TABLE_H_
#define TESSERA_WORKER_DATA_TOKEN_TABLE_H_

#include <xxhash.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "worker/data/table.h"
#include "worker/data/token_values.h"
#include "worker/data/token_windows.h"

namespace tessera {

class TokenTable {
 public:
  // `spec`, which outlives it, has the context as `features` and the vocabulary as `classes`.
  explicit TokenTable(const TableSpec& spec);

  // The next units of the files, whatever their numbers will be: Dataset::Sum is made of them.
  void Count(absl::Span<const uint32_t> units);
  // Keeps tokens, which are counted as well. kResourceExhausted: they take more than spec.bytes_max.
  absl::Status Hold(const std::string& path, absl::Span<const uint32_t> tokens);
  TokenValues& held() { return held_; }
  int64_t count() const { return count_; }
  const TokenWindows& windows() const { return windows_; }

  // A table of what was kept, or, where nothing was, of what `stored` reads. `paths` are the files.
  //   kInvalidArgument    the tokens are too few for a row
  //   kResourceExhausted  rows are more than kRowsMax
  absl::StatusOr<Table> Finish(const std::vector<std::string>& paths, StoredValues stored);

 private:
  struct Free {
    void operator()(XXH3_state_t* state) const { XXH3_freeState(state); }
  };

  const TableSpec& spec_;
  const TokenWindows windows_;
  TokenValues held_;
  int64_t count_ = 0;
  const std::unique_ptr<XXH3_state_t, Free> sum_;
};

}  // namespace tessera

#endif  // TESSERA_WORKER_DATA_TOKEN_TABLE_H_
