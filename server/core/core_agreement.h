// The coordinator's part in selecting a core: from all servers' counts to one threshold.
#ifndef TESSERA_SERVER_CORE_CORE_AGREEMENT_H_
#define TESSERA_SERVER_CORE_CORE_AGREEMENT_H_

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "common/base/ids.h"
#include "common/keyset/significance.h"
#include "proto/coordinator_state.pb.h"
#include "server/core/core_words.h"

namespace tessera {

// Pure: reports come in, questions come out. Bounded by buckets and parameters.
class CoreAgreement {
 public:
  struct Options {
    int servers = 1;
    int parameters = 1;
    // Entries of the whole model, and of those the core's.
    uint64_t entries = 0;
    uint64_t core_entries = 0;
    // The weight of |g|; 0: sum |w| / sum |g|.
    double gradient_weight = 0;
  };

  explicit CoreAgreement(const Options& options);

  using Questions = std::vector<std::pair<ShardId, CoreQuestion>>;
  // What is to be asked now. Reports that nobody waits for, or that contradict the model's size, are
  // dropped; one that is behind is answered with the question that it has missed, also where that is
  // not the last: it may be of a server that was started anew, or of a standby that leads now.
  Questions OnReport(ShardId server, const CoreReport& report);

  // The servers whose reports the others wait for; empty where none is known to have begun.
  std::vector<ShardId> Missing() const;

  // The core being selected, and the last one that was; nullopt: none yet.
  uint64_t core() const { return core_; }
  std::optional<uint64_t> selected() const { return selected_; }

  // Grows with every stage: the reports of one that is not over will be said again.
  uint64_t changes() const { return changes_; }
  v1::CoreAgreementState Save() const;
  //   kInvalidArgument  it is of another model, or of other servers
  absl::Status Load(const v1::CoreAgreementState& state);

 private:
  bool IsSound(const CoreReport& report) const;
  void Take(ShardId server, const CoreReport& report);
  void Begin(uint64_t core);
  // Whether, by what all have counted, the last core entry is in this range.
  bool IsIn(const BucketRange& range) const;
  // All have answered.
  void Advance();
  void EndTies();
  Questions AskAll() const;
  CoreQuestion QuestionAfter(CoreStage stage, ShardId server) const;

  const Options options_;
  uint64_t core_ = 0;
  CoreStage stage_ = CoreStage::kSums;  // of what is waited for
  std::vector<bool> answered_;
  std::optional<uint64_t> selected_;
  // The last questions, and after a selection its outcome.
  std::vector<CoreQuestion> questions_;

  // The sums of each server, which are added up in the servers' order.
  std::vector<MagnitudeSums> sums_;
  std::vector<uint64_t> counts_;
  std::vector<std::vector<uint64_t>> ties_;
  uint64_t above_ = 0;  // entries that are core for certain
  uint64_t changes_ = 0;
};

}  // namespace tessera

#endif  // TESSERA_SERVER_CORE_CORE_AGREEMENT_H_
