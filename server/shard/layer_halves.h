// Updates of the two halves of the layers, where every member pushes one of them: each is the mean of what was
// pushed of it, however many pushes the other one has.
#ifndef TESSERA_SERVER_SHARD_LAYER_HALVES_H_
#define TESSERA_SERVER_SHARD_LAYER_HALVES_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "common/codec/codec.h"
#include "common/codec/coded_keys.h"
#include "common/codec/payload.h"
#include "common/rule/rule.h"
#include "server/shard/layer_parts.h"
#include "server/shard/update_run.h"

namespace tessera {

// Part of a shard, whose arrays are the arguments. Its thread's.
class LayerHalves {
 public:
  explicit LayerHalves(std::shared_ptr<const LayerParts> parts);

  // One push: of a part of parts(), written as UpdateReader's `codec` and `keys` say, the sum of so many updates.
  struct Push {
    const LayerPart* part = nullptr;
    const Codec& codec;
    const CodedKeys* keys = nullptr;
    const Payload* payload = nullptr;
    uint64_t summed = 1;
  };

  const std::shared_ptr<const LayerParts>& parts() const { return parts_; }

  // Adds it to its half of `pending`, which has the shard's size.
  void Fold(const Push& push, std::vector<float>* pending);
  // Applies the rule to each half of which something was folded since the last commit, with its own
  // update.scale: 1 / updates in its sum. The others' entries and states stay.
  void Commit(Update update, const std::vector<float>& pending, const UpdateTarget& target);
  // Both, for the last push of an update.
  void FoldAndCommit(const Push& push, Update update, std::vector<float>* pending,
                     const UpdateTarget& target);

 private:
  struct Half {
    EntryRun run;
    uint64_t summed = 0;  // updates in pending; 0: it has none of this half
  };
  // nullptr: of no entries here, whatever it is of.
  Half* Of(const LayerPart& part);

  const std::shared_ptr<const LayerParts> parts_;
  Half front_;
  Half back_;
};

}  // namespace tessera

#endif  // TESSERA_SERVER_SHARD_LAYER_HALVES_H_
