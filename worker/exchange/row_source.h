// Where rows of the committed parameters are read, a block at a time.
#ifndef TESSERA_WORKER_EXCHANGE_ROW_SOURCE_H_
#define TESSERA_WORKER_EXCHANGE_ROW_SOURCE_H_

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "common/keyset/rows.h"

namespace tessera {

class RowSource {
 public:
  virtual ~RowSource() = default;

  // Overwrites `values`, which has room for just these rows, with their committed values, row-major,
  // outside any exchange; answered at once. On error `values` are undefined.
  virtual absl::Status ReadRows(const RowRange& rows, absl::Span<float> values) = 0;
};

}  // namespace tessera

#endif  // TESSERA_WORKER_EXCHANGE_ROW_SOURCE_H_
