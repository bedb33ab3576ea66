// Exchanges of a core and an explorer, and every q-th push of all entries (core_exchange.h). The rule keeps no state:
// entries that nobody sends are not touched, and a state would have to be.
#ifndef TESSERA_SERVER_SHARD_FORMS_CORE_FORM_H_
#define TESSERA_SERVER_SHARD_FORMS_CORE_FORM_H_

#include <memory>
#include <optional>
#include <variant>
#include <vector>

#include "common/keyset/core_share.h"
#include "server/shard/forms/core_exchange.h"
#include "server/shard/forms/exchange_form.h"

namespace tessera {

// The keys of such a job.
class CoreJobKeys final : public JobKeys {
 public:
  using JobKeys::JobKeys;

  absl::StatusOr<std::shared_ptr<const ExchangedEntries>> OfPush(const NamedKeys& keys,
                                                                 uint64_t summed) const override;
  bool moves_parts() const override { return true; }
  // Rows of a core's entries are others than those of the matrices, but no entry takes more than f32.
  int64_t coded_bytes_max(const CodedKeys& all) const override;
};

class CoreForm final : public ExchangeForm {
 public:
  // Begins to select the first core, of the values that the context's store has.
  CoreForm(const FormContext& context, const CoreShare& share);

  absl::StatusOr<Found> EntriesOf(const ReceivedPush& push) override;
  void OnAccepted(const ReceivedPush& push, const ExchangedEntries& entries) override;

  void Fold(const StagedPush& push, float weight) override;
  void Commit(const Update& update) override;

  absl::Status CheckRead(const NamedKeys& keys) const override {
    return std::holds_alternative<NamedCore>(keys) ? absl::OkStatus()
                                                   : ExchangeForm::CheckRead(keys);
  }
  absl::StatusOr<std::optional<std::shared_ptr<const ExchangedEntries>>> EntriesOfRead(
      const PlanMember& member, Exchange after, const NamedKeys& keys) override;

  void Forget(MemberId member) override { cores_.Forget(member); }
  void OnFolded(MemberId member, Exchange exchange) override { cores_.OnPush(member, exchange); }
  void OnChange() override;
  bool AdvanceSelection() override { return cores_.AdvanceSelection(); }
  bool Prepare() override { return cores_.Prepare(*context().plan, context().next()); }
  CoreExchange* cores() override { return &cores_; }

  int saved_arrays() const override;
  void Save(int number, Exchange after, std::vector<float>* out) const override;
  std::vector<std::vector<float>*> BeginLoad() override;
  void EndLoad(const SavedShard& saved) override;

  void TakeImage(const Snapshot& now, ImageEvent* image) const override;
  absl::Status SetImage(const ImageEvent& image, ImageReader* values) override;
  bool IsSendable(const ReceivedPush& push) const override;
  // The parameters, up to three arrays of cores_image.h, and the keys of cores, a bit for each entry.
  int64_t image_arrays_max() const override { return 5; }

  int64_t memory_bytes() const override { return cores_.memory_bytes(); }

 private:
  CoreExchange cores_;
  std::vector<float> loaded_;  // between BeginLoad and EndLoad
};

}  // namespace tessera

#endif  // TESSERA_SERVER_SHARD_FORMS_CORE_FORM_H_
