// Brings the host's batches to where kernels read them.
#ifndef TESSERA_WORKER_MODEL_BATCH_STAGING_H_
#define TESSERA_WORKER_MODEL_BATCH_STAGING_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "kernels/memory.h"
#include "worker/model/batch.h"

namespace tessera {

// Where the host can address the device's memory a batch is used where it lies. Elsewhere it is
// sent beside the kernels, into one of three places by turns: the next batch may be written and sent while
// kernels read this one, and while the host knows of the one before no more than that it was read. Buffers
// grow at first use.
//
// One thread, the backend's.
class BatchStaging {
 public:
  // What a row of a batch has.
  struct RowWidths {
    int64_t inputs = 0;   // values; 0 where they are sparse
    int64_t outputs = 0;  // targets, where it has targets
    int64_t labels = 1;   // where it has labels
  };

  static constexpr int kPlaces = 3;

  // `memory` outlives it.
  explicit BatchStaging(Memory* memory) : memory_(*memory) {}

  // Where the batch that Stage is given next may be written, of so many rows, with either labels or
  // targets: it is sent from there. Null where batches are used
  // where they lie, and where there is no memory, which Stage reports.
  BatchPlace Room(int64_t rows, const RowWidths& widths, bool has_labels);

  // `batch` in the device's memory; sparse rows stay the host's. Kernels queued from now on may read it. It lives until
  // the third call after this: by then the host has waited for a moment (Backend::Mark) behind one of them, and has
  // named one behind all.
  //   kResourceExhausted  no memory
  absl::StatusOr<Batch> Stage(const Batch& batch, const RowWidths& widths);
  // What Stage returned last is not used after all: the next one may take its place.
  void TakeBack() { turn_ = (turn_ + kPlaces - 1) % kPlaces; }

 private:
  template <typename T>
  struct Place {
    Buffer<T> host;
    Buffer<T> device;
  };
  struct Places {
    Place<float> inputs;
    Place<int32_t> labels;
    Place<float> targets;
  };
  template <typename T>
  absl::Status MakeRoom(int64_t count, Place<T>* place);
  template <typename T>
  absl::StatusOr<const T*> Send(const T* from, int64_t count, Place<T>* place);

  Memory& memory_;
  Places places_[kPlaces];
  int turn_ = 0;
};

}  // namespace tessera

#endif  // TESSERA_WORKER_MODEL_BATCH_STAGING_H_
