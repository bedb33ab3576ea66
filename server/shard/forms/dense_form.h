// Exchanges of all entries: pushes are added up, the rule is applied to their sum, and its states lie beside the
// parameters.
#ifndef TESSERA_SERVER_SHARD_FORMS_DENSE_FORM_H_
#define TESSERA_SERVER_SHARD_FORMS_DENSE_FORM_H_

#include <cstdint>
#include <vector>

#include "server/shard/forms/exchange_form.h"
#include "server/shard/forms/update_run.h"

namespace tessera {

class DenseForm : public ExchangeForm {
 public:
  // `is_tail`: these exchanges come behind those of subnets, whose rule has no states and whose standbys get the
  // pushes.
  DenseForm(FormContext context, bool is_tail);

  void Fold(const StagedPush& push, float weight) override;
  void Commit(const Update& update) override;
  void FoldAndCommit(const StagedPush& push, float weight, const Update& update) override;
  bool holds_sum() const override { return count_ > 0; }
  bool sums_pushes() const override { return !is_tail_; }
  std::vector<float>* last_sum() override { return &sum_; }

  int saved_arrays() const override { return static_cast<int>(states_.size()); }
  void Save(int number, Exchange after, std::vector<float>* out) const override;
  std::vector<std::vector<float>*> BeginLoad() override;
  void EndLoad(const SavedShard& saved) override;

  void TakeImage(const Snapshot& now, ImageEvent* image) const override;
  absl::Status SetImage(const ImageEvent& image, ImageReader* values) override;

  int64_t memory_bytes() const override;

 protected:
  // One slice's worth, made when the first push is folded.
  std::vector<float>* sum();
  UpdateTarget target() { return {context().rule, context().store, &states_}; }

 private:
  EntryRun all() const { return {0, traits().slices.size}; }
  bool AppliesSent(const StagedPush& push) const;

  const bool is_tail_;
  std::vector<float> sum_;
  int64_t count_ = 0;                       // pushes in it
  std::vector<std::vector<float>> states_;  // the rule's, each one slice's worth
};

}  // namespace tessera

#endif  // TESSERA_SERVER_SHARD_FORMS_DENSE_FORM_H_
