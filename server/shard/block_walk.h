// A snapshot's entries in the shard's dense order, a run at a time.
#ifndef TESSERA_SERVER_SHARD_BLOCK_WALK_H_
#define TESSERA_SERVER_SHARD_BLOCK_WALK_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

#include "server/shard/block_store.h"

namespace tessera {

// Begins at entry `begin` of the dense order. One thread at a time.
class BlockWalk {
 public:
  BlockWalk(std::shared_ptr<const Snapshot> snapshot, int64_t begin)
      : snapshot_(std::move(snapshot)), offset_(begin) {
    if (snapshot_->blocks().empty()) return;
    while (offset_ >= block()->size()) {
      offset_ -= block()->size();
      if (++block_ == snapshot_->blocks().size()) break;
    }
  }

  const std::shared_ptr<const Block>& block() const { return snapshot_->blocks()[block_]; }
  // Entries of the block that are left.
  int64_t run() const { return block()->size() - offset_; }
  const float* data() const { return block()->data() + offset_; }
  // `count` is at most run().
  void Skip(int64_t count) {
    offset_ += count;
    if (offset_ < block()->size()) return;
    ++block_;
    offset_ = 0;
  }

 private:
  const std::shared_ptr<const Snapshot> snapshot_;
  size_t block_ = 0;
  int64_t offset_ = 0;
};

}  // namespace tessera

#endif  // TESSERA_SERVER_SHARD_BLOCK_WALK_H_
