// Rows of one parameter as a key set: what is read of a model that nobody holds whole.
#ifndef TESSERA_COMMON_KEYSET_ROWS_H_
#define TESSERA_COMMON_KEYSET_ROWS_H_

#include <cstdint>

#include "absl/status/status.h"
#include "common/layout/parameters.h"
#include "common/layout/shard_map.h"

namespace tessera {

// Rows [row_begin, row_end) of the parameter with this index, row-major.
struct RowRange {
  int parameter = 0;
  int64_t row_begin = 0;
  int64_t row_end = 0;

  int64_t count() const { return row_end - row_begin; }
};

// kInvalidArgument: `shape` has no such parameter, or it has not all of these rows. None at all are
// a range, too.
absl::Status CheckRows(const ModelShape& shape, const RowRange& rows);

// Returns those of `rows` that are among `slices`: at most one run, as a server's rows of a parameter are. Its offset
// is that of its first row in the shard's dense order. Size 0: there are none.
Slice OwnedRows(const ShardSlices& slices, const RowRange& rows);

}  // namespace tessera

#endif  // TESSERA_COMMON_KEYSET_ROWS_H_
