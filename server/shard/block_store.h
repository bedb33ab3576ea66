// The parameters of one shard, in reference-counted blocks.
//
// A reader takes references, no bytes; it sends what it holds whenever the network lets it. The
// writer replaces a block that a reader still holds and writes the others in place, so a reader
// never sees a change and never holds the writer up (copy-on-write, block by block).
#ifndef TESSERA_SERVER_SHARD_BLOCK_STORE_H_
#define TESSERA_SERVER_SHARD_BLOCK_STORE_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "common/layout/shard_map.h"

namespace tessera {

// Whole rows up to this size share a block; a longer row is a block of its own.
constexpr int64_t kBlockBytes = int64_t{1} << 20;

class BlockPool;

// A run of entries of one slice, in the shard's dense order.
class Block {
 public:
  ~Block();
  const float* data() const { return data_; }
  int64_t size() const { return size_; }

 private:
  friend class BlockStore;
  Block(int64_t size, std::shared_ptr<BlockPool> pool);

  float* data_ = nullptr;
  int64_t size_ = 0;
  std::shared_ptr<BlockPool> pool_;
};

// What a reader holds: the values of one version. Any thread may read it and drop it. Dropping it
// returns the blocks.
class Snapshot {
 public:
  const std::vector<std::shared_ptr<const Block>>& blocks() const { return blocks_; }
  int64_t bytes() const { return bytes_; }
  // Set by the shard when this reader is too slow and holds up memory: stop sending, drop it, and
  // let the client retry. Never of one that TakeKeptSnapshot gave.
  bool revoked() const { return revoked_.load(std::memory_order_relaxed); }

 private:
  friend class BlockStore;
  std::vector<std::shared_ptr<const Block>> blocks_;
  int64_t bytes_ = 0;
  std::atomic<bool> revoked_{false};
};

// Written by one thread, the shard's.
class BlockStore {
 public:
  // Blocks beyond the parameters are bounded to `copy_bytes_max`, and the parameters' size for each kept
  // snapshot; past that the oldest reader is revoked.
  BlockStore(const ShardSlices& slices, int64_t copy_bytes_max);

  int64_t size() const { return size_; }
  int block_count() const { return static_cast<int>(blocks_.size()); }
  const Block& block(int i) const { return *blocks_[i]; }
  // Where block i begins in the dense order, in entries.
  int64_t offset(int i) const { return offsets_[i]; }

  // The block's values are about to be replaced by a function of themselves: returns where to read
  // (block(i) as it is) and where to write. They are the same memory unless a reader holds the
  // block. The write must be complete before the next call on the store.
  struct Rewrite {
    const float* in = nullptr;
    float* out = nullptr;
    int64_t size = 0;
  };
  Rewrite BeginRewrite(int i);
  // Some of the block's values are about to be replaced: returns where to write, which holds its
  // values. Valid until the next call on the store.
  float* BeginEdit(int i);

  // Some snapshot is held that is not a kept one.
  bool HasReaders() const;

  // References to all blocks as they are now.
  std::shared_ptr<const Snapshot> TakeSnapshot();
  // References for whoever cannot begin again, however long it takes: it is no reader, and never revoked.
  std::shared_ptr<const Snapshot> TakeKeptSnapshot();

  // Bytes of blocks that only readers still hold, and the most there ever were.
  int64_t copied_bytes() const;
  int64_t copied_bytes_peak() const { return copied_bytes_peak_; }
  // Blocks taken from the system so far: constant in a steady state.
  int64_t blocks_allocated() const;
  int64_t readers_revoked() const { return readers_revoked_; }

 private:
  using Snapshots = std::vector<std::weak_ptr<Snapshot>>;

  std::shared_ptr<const Snapshot> AddSnapshot(Snapshots* to);
  void RevokeOldest(int64_t bytes_wanted);

  const int64_t copy_bytes_max_;
  int64_t size_ = 0;
  std::shared_ptr<BlockPool> pool_;
  std::vector<std::shared_ptr<Block>> blocks_;
  std::shared_ptr<Block>
      retired_;  // the block that the last rewrite replaced: its values are still read
  std::vector<int64_t> offsets_;
  // Snapshots that are being read, by age. Expired ones are swept as others are taken.
  Snapshots readers_;
  Snapshots kept_;
  int64_t copied_bytes_peak_ = 0;
  int64_t readers_revoked_ = 0;
};

}  // namespace tessera

#endif  // TESSERA_SERVER_SHARD_BLOCK_STORE_H_
