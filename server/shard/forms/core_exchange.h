// What a shard keeps where exchanges move a core and an explorer: the cores it knows, whose entries are
// whose, sums of pushes that have some entries each, and the selection of the next core.
//
//   fold     the push's entries are added to the sums, all of them where it is of all entries
//   commit   the rule is applied to the entries that anybody sent; others stay as they are. What pushes of
//            all entries change is kept: it is the g of the next selection
//   select   once all members have pushed all entries: counts go to the coordinator, questions come
//            (server/core), and what has been selected is in force with the next exchange
//
// Where all make the same exchange together, core c is for the exchanges (c q, (c+1) q], and no push of
// them can come before it is selected. Elsewhere a push may be of an earlier core, as long as its keys
// are known or come with it.
#ifndef TESSERA_SERVER_SHARD_FORMS_CORE_EXCHANGE_H_
#define TESSERA_SERVER_SHARD_FORMS_CORE_EXCHANGE_H_

#include <array>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "common/base/ids.h"
#include "common/codec/coded_keys.h"
#include "common/codec/payload.h"
#include "common/consistency/plan.h"
#include "common/keyset/named_keys.h"
#include "common/keyset/sparse_keys.h"
#include "common/rule/rule.h"
#include "server/core/core_search.h"
#include "server/shard/block_store.h"
#include "server/shard/forms/cores_image.h"
#include "server/shard/forms/exchanged_entries.h"
#include "server/shard/image_reader.h"

namespace tessera {

// The entries of one member's exchange.
class SparsePlace final : public ExchangedEntries {
 public:
  SparsePlace(SparseKeys keys, CodedForms forms)
      : keys_(std::move(keys)), forms_(std::move(forms)) {}

  NamedKeys name() const override { return NamedCore{keys_.core->name, 0, std::nullopt}; }
  int64_t count() const override { return keys_.entries.count(); }
  const CodedForms& forms() const override { return forms_; }
  std::string Describe(const ModelShape& shape, const ShardSlices& slices,
                       int64_t entry) const override {
    return DescribeEntry(shape, slices, keys_.entries.places()[entry]);
  }
  std::unique_ptr<EntrySource> Source(std::shared_ptr<const Snapshot> snapshot) const override;

  const SparseKeys& keys() const { return keys_; }

 private:
  const SparseKeys keys_;
  const CodedForms forms_;
};

// The shard's thread, but for Knows and WantsKeysOf.
class CoreExchange {
 public:
  // Cores that pushes may name: where nobody waits for anybody, somebody may be a core behind.
  static constexpr size_t kKnownMax = 4;

  struct Options {
    // Must outlive this.
    const ModelShape* shape = nullptr;
    const ShardSlices* slices = nullptr;
    uint64_t layout_hash = 0;
    uint64_t seed = 0;
    CoreShare share;
    CodecChoice codecs;
    // All members make the same exchange together.
    bool lockstep = true;
  };

  // Begins to select the first core, of the values that `store` has.
  CoreExchange(const Options& options, BlockStore* store);

  const CoreShare& share() const { return options_.share; }

  // --- whose entries are whose ---

  // Any thread.
  bool Knows(const CoreName& name) const;
  // Any thread. A push that names this core is asked for its keys; of one that has no entries here no bytes are all of
  // them.
  bool WantsKeysOf(const CoreName& name) const;
  // `place` nullptr: all entries; need_keys: the core is not known, and nothing has changed.
  struct Found {
    std::shared_ptr<const SparsePlace> place;
    bool need_keys = false;
  };
  // The entries of a push, which `where` names in words. `core` nullopt: all entries, which are always welcome, as a
  // worker's last ones are where they bring what it held back.
  //   kFailedPrecondition  a core's entries where all are wanted, a core that is not that of the
  //                        exchange, or that is not the one known by its number
  //   kInvalidArgument     what came as keys are none, or not those of the signature
  absl::StatusOr<Found> PlaceOfPush(absl::string_view where, const PlanMember& member,
                                    Exchange exchange, const std::optional<NamedCore>& core);
  // The push with that place was accepted: from now on its core is known by name.
  void OnAccepted(const SparsePlace& place);
  // The entries of the pull behind `exchange`. nullptr: the core is not known.
  std::shared_ptr<const SparsePlace> PlaceOfPull(const PlanMember& member, Exchange exchange,
                                                 const CoreName& core);
  // Draws what one of `members` is likely to exchange next; false: all is drawn.
  bool Prepare(const Plan& plan, const absl::flat_hash_map<MemberId, Exchange>& next);

  // --- updates ---

  // `place` nullptr: all entries. `keys` are those of the payload.
  void Fold(const SparsePlace* place, const CodedKeys& keys, const Payload& payload, float weight);
  void Commit(const Update& update, const UpdateRule& rule, BlockStore* store);

  // --- selection ---

