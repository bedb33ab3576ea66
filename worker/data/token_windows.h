// Where the rows of a sequence of tokens begin.
//
// With n tokens and a context of C, row r is the tokens [r C + o, r C + o + C), and its labels are the tokens
// [r C + o + 1, r C + o + C + 1): in each place the token that comes next.
//
//   rows that train   there are floor((n - C) / C) of them. In epoch e all begin at the same offset
//                     o = floor(w[0] C / 2^32), w being the words of Philox(seed, kTokenShift, e, 0): windows are cut
//                     elsewhere in each epoch, and no token is in two rows of one epoch
//   other rows        o is 0, and there are floor((n - 1) / C) of them
//
// Rows that train begin at o = 0, too, where they are read outside of an epoch.
#ifndef TESSERA_WORKER_DATA_TOKEN_WINDOWS_H_
#define TESSERA_WORKER_DATA_TOKEN_WINDOWS_H_

#include <algorithm>
#include <cstdint>
#include <optional>

#include "common/base/philox.h"

namespace tessera {

struct TokenWindows {
  // The tokens of a row, at least 1.
  int64_t context = 1;
  // Whether rows are trained on: windows then shift from epoch to epoch.
  bool trains = false;
  uint64_t seed = 0;

  // The rows that so many tokens make.
  int64_t RowsOf(int64_t tokens) const {
    return std::max<int64_t>(0, trains ? tokens / context - 1 : (tokens - 1) / context);
  }
  // The least number of tokens that make a row.
  int64_t TokensMin() const { return trains ? 2 * context : context + 1; }
  // The first token of `row`. The row and its labels are the context + 1 tokens from there on.
  int64_t BeginOf(uint32_t row, std::optional<uint64_t> epoch) const {
    return int64_t{row} * context + OffsetOf(epoch);
  }
  int64_t OffsetOf(std::optional<uint64_t> epoch) const {
    if (!trains || !epoch.has_value()) return 0;
    const uint64_t word = Philox(seed, Stream::kTokenShift, *epoch, 0)[0];
    return static_cast<int64_t>(word * static_cast<uint64_t>(context) >> 32);
  }
};

}  // namespace tessera

#endif  // TESSERA_WORKER_DATA_TOKEN_WINDOWS_H_
