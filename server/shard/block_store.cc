#include "server/shard/block_store.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <map>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "common/base/check.h"
#include "common/rpc/shared_memory/shared_arena.h"

namespace tessera {
namespace {

int64_t BytesOf(int64_t size) {
  return (size * static_cast<int64_t>(sizeof(float)) + 63) / 64 * 64;
}

// Where this process shares memory, workers on this machine read blocks from where they are.
float* NewBlock(int64_t size) {
  if (SharedArena* const arena = SharedArena::OfProcess(); arena != nullptr) {
    void* const shared = arena->Take(BytesOf(size));
    if (shared != nullptr) return static_cast<float*>(shared);
  }
  float* const data = static_cast<float*>(std::aligned_alloc(64, BytesOf(size)));
  TESSERA_CHECK(data != nullptr);
  return data;
}

void DeleteBlock(float* data, int64_t size) {
  SharedArena* const arena = SharedArena::OfProcess();
  if (arena != nullptr && arena->Has(data, BytesOf(size))) {
    return arena->Return(reinterpret_cast<char*>(data), BytesOf(size));
  }
  std::free(data);
}

}  // namespace

// Memory of blocks. Blocks die on whatever thread drops the last reference, so this locks.
class BlockPool {
 public:
  explicit BlockPool(int64_t spare_bytes_max) : spare_bytes_max_(spare_bytes_max) {}

  ~BlockPool() {
    for (auto& [size, spares] : spares_) {
      for (float* data : spares) DeleteBlock(data, size);
    }
  }

  // Memory of a size that was returned is used again: rewriting blocks allocates nothing once readers come and go.
  float* Take(int64_t size) ABSL_LOCKS_EXCLUDED(mutex_) {
    absl::MutexLock lock(&mutex_);
    in_use_bytes_ += size * sizeof(float);
    std::vector<float*>& spares = spares_[size];
    if (!spares.empty()) {
      float* data = spares.back();
      spares.pop_back();
      spare_bytes_ -= size * sizeof(float);
      return data;
    }
    ++allocated_;
    return NewBlock(size);
  }

  void Return(float* data, int64_t size) ABSL_LOCKS_EXCLUDED(mutex_) {
    absl::MutexLock lock(&mutex_);
    const int64_t bytes = size * sizeof(float);
    in_use_bytes_ -= bytes;
    // Spares are bounded, as a burst of readers must not take memory from the process for good.
    if (spare_bytes_ + bytes > spare_bytes_max_) {
      DeleteBlock(data, size);
      return;
    }
    spare_bytes_ += bytes;
    spares_[size].push_back(data);
  }

  int64_t in_use_bytes() const ABSL_LOCKS_EXCLUDED(mutex_) {
    absl::MutexLock lock(&mutex_);
    return in_use_bytes_;
  }

  int64_t allocated() const ABSL_LOCKS_EXCLUDED(mutex_) {
    absl::MutexLock lock(&mutex_);
    return allocated_;
  }

