// What must be true of every run, whatever the network does.
//
// Updates are integers that follow from (seed, member, exchange, entry), so the parameters of every
// shard are known to the bit from the history of what was folded: initial values (zeros) plus those
// updates, weighed as the method says, and no other. Where subnets are trained the updates are values,
// and every entry has that of the site that returned it last: the initial one where none did.
#ifndef TESSERA_TESTS_SIM_CHECKER_H_
#define TESSERA_TESTS_SIM_CHECKER_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "absl/strings/string_view.h"
#include "common/base/ids.h"
#include "common/codec/codec.h"
#include "common/codec/coded_keys.h"
#include "common/checkpoint/manifest.h"
#include "common/consistency/plan.h"
#include "common/consistency/policy.h"
#include "common/keyset/core_share.h"
#include "common/keyset/sparse_keys.h"
#include "common/keyset/subnet.h"
#include "common/layout/parameters.h"
#include "common/layout/shard_map.h"
#include "proto/coordinator.pb.h"
#include "proto/status.pb.h"
#include "server/shard/shard.h"
#include "tests/sim/codec_checker.h"
#include "tests/sim/core_checker.h"
#include "tests/sim/model_entries.h"
#include "tests/sim/subnet_entries.h"

namespace tessera {

// One copy of a shard: the one that a leader has, or a standby. In jobs without standbys every shard has one.
using CopyId = Id<struct CopyTag>;

// A whole run of them stays within a float's 24 bits.
int64_t UpdateEntry(uint64_t seed, MemberId member, Exchange exchange, int64_t entry);

// Workers with such lives make any calls in any order (sim_rogue.h).
constexpr uint64_t kFirstRogueLife = uint64_t{1} << 40;

class Checker {
 public:
  struct Options {
    uint64_t seed = 0;
    int shards = 1;
    ModelShape shape;
    CodecChoice codecs;
    // The same exchange is the same update for all.
    bool lockstep = true;
    uint64_t local_steps = 1;
    // -1: the rule subtracts gradients. +1: it adds deltas.
    int sign = -1;
    // What is folded of a push that is tau versions late.
    std::function<float(uint64_t tau)> weight = [](uint64_t) { return 1.0f; };
    // Pushes count by their examples, relative to the first of their update.
    bool by_examples = false;
    // Updates are means, and the rule multiplies them by this.
    bool mean = true;
    float factor = 1;
    // Of the rule: m <- momentum * m + u, and the update is m, or u + momentum * m ahead of it.
    float momentum = 0;
    bool nesterov = false;
    // Sums are exact unless the rule rounds in an order of its own.
    float tolerance = 0;
    // A read is at most so many exchanges ahead of the slowest member.
    std::optional<uint64_t> bound;
    // A read waits until the round of its exchange has closed.
    bool rounds = false;
    // Set: subnets of it are trained, in rounds. Outlives the checker.
    const SubnetEntries* subnets = nullptr;
    // Set: exchanges move a core and an explorer, under this seed of the job.
    std::optional<CoreShare> core;
    uint64_t job_seed = 0;
    // A shard that is lost is led by one that goes back to a checkpoint.
    bool goes_back = false;
  };
  explicit Checker(Options options);

  // A copy that begins with the initial values, or with an image of this term.
  CopyId AddCopy(ShardId shard, const ShardSlices& slices, uint64_t term);
  // It takes the log of this term, and has done nothing yet.
  void OnFollows(CopyId copy, uint64_t term);
  // A policy for the copy that tells the checker what `policy` decides.
  std::unique_ptr<ConsistencyPolicy> Recorded(CopyId copy,
                                              std::unique_ptr<ConsistencyPolicy> policy);
  // The copy itself, for as long as it lives.
  void SetShard(CopyId copy, const Shard* shard) { ledgers_[copy.value()].copy = shard; }

  // --- standbys ---

