// Rows that stay on disk, read ahead of whoever asks for them.
#ifndef TESSERA_WORKER_DATA_STORED_ROWS_H_
#define TESSERA_WORKER_DATA_STORED_ROWS_H_

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/types/span.h"
#include "worker/data/value_source.h"

namespace tessera {

// What was read ahead is given once, and then forgotten. A row that nobody has announced is read in the thread that
// asks for it, so that what is announced changes speed and nothing else. Any number of threads may call at once.
class StoredRows {
 public:
  struct Options {
    StoredValues source;
    // The bytes of the values of one row.
    int64_t row_bytes = 0;
    // Rows that are read ahead at most; 0: none.
    int64_t rows_ahead = 0;
    int threads = 1;
  };

  // Threads begin with the first row that is announced.
  explicit StoredRows(Options options);
  ~StoredRows();
  StoredRows(const StoredRows&) = delete;
  StoredRows& operator=(const StoredRows&) = delete;

  // The rows will be asked for soon, in this order. What is beyond Options::rows_ahead is not read ahead.
  void Expect(absl::Span<const uint32_t> rows, std::optional<uint64_t> epoch)
      ABSL_LOCKS_EXCLUDED(mutex_);
  // No row that was announced will be asked for.
  void Forget() ABSL_LOCKS_EXCLUDED(mutex_);

  // ValueSource::Read, waiting for it where it is under way. Zeros where it fails.
  void Read(uint32_t row, std::optional<uint64_t> epoch, void* out) ABSL_LOCKS_EXCLUDED(mutex_);
  // The first failure of a Read.
  absl::Status status() const ABSL_LOCKS_EXCLUDED(mutex_);

  const ValueSource& source() const { return *options_.source; }
  // What the source holds, and room for all that may be read ahead.
  int64_t bytes() const {
    return options_.source->bytes() + options_.rows_ahead * options_.row_bytes;
  }

 private:
  // The epoch, and the row. Rows as evaluations see them have epoch 0 here, and those that train their epoch + 1.
  using Key = std::pair<uint64_t, uint32_t>;
  enum class State {
    kExpected,  // in the queue
    kReading,   // a thread reads it
    kReady,     // the values are there
    kUnwanted,  // a thread reads it, and its values will be dropped
  };
  struct Ahead {
    State state = State::kExpected;
    std::vector<unsigned char> values;
    absl::Status status;
  };

  static Key KeyOf(uint32_t row, std::optional<uint64_t> epoch);
  bool HasWork() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return ends_ || !queue_.empty(); }
  // Reads what was announced until the end.
  void ReadOn() ABSL_LOCKS_EXCLUDED(mutex_);
  void Note(const absl::Status& status, void* out) ABSL_LOCKS_EXCLUDED(mutex_);

  const Options options_;
  mutable absl::Mutex mutex_;
  bool ends_ ABSL_GUARDED_BY(mutex_) = false;
  // Keys that are no longer expected may still be here.
  std::deque<Key> queue_ ABSL_GUARDED_BY(mutex_);
  std::map<Key, Ahead> ahead_ ABSL_GUARDED_BY(mutex_);
  // Buffers of rows that were taken, for the next ones.
  std::vector<std::vector<unsigned char>> spare_ ABSL_GUARDED_BY(mutex_);
  absl::Status status_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::thread> threads_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace tessera

#endif  // TESSERA_WORKER_DATA_STORED_ROWS_H_