 private:
  const int64_t spare_bytes_max_;
  mutable absl::Mutex mutex_;
  std::map<int64_t, std::vector<float*>> spares_ ABSL_GUARDED_BY(mutex_);
  int64_t spare_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t in_use_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t allocated_ ABSL_GUARDED_BY(mutex_) = 0;
};

Block::Block(int64_t size, std::shared_ptr<BlockPool> pool) : size_(size), pool_(std::move(pool)) {
  data_ = pool_->Take(size);
}

Block::~Block() { pool_->Return(data_, size_); }

BlockStore::BlockStore(const ShardSlices& slices, int64_t copy_bytes_max)
    : copy_bytes_max_(copy_bytes_max),
      size_(slices.size),
      pool_(std::make_shared<BlockPool>(copy_bytes_max)) {
  for (const Slice& slice : slices.slices) {
    // A block ends with a row, so that a row of a subnet or of a read lies in one block.
    const int64_t rows_per_block =
        std::max<int64_t>(1, kBlockBytes / static_cast<int64_t>(sizeof(float)) / slice.columns);
    const int64_t rows = slice.row_end - slice.row_begin;
    for (int64_t row = 0; row < rows; row += rows_per_block) {
      const int64_t size = std::min(rows_per_block, rows - row) * slice.columns;
      blocks_.push_back(std::shared_ptr<Block>(new Block(size, pool_)));
      offsets_.push_back(slice.offset + row * slice.columns);
    }
  }
}

BlockStore::Rewrite BlockStore::BeginRewrite(int i) {
  std::shared_ptr<Block>& block = blocks_[i];
  const float* in = block->data_;
  const int64_t size = block->size_;
  // Only this thread makes references to a block that the store holds alone, so a count of one
  // stays one. To drop a reference is to acquire what those before released: the last reader's reads
  // come before our writes. A fence would say the same, but not to ThreadSanitizer.
  if (block.use_count() == 1) {
    std::shared_ptr<Block>(block).reset();
    return {in, block->data_, size};
  }
  const int64_t bytes_wanted = copied_bytes() + size * static_cast<int64_t>(sizeof(float));
  if (bytes_wanted > copy_bytes_max_) RevokeOldest(bytes_wanted);
  auto fresh = std::shared_ptr<Block>(new Block(size, pool_));
  // The reader's reference keeps `in` alive until it drops it; ours is kept until the next rewrite.
  retired_ = std::move(block);
  block = std::move(fresh);
  copied_bytes_peak_ = std::max(copied_bytes_peak_, copied_bytes());
  return {in, block->data_, size};
}

float* BlockStore::BeginEdit(int i) {
  // The block is copied only where somebody reads it; otherwise its entries are changed in place.
  const Rewrite block = BeginRewrite(i);
  if (block.out == block.in) return block.out;
  std::memcpy(block.out, block.in, block.size * sizeof(float));
  retired_.reset();
  return block.out;
}

std::shared_ptr<const Snapshot> BlockStore::TakeSnapshot() { return AddSnapshot(&readers_); }

std::shared_ptr<const Snapshot> BlockStore::TakeKeptSnapshot() { return AddSnapshot(&kept_); }

std::shared_ptr<const Snapshot> BlockStore::AddSnapshot(Snapshots* to) {
  // The reader of the block that was replaced last may have been the only one: its memory is freed before more is held.
  retired_.reset();
  auto snapshot = std::make_shared<Snapshot>();
  snapshot->blocks_.assign(blocks_.begin(), blocks_.end());
  snapshot->bytes_ = size_ * static_cast<int64_t>(sizeof(float));
  // References to snapshots are weak: whoever reads holds one, and those that have gone are swept here.
  to->erase(std::remove_if(to->begin(), to->end(),
                           [](const std::weak_ptr<Snapshot>& held) { return held.expired(); }),
            to->end());
  to->push_back(snapshot);
  return snapshot;
}

bool BlockStore::HasReaders() const {
  return std::any_of(readers_.begin(), readers_.end(),
                     [](const std::weak_ptr<Snapshot>& reader) { return !reader.expired(); });
}

int64_t BlockStore::copied_bytes() const {
  return pool_->in_use_bytes() - size_ * static_cast<int64_t>(sizeof(float));
}

int64_t BlockStore::blocks_allocated() const { return pool_->allocated(); }

// Readers of one version hold the same blocks, which come back when the last of them has gone. So a
// version is revoked whole, and what revoked ones still hold counts as on its way.
void BlockStore::RevokeOldest(int64_t bytes_wanted) {
  // Copies that a checkpoint keeps are as large as the slice and are allowed beside those of readers.
  int64_t bytes_allowed = copy_bytes_max_;
  for (const std::weak_ptr<Snapshot>& kept : kept_) {
    if (!kept.expired()) bytes_allowed += size_ * static_cast<int64_t>(sizeof(float));
  }
  bool revoking = false;
  std::shared_ptr<Snapshot> version;
  for (const std::weak_ptr<Snapshot>& weak : readers_) {
    const std::shared_ptr<Snapshot> reader = weak.lock();
    if (reader == nullptr) continue;
    if (version == nullptr || reader->blocks_ != version->blocks_) {
      if (revoking) return;
      if (reader->revoked()) {
        bytes_allowed += copy_bytes_max_;
      } else if (bytes_wanted > bytes_allowed) {
        revoking = true;
      } else {
        return;
      }
    }
    version = reader;
    if (!revoking || reader->revoked()) continue;
    reader->revoked_.store(true, std::memory_order_relaxed);
    ++readers_revoked_;
  }
}

}  // namespace tessera