  // `leader` was asked for an image of itself just now, for the log of this term.
  void OnImageTaken(CopyId leader, uint64_t term);
  // The copy's host leads it, as it was told in this term. If nobody was told so later members go by this copy
  // from now on, and it must have all that anybody was told. `is_new`: it begins with the initial values; where
  // the job has begun nobody goes by it before it has those of a checkpoint.
  void OnLeads(CopyId copy, uint64_t lead_term, bool is_new = false);
  // The job ends, and nobody goes by the copy any more.
  void OnClosing(CopyId copy) { ledgers_[copy.value()].is_blank = false; }
  // It takes requests from now on.
  void OnServes(CopyId copy) { ledgers_[copy.value()].serves = true; }
  // The push was acknowledged.
  void OnAcknowledged(CopyId copy, MemberId member, Exchange exchange);
  // What a member knows of a shard: the version, and the history of that version, which began with this
  // generation.
  struct Knowledge {
    Version version;
    uint64_t history = 0;
    Generation era;
  };
  Knowledge KnowledgeOf(CopyId copy) const;
  // A member goes by it.
  void OnTold(ShardId shard, MemberId member, Knowledge knowledge);

  // The leader's log of this term begins as the shard did, without an image.
  void OnLogBegun(CopyId leader, uint64_t term);

  // --- checkpoints (checkpoint_checker.cc) ---

  // The shard has made a copy of itself, for exchange `after` where that is not 0. Returns its number.
  uint64_t OnCopied(CopyId copy, Exchange after, Version version, const std::vector<float>& values);
  // What a worker has written to a checkpoint.
  struct SavedWorker {
    Rank rank;
    Exchange exchange;
    uint64_t step = 0;
  };
  // The folder has got its name. `copies` by shard.
  void OnWhole(const Manifest& manifest, const std::vector<uint64_t>& copies,
               const std::vector<SavedWorker>& workers);
  // From now on the coordinator goes by it, whoever is that.
  void OnKnownWhole(uint64_t step);
  // A server is told to go back to the checkpoint of this step.
  void OnRestoreOrder(Generation generation, uint64_t step);
  // It has, as it was told to lead in this term: `copy` begins as its shard was then. `values` are its own.
  void OnRestored(CopyId copy, uint64_t lead_term, Generation generation, uint64_t step,
                  Version version, const std::vector<float>& values);
  // A member of its job that has gone back begins after this exchange and step; `saved`: with what its rank has
  // written.
  void OnResumed(MemberId member, Exchange exchange, uint64_t step,
                 const std::optional<SavedWorker>& saved);
  uint64_t wholes() const { return wholes_.size(); }

  // --- events ---

  // The coordinator's word has reached the shard, and is not that of the end.
  void OnPlan(CopyId copy, const Plan& plan);
  // Any shard has folded a push of it.
  bool HasPushed(MemberId member) const;
  bool IsMember(CopyId copy, MemberId member) const;
  // It took a push of one that is no member.
  void OnAcceptedOfNone(CopyId copy, MemberId member);
  // A member was answered.
  void OnRead(CopyId copy, MemberId member, Exchange after, Version version,
              const std::vector<float>& values);
  // A member was answered how `place.round` is cut for it, with values if it had asked for that.
  void OnFetched(CopyId copy, MemberId member, const SubnetPlace& place, Version version,
                 const std::optional<std::vector<float>>& values);
  // Somebody who has made earlier rounds has its push of the open one folded. One that begins with it
  // may be ahead of others that evaluate.
  bool IsInRound(CopyId copy) const;
  // All values, as they are just now.
  void OnReadOutside(CopyId copy, MemberId member, Version version,
                     const std::vector<float>& values);
  // What the shard would tell people, just now.
  void OnCounters(CopyId copy, const v1::ServerCounters& counters);
  // What a run has come to: a simulation that never gets there proves nothing.
  struct Reached {
    uint64_t restarts = 0;  // of evaluations, told to members
    uint64_t recuts = 0;    // rounds that were cut otherwise than a member thought
    uint64_t stale = 0;     // pushes two versions late or more
    uint64_t coded = 0;     // pushes that are not plain f32
    uint64_t by_qsgd = 0;   // of these
    uint64_t held = 0;      // pushes behind which something is held back
    uint64_t taken_up = 0;  // members that begin with something that was held back
    uint64_t flushed = 0;   // pushes that brought all that was
    uint64_t seen = 0;      // reads that are not f32
  };
  const Reached& reached() const { return reached_; }
  void OnEvaluationRestarts() { ++reached_.restarts; }
  void OnRecut() { ++reached_.recuts; }

