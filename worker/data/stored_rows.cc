#include "worker/data/stored_rows.h"

#include <cstring>

namespace tessera {

StoredRows::StoredRows(Options options) : options_(std::move(options)) {}

StoredRows::~StoredRows() {
  std::vector<std::thread> threads;
  // The lock is not held while threads are joined, as they want it to end.
  {
    absl::MutexLock lock(&mutex_);
    ends_ = true;
    threads.swap(threads_);
  }
  // A thread that reads a row at this moment ends it first.
  for (std::thread& thread : threads) thread.join();
}

StoredRows::Key StoredRows::KeyOf(uint32_t row, std::optional<uint64_t> epoch) {
  // 0 is for rows that are the same in every epoch.
  return {epoch.has_value() ? *epoch + 1 : 0, row};
}

void StoredRows::Expect(absl::Span<const uint32_t> rows, std::optional<uint64_t> epoch) {
  absl::MutexLock lock(&mutex_);
  for (const uint32_t row : rows) {
    const Key key = KeyOf(row, epoch);
    const auto found = ahead_.find(key);
    if (found != ahead_.end()) {
      // It was expected, given up, and is expected again while a thread still reads it.
      if (found->second.state == State::kUnwanted) found->second.state = State::kReading;
      continue;
    }
    // What is beyond the room is read when it is asked for.
    if (static_cast<int64_t>(ahead_.size()) >= options_.rows_ahead) break;
    ahead_.emplace(key, Ahead());
    queue_.push_back(key);
  }
  while (!queue_.empty() && static_cast<int>(threads_.size()) < options_.threads) {
    threads_.emplace_back([this] { ReadOn(); });
  }
}

void StoredRows::Forget() {
  absl::MutexLock lock(&mutex_);
  queue_.clear();
  for (auto entry = ahead_.begin(); entry != ahead_.end();) {
    Ahead& ahead = entry->second;
    // What a thread is reading cannot be taken from it: it drops the row when it is done.
    if (ahead.state == State::kReading) ahead.state = State::kUnwanted;
    if (ahead.state == State::kUnwanted) {
      ++entry;
      continue;
    }
    if (!ahead.values.empty()) spare_.push_back(std::move(ahead.values));
    entry = ahead_.erase(entry);
  }
}

void StoredRows::ReadOn() {
  absl::MutexLock lock(&mutex_);
  for (;;) {
    mutex_.Await(absl::Condition(this, &StoredRows::HasWork));
    if (ends_) return;
    const Key key = queue_.front();
    queue_.pop_front();
    const auto found = ahead_.find(key);
    // The row was taken by Read, or forgotten, in the meantime.
    if (found == ahead_.end() || found->second.state != State::kExpected) continue;
    found->second.state = State::kReading;
    std::vector<unsigned char> values;
    if (!spare_.empty()) {
      values = std::move(spare_.back());
      spare_.pop_back();
    }
    // A disk is waited for without the lock.
    mutex_.Unlock();
    values.resize(options_.row_bytes);
    const auto epoch = key.first > 0 ? std::optional<uint64_t>(key.first - 1) : std::nullopt;
    absl::Status status = options_.source->Read(key.second, epoch, values.data());
    mutex_.Lock();
    // Nobody else removes an entry that is being read, so that the iterator is still valid.
    if (found->second.state == State::kUnwanted) {
      spare_.push_back(std::move(values));
      ahead_.erase(found);
    } else {
      found->second = {State::kReady, std::move(values), std::move(status)};
    }
  }
}

void StoredRows::Read(uint32_t row, std::optional<uint64_t> epoch, void* out) {
  const Key key = KeyOf(row, epoch);
  Ahead taken;
  {
    absl::MutexLock lock(&mutex_);
    const auto found = ahead_.find(key);
    if (found != ahead_.end() && found->second.state == State::kExpected) {
      // No thread has begun it: the caller reads it itself rather than wait.
      ahead_.erase(found);
    } else if (found != ahead_.end()) {
      struct Wait {
        const StoredRows* rows;
        Key key;
        // Another thread may have taken the row in the meantime.
        bool IsOver() const ABSL_NO_THREAD_SAFETY_ANALYSIS {
          const auto entry = rows->ahead_.find(key);
          return entry == rows->ahead_.end() || entry->second.state == State::kReady ||
                 entry->second.state == State::kExpected;
        }
      };
      const Wait wait{this, key};
      if (found->second.state == State::kUnwanted) found->second.state = State::kReading;
      mutex_.Await(absl::Condition(&wait, &Wait::IsOver));
      const auto ready = ahead_.find(key);
      if (ready != ahead_.end() && ready->second.state == State::kReady) {
        taken = std::move(ready->second);
        ahead_.erase(ready);
      }
    }
  }
  // Not read ahead, or taken by another thread.
  if (taken.state != State::kReady) return Note(options_.source->Read(row, epoch, out), out);
  std::memcpy(out, taken.values.data(), options_.row_bytes);
  {
    absl::MutexLock lock(&mutex_);
    spare_.push_back(std::move(taken.values));
  }
  Note(taken.status, out);
}

void StoredRows::Note(const absl::Status& status, void* out) {
  if (status.ok()) return;
  // Zeros in place of what could not be read, so that a batch is defined. Its step is dropped (status()).
  std::memset(out, 0, options_.row_bytes);
  absl::MutexLock lock(&mutex_);
  status_.Update(status);
}

absl::Status StoredRows::status() const {
  absl::MutexLock lock(&mutex_);
  return status_;
}

}  // namespace tessera
