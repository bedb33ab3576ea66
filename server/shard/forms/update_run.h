// An update over a run of a shard's entries: pushes are added up, and the rule is applied to their sum.
#ifndef TESSERA_SERVER_SHARD_FORMS_UPDATE_RUN_H_
#define TESSERA_SERVER_SHARD_FORMS_UPDATE_RUN_H_

#include <cstdint>
#include <vector>

#include "common/codec/selective_codec.h"
#include "common/codec/update_reader.h"
#include "common/rule/rule.h"
#include "server/shard/block_store.h"
#include "server/shard/forms/exchanged_entries.h"

namespace tessera {

// Arrays are of all that the shard owns.
struct UpdateTarget {
  const UpdateRule* rule = nullptr;
  BlockStore* store = nullptr;
  std::vector<std::vector<float>>* states = nullptr;  // the rule's
};

// pending = weight * push where it `is_first`, else pending += weight * push, for the entries of `run`, which are all
// that the push has.
void FoldRun(const EntryRun& run, bool is_first, float weight, UpdateReader* push,
             std::vector<float>* pending);

// Applies the rule to the run's entries.
void ApplyRun(const EntryRun& run, const Update& update, const std::vector<float>& pending,
              const UpdateTarget& target);

// Both in one pass: the last push of an update is decoded tile by tile, and each tile is applied while it is warm.
// `pending` is not touched where it `is_first`.
void FoldAndApplyRun(const EntryRun& run, bool is_first, float weight, UpdateReader* push,
                     const Update& update, std::vector<float>* pending, const UpdateTarget& target);

// An update that is this push alone, applied where it has entries: no other entry, and no block without any, is
// touched. The rule keeps what it is given where an update is zero.
void ApplySent(const Update& update, float weight, SelectedReader* push, const UpdateRule& rule,
               BlockStore* store);

}  // namespace tessera

#endif  // TESSERA_SERVER_SHARD_FORMS_UPDATE_RUN_H_