  // --- codecs (push_checker.cc) ---

  // As CodecChecker's.
  void OnBegins(MemberId member, Exchange exchange,
                const std::optional<std::pair<MemberId, Exchange>>& from,
                const std::vector<float>& held);
  // All parts of a push, by shard.
  void OnPush(MemberId member, Exchange exchange, const std::vector<SentPart>& parts, bool flushes);
  void OnHeld(MemberId member, Exchange exchange, const std::vector<float>& held);
  void OnFlushed(MemberId member, Exchange exchange);
  // A reader sees `values` so.
  void OnSeen(CopyId copy, const CodedKeys& keys, const std::vector<float>& values,
              const std::vector<float>& seen);

  // --- evaluations and epochs (evaluation_checker.cc) ---

  // One attempt at one evaluation, of members that began in this generation's era.
  struct Attempt {
    uint64_t evaluation = 0;
    uint64_t attempt = 0;
  };
  // A member has read these versions, by shard, to score its part with them.
  void OnEvaluates(MemberId member, Attempt attempt, uint64_t part, uint64_t parts,
                   const std::vector<Version>& versions);
  // It has scored, and has yet to say so.
  void OnScores(MemberId member, Attempt attempt);
  // It was told how an epoch is cut.
  void OnCut(MemberId member, Rank rank, uint64_t epoch, const v1::EpochCut& cut);
  // It leaves after this exchange, as the job is over for it. `has_done_all`: no step is left.
  void OnFinishes(MemberId member, Exchange exchange, bool has_done_all);

  void OnCounted(CopyId copy, Version version);
  // Sees whether it has begun to select a core, of the values that it has just now.
  void FollowSelection(CopyId copy);
  // It has selected this one.
  void OnCore(CopyId copy, const Core& core);
  // What a member is about to push to the shard: `keys` nullptr: all entries. `is_last`: with all that was held
  // back.
  void OnKeys(ShardId shard, MemberId member, Rank rank, Exchange exchange, const SparseKeys* keys,
              bool is_last);
  // As OnRead, of these places, which are to be those of core `core` in exchange `after`.
  void OnSparseRead(CopyId copy, MemberId member, Rank rank, Exchange after, Version version,
                    uint64_t core, const EntrySet& entries, const std::vector<float>& values);
  void OnResting(CopyId copy, MemberId member, bool resting);
  // A worker has pulled from all shards after `exchange`.
  void OnReplica(MemberId member, Exchange exchange, const std::vector<float>& values);
  // Reads are parked: `waits_for`, an open promise and a time are all that the status can name.
  struct Reader {
    MemberId member;
    Exchange after;
  };
  void OnWaiting(CopyId copy, const std::vector<Reader>& readers,
                 const std::vector<MemberId>& waits_for, bool will_go_on);
  // Told by a coordinator of this generation.
  void OnAdmitted(MemberId member, Exchange first, Generation generation);
  // A server was told a plan: there is one of each generation, whoever is the coordinator.
  void OnPlanTold(const Plan& plan);
  // What a coordinator would tell people; the number is its process's.
  void OnStatus(const v1::JobStatus& status, uint64_t coordinator);
  // A worker's process was told who it is.
  void OnNamed(MemberId member, uint64_t life);
  // Somebody may have been told what the coordinator does not know any more: the job is to end, and nothing else
  // is held.
  void Forgive() { is_forgiven_ = true; }
  void OnStuck(absl::string_view what);
  void OnLiveMemberRefused(MemberId member, absl::string_view message);
  // The run is over; `lost` did not finish. nullopt: partial pushes were not counted by all servers.
  // `is_drained`: it was asked to end early.
  void OnEnd(const std::set<MemberId>& lost, std::optional<uint64_t> partial_pushes,
             bool is_drained);

