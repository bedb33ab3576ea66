// What a shard does differently with each kind of key set: which entries a push or a read is of, how pushes become an
// update, and what a checkpoint or a standby must have of it beside the parameters.
//
// dense_form.h     pushes of all entries are added up, and the rule is applied to their sum
// subnet_form.h    pushes replace the entries of a site's subnet, round by round; the job may end on all entries
// core_form.h      pushes are of a core and an explorer, and every q-th of all entries
// fragment_form.h  pushes are of one fragment, another one in each exchange
// layer_form.h     pushes are of one half of the layers, each updated by its own mean
// form_table.h chooses. A new kind: docs/adding/key_set.md.
#ifndef TESSERA_SERVER_SHARD_FORMS_EXCHANGE_FORM_H_
#define TESSERA_SERVER_SHARD_FORMS_EXCHANGE_FORM_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/base/ids.h"
#include "common/codec/coded_keys.h"
#include "common/consistency/policy.h"
#include "common/keyset/named_keys.h"
#include "common/rule/rule.h"
#include "server/shard/block_store.h"
#include "server/shard/forms/exchanged_entries.h"
#include "server/shard/forms/job_keys.h"
#include "server/shard/image_reader.h"
#include "server/shard/received_push.h"
#include "server/shard/saved_shard.h"
#include "server/shard/shard_event.h"
#include "server/shard/shard_traits.h"

namespace tessera {

class CoreExchange;

// What a form sees of its shard, which outlives it.
struct FormContext {
  const ShardTraits* traits = nullptr;
  const ConsistencyPolicy* policy = nullptr;
  const UpdateRule* rule = nullptr;
  const Plan* plan = nullptr;
  BlockStore* store = nullptr;
  // v1::PayloadKind of pushes, and of those of all entries where a job of subnets ends with such.
  int kind = 0;
  std::optional<int> whole_kind;
  // Every server holds all entries.
  bool is_replica = false;
  // The members of which a push has been folded, and the next exchange of each.
  std::function<absl::flat_hash_set<MemberId>()> begun;
  std::function<absl::flat_hash_map<MemberId, Exchange>()> next;

  // The exchange that is being collected; 0 where members advance on their own.
  Exchange collecting() const { return policy->Collecting(); }
};

// A push that was accepted and waits for its turn.
struct StagedPush : ReceivedPush {
  std::shared_ptr<const ExchangedEntries> entries;
  const CodedKeys* coded = nullptr;  // how the payload is written; nullptr: its codec is selective
};

// "push from member 3 exchange 7", for messages.
std::string Where(const ReceivedPush& push);

// It has more methods than other interfaces, most of which are empty here: a form overrides those that its kind of
// exchange needs, and the shard asks no form what kind it is.
//
// The shard's thread.
class ExchangeForm {
 public:
  explicit ExchangeForm(FormContext context) : context_(std::move(context)) {}
  virtual ~ExchangeForm() = default;

  // --- pushes ---

  struct Found {
    std::shared_ptr<const ExchangedEntries> entries;
    int kind = 0;  // v1::PayloadKind that the payload must have
    // The core that the push names is not known: nothing has changed, and it comes again with its keys.
    bool needs_keys = false;
  };
  // The entries that the payload of `push` must have. The sender is a member.
  //   kInvalidArgument     the job's pushes have no such keys
  //   kFailedPrecondition  keys of another exchange or another member
  virtual absl::StatusOr<Found> EntriesOf(const ReceivedPush& push);
  // kFailedPrecondition: other pushes of its exchange contradict it.
  virtual absl::Status CheckTogether(const ReceivedPush& push) const { return absl::OkStatus(); }
  // `push` has passed all checks and is staged.
  virtual void OnAccepted(const ReceivedPush& push, const ExchangedEntries& entries) {}

  // --- updates ---

