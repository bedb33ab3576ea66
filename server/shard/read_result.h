// What a read of a shard gives.
#ifndef TESSERA_SERVER_SHARD_READ_RESULT_H_
#define TESSERA_SERVER_SHARD_READ_RESULT_H_

#include <cstdint>
#include <memory>

#include "common/base/ids.h"
#include "server/shard/block_store.h"
#include "server/shard/checkpoint_mark.h"
#include "server/shard/forms/exchanged_entries.h"

namespace tessera {

// A consistent read of everything the shard owns.
struct ReadResult {
  std::shared_ptr<const Snapshot> snapshot;
  Version version;
  // Rows that its updates were computed from.
  uint64_t examples = 0;
  // Where exchanges move a core: those that have been selected.
  uint64_t cores = 0;
  // The checkpoint that has these values, of an exchange: its reader has a file of it to write.
  CheckpointMark checkpoint;
  // The plan that counts.
  Generation plan;
  // Which of the values the reader asked for. nullptr: they are not to be had, as the core that it named is not known,
  // or as exchanges are of all entries by now and no site has a subnet.
  std::shared_ptr<const ExchangedEntries> entries;
};

}  // namespace tessera

#endif  // TESSERA_SERVER_SHARD_READ_RESULT_H_
