// Where a shard may copy no blocks for readers: work that would is put off while there are some.
#ifndef TESSERA_SERVER_SHARD_READER_GATE_H_
#define TESSERA_SERVER_SHARD_READER_GATE_H_

#include <optional>

#include "absl/time/time.h"

namespace tessera {

class ReaderGate {
 public:
  // The time after which it is looked again whether readers are gone.
  static constexpr absl::Duration kInterval = absl::Milliseconds(2);
  // Work that has been put off for so long is done all the same.
  static constexpr absl::Duration kPatience = absl::Seconds(30);

  // May the work be done that is due now?
  bool Opens(bool has_readers, absl::Time now) {
    look_again_.reset();
    if (!has_readers) {
      shut_since_.reset();
      return true;
    }
    if (!shut_since_.has_value()) shut_since_ = now;
    if (now - *shut_since_ >= kPatience) return true;
    look_again_ = now + kInterval;
    return false;
  }
  // To be called where nothing is due.
  void Rest() { look_again_.reset(); }

  // When work that was put off may be done.
  std::optional<absl::Time> look_again() const { return look_again_; }

 private:
  std::optional<absl::Time> shut_since_;
  std::optional<absl::Time> look_again_;
};

}  // namespace tessera

#endif  // TESSERA_SERVER_SHARD_READER_GATE_H_