  // A push of `exchange` was folded.
  void OnPush(MemberId member, Exchange exchange) {
    if (PushesAll(options_.share, exchange.value())) pushed_all_.insert(member);
  }
  // An update was committed, or members have changed: begins a selection where one is due. `begun` are those that have
  // pushed at all, `collecting` the exchange that is next, where all make it together.
  void MaybeSelect(const absl::flat_hash_set<MemberId>& begun, Exchange collecting,
                   BlockStore* store);
  void Forget(MemberId member);
  // One piece of it; false: there is none.
  bool AdvanceSelection();
  // The core that is being selected; nullopt: none is.
  std::optional<uint64_t> selecting() const {
    return search_.has_value() ? std::optional<uint64_t>(search_number_) : std::nullopt;
  }
  // For the coordinator, while a selection goes on.
  std::optional<CoreReport> report() const;
  // Counts the reports: a new one is to be sent.
  uint64_t report_number() const { return report_number_; }
  void Ask(const CoreQuestion& question);
  // That were asked for the last selection, one of each stage: a standby that begins as this one did needs them.
  const std::vector<CoreQuestion>& questions() const { return questions_; }
  // The latest core; nullptr: none yet.
  const std::shared_ptr<const Core>& core() const { return latest_; }
  // The number of cores so far.
  uint64_t cores() const { return latest_ == nullptr ? 0 : latest_->name.number + 1; }

  // --- checkpoints ---

  // Where all make the same exchange together: an entry's 1 where it is core and 0 where not, after an
  // exchange that pushed a part; and what it changed of the entry after one that pushed all, as the
  // next core is selected from that.
  void Save(Exchange exchange, std::vector<float>* saved) const;
  // What was saved after `exchange`, where cores were for `saved_every` exchanges (0: as here); `store` has the
  // values of then. Elsewhere `saved` is not looked at, and the first core is that of the values.
  void Load(Exchange exchange, uint64_t saved_every, std::vector<float> saved, BlockStore* store);

  // --- standbys ---

  // All of it, while no update is half collected. `now`: the shard's values; what else has arrays goes to the end
  // of `values`.
  CoresImage TakeImage(const Snapshot& now, Payload* values) const;
  // The inverse, before anything else but construction; `store` has the shard's values. It is of no use after
  // an error.
  //   kInvalidArgument  it contradicts itself, or `values` are fewer
  absl::Status SetImage(const CoresImage& image, ImageReader* values, BlockStore* store);

  int64_t memory_bytes() const;

 private:
  void BeginSelection(uint64_t number, BlockStore* store);
  // Begins to select core `number` of runs that `owner` keeps.
  void Search(uint64_t number, std::vector<SignificanceRun> runs, MagnitudeSums sums,
              std::shared_ptr<const void> owner);
  void EndSelection();
  void Remember(std::shared_ptr<const Core> core);
  std::shared_ptr<const Core> Find(const CoreName& name) const;
  absl::StatusOr<std::shared_ptr<const Core>> Read(absl::string_view where,
                                                   const NamedCore& core) const;
  std::shared_ptr<const SparsePlace> Place(const PlanMember& member, Exchange exchange,
                                           std::shared_ptr<const Core> core);
  bool IsDrawn(MemberId member, Exchange exchange, uint64_t core) const;
  void CommitAll(const Update& update, const UpdateRule& rule, BlockStore* store);
  void CommitTouched(const Update& update, const UpdateRule& rule, BlockStore* store);
  ExplorerPlace ExplorerOf(const PlanMember& member, Exchange exchange) const {
    return {options_.seed, member.rank, exchange, options_.slices->shard};
  }

  const Options options_;

  // Cores that pushes may name, by when they became known.
  std::deque<std::shared_ptr<const Core>> known_;
  std::shared_ptr<const Core> latest_;
  mutable absl::Mutex names_mutex_;
  std::vector<CoreName> names_ ABSL_GUARDED_BY(names_mutex_);  // of known_

  // What members exchange now and next, by the exchange's parity.
  struct Drawn {
    Exchange exchange;
    std::shared_ptr<const SparsePlace> place;
  };
  absl::flat_hash_map<MemberId, std::array<Drawn, 2>> drawn_;

  std::vector<float> sums_;        // of the update that is collected; 0 where nobody sent anything
  std::vector<uint64_t> touched_;  // where somebody did, by bit
  bool has_all_ = false;           // somebody sent all entries
  // What pushes of all entries have changed; empty: none came. In lockstep the last update with one alone.
  std::vector<float> gradient_;
  MagnitudeSums magnitudes_;  // of the values and of gradient_, after the last of them
  bool moved_since_ = false;  // values are others by now

  absl::flat_hash_set<MemberId> pushed_all_;  // since the last selection
  std::optional<CoreSearch> search_;
  std::shared_ptr<const std::vector<float>> searched_gradient_;  // which it reads
  uint64_t search_number_ = 0;
  uint64_t report_number_ = 0;
  std::vector<CoreQuestion> questions_;  // of the last selection
};

}  // namespace tessera

#endif  // TESSERA_SERVER_SHARD_FORMS_CORE_EXCHANGE_H_
