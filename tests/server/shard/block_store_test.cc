// Readers keep what they hold, the writer never waits, and memory is bounded.
#include "server/shard/block_store.h"

#include <catch2/catch.hpp>
#include <vector>

#include "tests/server/shard/shard_fixture.h"

namespace tessera {
namespace {

// Four blocks of one row each.
constexpr int64_t kColumns = kBlockBytes / 4;
constexpr int64_t kRows = 4;
constexpr int64_t kBytes = kRows * kBlockBytes;

class Store {
 public:
  explicit Store(int64_t copy_bytes_max = kBytes)
      : store(SlicesOf(ZeroMatrix(kRows, kColumns), ShardId(0), 1), copy_bytes_max) {
    Write(0);
  }
  // Every entry becomes `value`; returns false if a rewrite did not see the values before it.
  bool Write(float value) {
    bool saw = true;
    for (int i = 0; i < store.block_count(); ++i) {
      const BlockStore::Rewrite block = store.BeginRewrite(i);
      saw = saw && block.in[0] == last_ && block.in[block.size - 1] == last_;
      for (int64_t k = 0; k < block.size; ++k) block.out[k] = value;
    }
    last_ = value;
    return saw;
  }

  BlockStore store;

 private:
  float last_ = 0;
};

bool Holds(const Snapshot& snapshot, float value) {
  for (const std::shared_ptr<const Block>& block : snapshot.blocks()) {
    if (block->data()[0] != value || block->data()[block->size() - 1] != value) return false;
  }
  return snapshot.blocks().size() == kRows;
}

TEST_CASE("blocks cover the slices in the dense order", "[block_store]") {
  ModelShape shape = ZeroMatrix(1000, 700);
  shape.parameters.push_back({"b", 1000, 1, true, 0, 0, 0});
  shape.size += 1000;
  const ShardSlices slices = SlicesOf(shape, ShardId(1), 3);
  const BlockStore store(slices, kBytes);
  int64_t offset = 0;
  for (int i = 0; i < store.block_count(); ++i) {
    CHECK(store.offset(i) == offset);
    CHECK(store.block(i).size() * 4 <= kBlockBytes);
    offset += store.block(i).size();
  }
  CHECK(offset == slices.size);
}

TEST_CASE("a held snapshot never changes while the writer goes on", "[block_store]") {
  Store s;
  std::vector<std::shared_ptr<const Snapshot>> held;
  for (int version = 1; version <= 20; ++version) {
    held.push_back(s.store.TakeSnapshot());
    REQUIRE(s.Write(static_cast<float>(version)));
    for (size_t i = 0; i < held.size(); ++i) REQUIRE(Holds(*held[i], static_cast<float>(i)));
  }
}

TEST_CASE("a block is copied only while a reader holds it", "[block_store]") {
  Store s;
  const int64_t allocated = s.store.blocks_allocated();
  s.store.TakeSnapshot();
  s.Write(1);
  CHECK(s.store.copied_bytes_peak() == 0);
  CHECK(s.store.blocks_allocated() == allocated);
  const std::shared_ptr<const Snapshot> held = s.store.TakeSnapshot();
  s.Write(2);
  CHECK(s.store.copied_bytes() == kBytes);
  s.Write(3);
  CHECK(s.store.copied_bytes() == kBytes);
}

TEST_CASE("dropped blocks are used again", "[block_store]") {
  Store s;
  for (int version = 1; version <= 1000; ++version) {
    const std::shared_ptr<const Snapshot> held = s.store.TakeSnapshot();
    REQUIRE(s.Write(static_cast<float>(version)));
  }
  CHECK(s.store.blocks_allocated() <= 2 * kRows);
  CHECK(s.store.copied_bytes_peak() <= kBytes);
}

TEST_CASE("past a slice's worth of copies the oldest version's readers are revoked, and only they",
          "[block_store]") {
  Store s;
  const auto oldest = s.store.TakeSnapshot();
  const auto oldest_too = s.store.TakeSnapshot();
  s.Write(1);
  CHECK_FALSE(oldest->revoked());
  const auto younger = s.store.TakeSnapshot();
  s.Write(2);
  CHECK(oldest->revoked());
  CHECK(oldest_too->revoked());
  CHECK_FALSE(younger->revoked());
  CHECK(s.store.readers_revoked() == 2);
  CHECK(Holds(*oldest, 0));  // Even now its values are what they were.
  CHECK(Holds(*younger, 1));
}

TEST_CASE("whoever keeps a snapshot is never revoked, and costs readers nothing", "[block_store]") {
  Store s(kBlockBytes);
  const auto kept = s.store.TakeKeptSnapshot();
  CHECK_FALSE(s.store.HasReaders());
  s.Write(1);
  CHECK(s.store.copied_bytes() == kBytes);
  // A slice for it, and a block for the reader.
  const auto reader = s.store.TakeSnapshot();
  CHECK(s.store.HasReaders());
  s.store.BeginEdit(0);
  CHECK_FALSE(reader->revoked());
  s.store.BeginEdit(1);
  CHECK(reader->revoked());
  s.Write(1);
  CHECK_FALSE(kept->revoked());
  CHECK(Holds(*kept, 0));
  CHECK(s.store.readers_revoked() == 1);
}

TEST_CASE("readers that obey revocation bound the memory", "[block_store]") {
  Store s;
  std::vector<std::shared_ptr<const Snapshot>> readers;
  for (int version = 1; version <= 200; ++version) {
    readers.push_back(s.store.TakeSnapshot());
    s.Write(static_cast<float>(version));
    for (auto& reader : readers) {
      if (reader != nullptr && reader->revoked()) reader = nullptr;
    }
    // One slice's worth, and the version whose readers were told during this write.
    REQUIRE(s.store.copied_bytes() <= 2 * kBytes);
  }
  CHECK(s.store.readers_revoked() > 100);
}

TEST_CASE("readers that do not react let further ones be revoked, a slice's worth each",
          "[block_store]") {
  Store s;
  std::vector<std::shared_ptr<const Snapshot>> readers;
  for (int version = 1; version <= 10; ++version) {
    readers.push_back(s.store.TakeSnapshot());
    s.Write(static_cast<float>(version));
  }
  for (size_t i = 0; i < readers.size(); ++i) {
    CAPTURE(i);
    CHECK(readers[i]->revoked() == (i + 1 < readers.size()));
  }
}

TEST_CASE("a snapshot outlives the store", "[block_store]") {
  std::shared_ptr<const Snapshot> held;
  {
    Store s;
    s.Write(5);
    held = s.store.TakeSnapshot();
  }
  CHECK(Holds(*held, 5));
}

}  // namespace
}  // namespace tessera
