// Which key sets a job's pushes and pulls may name on one shard, as far as the job alone says. It is asked before the
// bytes of a push are read, and again by the shard that takes them.
#ifndef TESSERA_SERVER_SHARD_FORMS_JOB_KEYS_H_
#define TESSERA_SERVER_SHARD_FORMS_JOB_KEYS_H_

#include <cstdint>
#include <memory>
#include <utility>

#include "absl/status/statusor.h"
#include "common/keyset/named_keys.h"
#include "common/layout/parameters.h"
#include "common/layout/shard_map.h"
#include "server/shard/forms/run_entries.h"

namespace tessera {

// The keys that a job's pushes and reads may have. This class is for exchanges of all entries; others derive from it.
// Constant after construction; any thread.
class JobKeys {
 public:
  JobKeys(const ModelShape& shape, const ShardSlices& slices, const CodecChoice& codecs);
  virtual ~JobKeys() = default;

  const std::shared_ptr<const RunEntries>& dense() const { return dense_; }

  // The entries of a push of `keys` that is the sum of so many updates; nullptr: some of dense(), which depend on the
  // exchange, so that only the shard knows them.
  //   kInvalidArgument  the job's pushes have no such keys, or not that sum; the caller's words come before
  virtual absl::StatusOr<std::shared_ptr<const ExchangedEntries>> OfPush(const NamedKeys& keys,
                                                                         uint64_t summed) const;
  // Those of a read, outside an exchange or of keys that do not depend on it.
  //   kInvalidArgument  `keys` are others, or not in the model
  virtual absl::StatusOr<std::shared_ptr<const ExchangedEntries>> OfRead(
      const NamedKeys& keys) const;
  // Exchanges may be of a part of the entries.
  virtual bool moves_parts() const { return false; }
  // Bytes of a push that dense() does not describe, in a codec that is not plain: `all` is how that writes dense().
  virtual int64_t coded_bytes_max(const CodedKeys& all) const { return all.bytes(); }

 protected:
  // OfPush's error for keys that the job does not push: it pushes `wanted`.
  static absl::Status Differ(const NamedKeys& keys, const NamedKeys& wanted);
  // OfPush's error for sums where keys are not of layers.
  static absl::Status CheckSummed(const NamedKeys& keys, uint64_t summed);

 private:
  const ModelShape shape_;
  const ShardSlices slices_;
  const std::shared_ptr<const RunEntries> dense_;
};

}  // namespace tessera

#endif  // TESSERA_SERVER_SHARD_FORMS_JOB_KEYS_H_
