// Exchanges where every member pushes one half of the layers, or none: each half is updated by the mean of what was
// pushed of it, however many pushes the other one has, and one that nobody pushed stays as it is.
#ifndef TESSERA_SERVER_SHARD_FORMS_LAYER_FORM_H_
#define TESSERA_SERVER_SHARD_FORMS_LAYER_FORM_H_

#include <cstdint>

#include "server/shard/forms/dense_form.h"
#include "server/shard/forms/layer_parts.h"

namespace tessera {

class LayerForm final : public DenseForm {
 public:
  // `parts` are the traits' keys.
  LayerForm(FormContext context, const LayerParts& parts);

  void Fold(const StagedPush& push, float weight) override;
  // Each half has its own update.scale: 1 / updates in its sum.
  void Commit(const Update& update) override;
  void FoldAndCommit(const StagedPush& push, float weight, const Update& update) override;
  // How many pushes each half has is no matter of the policy's.
  bool sums_pushes() const override { return false; }
  bool knows_members() const override { return true; }

 private:
  struct Half {
    EntryRun run;
    uint64_t summed = 0;  // updates in the sum; 0: it has none of this half
  };
  // nullptr: the push has no entries here, whatever it is of.
  Half* Of(const StagedPush& push);

  Half front_;
  Half back_;
};

}  // namespace tessera

#endif  // TESSERA_SERVER_SHARD_FORMS_LAYER_FORM_H_