  // The first thing that was wrong.
  const std::optional<std::string>& violation() const { return violation_; }
  void Violate(absl::string_view what);
  uint64_t commits() const;
  uint64_t partial_pushes() const;

 private:
  class RecordedPolicy;
  // What one copy must look like.
  struct Ledger {
    ShardId shard;
    uint64_t term = 0;
    // Of the checkpoint that it has begun from; 0: the initial values.
    Generation era;
    // Its process is new, and has nothing of what the shard had.
    bool is_blank = false;
    // Of a copy for a checkpoint: the exchange that it was ordered for.
    Exchange copied_after;
    const Shard* copy = nullptr;
    bool leads = false;
    uint64_t lead_term = 0;
    bool serves = false;
    // Of parameters that all sites have: the sum of what they returned.
    std::map<int64_t, double> shared;  // by position
    ShardSlices slices;
    Plan plan;
    std::vector<float> parameters;
    std::vector<float> pending;
    std::vector<float> momentum;  // the rule's state
    uint64_t pushes = 0;          // folded, ever
    uint64_t staleness_sum = 0;
    uint64_t staleness_max = 0;
    uint64_t pending_examples = 0;
    uint64_t examples = 0;  // committed
    double weights = 0;     // folded into pending, by examples
    uint64_t first_examples = 0;
    std::map<MemberId, Exchange> clocks;  // last exchange folded
    Exchange highest;                     // of all pushes folded
    Exchange round{1};                    // being collected
    bool has_begun = false;               // there has been a plan with members
    std::set<MemberId> resting;
    std::vector<MemberId> folded;                     // into pending
    std::set<std::pair<MemberId, Exchange>> applied;  // ever
    std::map<Exchange, std::set<MemberId>> commits;   // under lockstep
    Exchange committed;                               // the last one
    uint64_t version = 0;
    std::vector<uint64_t> history = {0};  // by version: of all that is in it
    // The last core that it has begun to select, and of what.
    std::optional<uint64_t> selecting;
    std::vector<float> selected_values;
    std::vector<float> selected_gradient;
    // What pushes of all entries have changed since the last selection; empty: none came.
    std::vector<float> gradient;
    bool has_all = false;  // one of them is in pending
  };

  uint64_t ShardOf(CopyId copy) const { return ledgers_[copy.value()].shard.value(); }
  // Of a shard, the one that members go by; nullptr: none yet.
  const Ledger* LeaderOf(size_t shard) const;
  // It begins to lead, and nobody may go by it before it has what a checkpoint has.
  bool IsBlank(const Ledger& ledger, bool is_new) const;
  bool Has(const Ledger& ledger, MemberId member, Exchange exchange) const;
  void CheckKnows(const Ledger& ledger, Knowledge knowledge, absl::string_view where);
  void OnImage(CopyId copy);
  void OnFolded(CopyId copy, const PushFacts& push, const Verdict& verdict);
  void OnCommitted(CopyId copy, Exchange exchange);
  void AddUpdate(Ledger* ledger, const PushFacts& push, float weight);
  void ReplaceValues(Ledger* ledger, const PushFacts& push, absl::string_view where);
  // nullptr: the update itself.
  const std::vector<float>* SeenOf(ShardId shard, const PushFacts& push) const;
  // The member is one that keeps no rules (sim_rogue.h).
  bool IsRogue(MemberId member) const;
  // Where members advance on their own, one that has said that it stands, and pushes, moves what others evaluate.
  bool MayMove(const Plan& plan) const;
  void CheckRead(CopyId copy, MemberId member, Exchange after, Version version,
                 absl::string_view where);
  // `wanted`: where each value lies in the shard's dense order; nullptr: they are all.
  void CompareValues(const Ledger& ledger, const std::vector<float>& values,
                     const std::vector<int64_t>* wanted, absl::string_view where);
  // Those of core `core`, if all shards have one of this number.
  void CheckEntries(Generation era, ShardId shard, Rank rank, Exchange exchange, uint64_t core,
                    const EntrySet& entries, absl::string_view where);
  Generation EraOf(MemberId member) const;
  CoreChecker& CoresOf(Generation era);
  void CheckGap(CopyId copy, MemberId reader, Exchange after);
  void CheckSameCommits(const std::set<MemberId>& lost);
  void CheckFinished(bool is_drained);