  // Adds a push to the update that is collected.
  virtual void Fold(const StagedPush& push, float weight) = 0;
  // Applies the update; that of no push at all, too.
  virtual void Commit(const Update& update) = 0;
  // Both, for the last push of an update: in one pass where that is possible.
  virtual void FoldAndCommit(const StagedPush& push, float weight, const Update& update) {
    Fold(push, weight);
    Commit(update);
  }
  // Pushes were folded into a sum that no checkpoint has.
  virtual bool holds_sum() const { return false; }
  // Updates are sums of all entries, so that a standby can do with the sum.
  virtual bool sums_pushes() const { return false; }
  // Where it sums_pushes: that of the last Commit. Whoever swaps it for a vector of its own keeps it.
  virtual std::vector<float>* last_sum() { return nullptr; }
  // Who takes part in an exchange is known before it begins.
  virtual bool knows_members() const { return false; }

  // --- reads ---

  // Before anything else is asked of a read of `keys`, by whoever. kInvalidArgument: the job has no such reads.
  virtual absl::Status CheckRead(const NamedKeys& keys) const;
  // Whether a read behind `after` by a member that is counted from `first` on comes in time. kFailedPrecondition: it
  // comes too late or too early.
  virtual absl::Status CheckReadTime(Exchange after, Exchange first, const NamedKeys& keys) const {
    return absl::OkStatus();
  }
  // The entries that a read by `member`, which is allowed now, is of; nullptr in it: such entries are not to be had, as
  // the core is not known, or exchanges are of all entries by now. nullopt: it must still wait.
  virtual absl::StatusOr<std::optional<std::shared_ptr<const ExchangedEntries>>> EntriesOfRead(
      const PlanMember& member, Exchange after, const NamedKeys& keys);

  // --- members and work ahead ---

  virtual void Forget(MemberId member) {}
  // Its push was folded, and is not committed yet.
  virtual void OnFolded(MemberId member, Exchange exchange) {}
  // An update was committed, or members have changed.
  virtual void OnChange() {}
  // One piece of what is prepared beside pushes; false: there is none.
  virtual bool AdvanceSelection() { return false; }
  virtual bool Prepare() { return false; }
  // Where exchanges move a core; elsewhere nullptr.
  virtual CoreExchange* cores() { return nullptr; }

  // --- checkpoints: arrays of the shard's size that lie beside the parameters ---

  virtual int saved_arrays() const { return 0; }
  // Array `number` as it is after exchange `after`.
  virtual void Save(int number, Exchange after, std::vector<float>* out) const {}
  // The arrays that are to be filled with what was saved; EndLoad comes once that and the parameters are there.
  virtual std::vector<std::vector<float>*> BeginLoad() { return {}; }
  virtual void EndLoad(const SavedShard& saved) {}
  // The next exchange is of all entries, which is told to whoever restores.
  virtual bool is_whole_next() const { return false; }

  // --- standbys ---

  // Adds what `image` must have of this form. `now` are the shard's values.
  virtual void TakeImage(const Snapshot& now, ImageEvent* image) const {}
  // The inverse, in a shard that has the image's plan and parameters. kInvalidArgument: it contradicts itself.
  virtual absl::Status SetImage(const ImageEvent& image, ImageReader* values) {
    return absl::OkStatus();
  }
  // `push`, which is staged, can be sent to a standby that begins with an image of now.
  virtual bool IsSendable(const ReceivedPush& push) const { return true; }
  // Arrays of an image at most, the parameters among them.
  virtual int64_t image_arrays_max() const { return 1 + saved_arrays(); }

  // Bytes that it takes beside the parameters.
  virtual int64_t memory_bytes() const = 0;

 protected:
  const FormContext& context() const { return context_; }
  const ShardTraits& traits() const { return *context_.traits; }

 private:
  const FormContext context_;
};

}  // namespace tessera

#endif  // TESSERA_SERVER_SHARD_FORMS_EXCHANGE_FORM_H_
