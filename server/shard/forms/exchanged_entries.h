// The entries that one push or one answer has, in the order of its payload.
#ifndef TESSERA_SERVER_SHARD_FORMS_EXCHANGED_ENTRIES_H_
#define TESSERA_SERVER_SHARD_FORMS_EXCHANGED_ENTRIES_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "common/codec/coded_keys.h"
#include "common/keyset/named_keys.h"
#include "common/layout/parameters.h"
#include "common/layout/shard_map.h"
#include "server/shard/block_store.h"

namespace tessera {

// Entries [begin, end) of the shard's dense order.
struct EntryRun {
  int64_t begin = 0;
  int64_t end = 0;
};

// Values of a snapshot, in an order of their own. One thread at a time.
class EntrySource {
 public:
  virtual ~EntrySource() = default;
  // The next `count`, which must be left: where they lie, or copied to `scratch`. Valid until the next
  // call.
  virtual const float* Next(int64_t count, float* scratch) = 0;
};

// Constant after construction, held by whoever sends or folds them; any thread.
class ExchangedEntries : public std::enable_shared_from_this<ExchangedEntries> {
 public:
  virtual ~ExchangedEntries() = default;

  // What a message says that they are. A core's keys are left out.
  virtual NamedKeys name() const = 0;
  virtual int64_t count() const = 0;
  // How they are written in each of the job's codecs.
  virtual const CodedForms& forms() const = 0;
  // They are this run of the dense order, so that an answer refers to the blocks themselves; nullopt: they are
  // gathered. The bytes of a run are checked while they arrive; of others the shard knows the buckets.
  virtual std::optional<EntryRun> run() const { return std::nullopt; }
  // Nothing is sent of them, whatever the codec.
  virtual bool is_nothing() const { return false; }
  // One of them in words: "layers.0.weight[12, 5]", in the whole model's indices. `slices` are the shard's.
  virtual std::string Describe(const ModelShape& shape, const ShardSlices& slices,
                               int64_t entry) const = 0;
  // Their values in `snapshot`, in order.
  virtual std::unique_ptr<EntrySource> Source(std::shared_ptr<const Snapshot> snapshot) const = 0;
};

}  // namespace tessera

#endif  // TESSERA_SERVER_SHARD_FORMS_EXCHANGED_ENTRIES_H_