  const Options options_;
  std::deque<Ledger> ledgers_;                  // by copy
  std::vector<std::optional<CopyId>> leaders_;  // by shard
  std::vector<uint64_t> lead_terms_;            // by shard, the latest that anybody was told
  std::map<std::pair<ShardId, uint64_t>, Ledger> images_;  // by shard and term
  struct Told {
    std::set<std::pair<MemberId, Exchange>> acknowledged;
    Knowledge knowledge;  // the latest version
  };
  std::vector<Told> told_;  // by shard
  // What members push to a shard: places, ascending; nullopt: all.
  std::vector<std::map<std::pair<MemberId, Exchange>, std::optional<std::vector<int64_t>>>> keys_;
  const EntryNumbers numbers_;
  std::vector<std::vector<int64_t>> shard_numbers_;  // by shard and place
  CodecChecker codecs_;
  // By shard, what a reader sees of a push, in the order of the wire. None of f32.
  std::vector<std::map<std::pair<MemberId, Exchange>, std::vector<float>>> seen_;
  // Under lockstep, by era.
  std::map<std::pair<Generation, Exchange>, std::vector<float>> replicas_;
  // By era and round: how it is cut, as servers have said.
  std::map<std::pair<Generation, uint64_t>, std::map<MemberId, SubnetPlace>> cuts_;
  // By era, evaluation and attempt.
  struct Standing {
    uint64_t parts = 0;
    std::vector<Version> versions;         // by shard
    std::vector<Generation> generations;   // by shard, of the plans then
    std::map<uint64_t, MemberId> members;  // by part
  };
  std::map<std::tuple<Generation, uint64_t, uint64_t>, Standing> evaluations_;
  // By era and epoch: the first that was told, and who has which part.
  struct CutEpoch {
    v1::EpochCut first;
    std::map<uint64_t, Rank> ranks;  // by part
    // By part: its rows of each step, where parts are not equally large.
    std::map<uint64_t, std::pair<uint64_t, uint64_t>> rows;
  };
  std::map<std::pair<Generation, uint64_t>, CutEpoch> epochs_;
  struct Finish {
    MemberId member;
    Exchange exchange;
    bool has_done_all = false;
  };
  std::vector<Finish> finishes_;
  Reached reached_;
  std::map<Generation, Plan> plans_;
  std::map<MemberId, uint64_t> lives_;   // of workers
  std::optional<v1::JobStatus> status_;  // the last one, and whose it was
  uint64_t status_from_ = 0;
  bool is_forgiven_ = false;
  std::map<Generation, CoreChecker> cores_;  // by era
  std::map<std::pair<ShardId, uint64_t>, Generation>
      logs_;  // eras of those without an image, by term
  std::map<MemberId, Generation> eras_;
  std::vector<Ledger> copies_;                              // that were made for checkpoints
  std::map<uint64_t, std::vector<uint64_t>> whole_copies_;  // by step and shard
  std::vector<uint64_t> wholes_;  // steps that the coordinator has gone by, in order
  std::map<Generation, uint64_t> restores_;
  std::optional<std::string> violation_;
};

}  // namespace tessera

#endif  // TESSERA_TESTS_SIM_CHECKER_H_
