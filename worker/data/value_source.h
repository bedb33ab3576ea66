// The values of rows that stay on disk, and are read when they are asked for.
#ifndef TESSERA_WORKER_DATA_VALUE_SOURCE_H_
#define TESSERA_WORKER_DATA_VALUE_SOURCE_H_

#include <cstdint>
#include <memory>
#include <optional>

#include "absl/status/status.h"

namespace tessera {

// Any number of threads may read at once.
class ValueSource {
 public:
  virtual ~ValueSource() = default;

  // Values are bytes; otherwise they are floats.
  virtual bool is_bytes() const = 0;
  // Writes the values of `row`, as many as the table has features, in the table's type. `epoch` is set where the row
  // trains: a source that draws a part of its rows anew in each epoch does so for this one.
  //   kDataLoss    the file has changed since it was opened
  //   other codes  what the operating system says of a failed read
  virtual absl::Status Read(uint32_t row, std::optional<uint64_t> epoch, void* out) const = 0;
  // The row whose values Read gives for `row`: another one where `row` cannot be read and one that can takes its place.
  // It is known once `row` has been read.
  virtual uint32_t StandIn(uint32_t row) const { return row; }
  // Whether rows differ from epoch to epoch.
  virtual bool draws() const { return false; }
  // Memory that is held.
  virtual int64_t bytes() const = 0;
};

// The values of a table that stay on disk.
using StoredValues = std::shared_ptr<const ValueSource>;

}  // namespace tessera

#endif  // TESSERA_WORKER_DATA_VALUE_SOURCE_H_
