// Examples that are made into batches when they are asked for.
#ifndef TESSERA_WORKER_MODEL_EXAMPLE_SOURCE_H_
#define TESSERA_WORKER_MODEL_EXAMPLE_SOURCE_H_

#include <cstdint>

#include "absl/status/status.h"
#include "worker/model/batch.h"

namespace tessera {

// Examples that may be asked for many times, each time with equal values.
class ExampleSource {
 public:
  virtual ~ExampleSource() = default;
  virtual int64_t count() const = 0;
  // Examples [begin, begin + count), without labels or targets, or with them. The batch lives until
  // the next call.
  virtual Batch Inputs(int64_t begin, int64_t count) = 0;
  virtual Batch Labelled(int64_t begin, int64_t count) = 0;
  // The first failure to read an example, in whose place the batch has others.
  virtual absl::Status status() const { return absl::OkStatus(); }
};

}  // namespace tessera

#endif  // TESSERA_WORKER_MODEL_EXAMPLE_SOURCE_H_
