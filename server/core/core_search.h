// A server's part in selecting a core: it counts, and takes its entries.
//
//   sample   reads an entry here and there
//   coarse   reads w and g: what is above the range is core, what is in it is a candidate, counted
//   others   read the candidates alone, about a fiftieth of the entries
// So a selection takes one pass over memory and some parts of another.
#ifndef TESSERA_SERVER_CORE_CORE_SEARCH_H_
#define TESSERA_SERVER_CORE_CORE_SEARCH_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "common/keyset/entry_set.h"
#include "common/keyset/significance.h"
#include "common/layout/shard_map.h"
#include "server/core/core_words.h"

namespace tessera {

// One thread. What it reads stays as it is while it lives.
class CoreSearch {
 public:
  struct Options {
    uint64_t core = 0;
    // The entries in the dense order, without gaps, and what keeps their memory.
    std::vector<SignificanceRun> runs;
    std::shared_ptr<const void> owner;
    // The server's slices; they must outlive this.
    const ShardSlices* slices = nullptr;
    int parameters = 1;
    // Entries of the whole model.
    int64_t entries = 0;
    // The sums over these runs, where there is a g: who writes g has them at hand.
    MagnitudeSums sums;
  };

  explicit CoreSearch(Options options);
  const Options& options() const { return options_; }

  // The answer to the last question, unless that is still being worked out. Said again whenever it
  // is wanted.
  const std::optional<CoreReport>& report() const { return report_; }
  // Anything but the question that follows the last report is dropped. A question that does not fit
  // the report is too: its sender's mistake. Returns whether it was taken.
  bool Ask(const CoreQuestion& question);
  // Works on one run; false: there was nothing to do.
  bool Advance();
  // The core that was found. It is set after kDone.
  const std::optional<EntrySet>& core() const { return core_; }

 private:
  void Work(const SignificanceRun& run);
  void Sample(const SignificanceRun& run);
  void EndStage();
  void Report();
  // Candidates above `last` become core, those below `first` go.
  void NarrowTo(uint32_t first, uint32_t last);
  void CountTies();
  void TakeTies();
  uint32_t SignificanceAt(const SignificanceRun& run, int64_t i) const;
  uint32_t threshold() const { return question_.buckets.first << 16 | question_.fine; }
  CoreStage stage() const { return question_.stage; }

  const Options options_;
  CoreQuestion question_;
  bool working_ = false;
  size_t run_ = 0;
  int64_t place_ = 0;  // where the run begins
  std::vector<uint64_t> counts_;
  uint64_t above_count_ = 0;
  std::vector<uint64_t> above_;   // bits of core entries
  std::vector<uint64_t> within_;  // of candidates
  // Their significances. Few, but where nearly all entries are alike.
  std::vector<uint32_t> values_;
  std::optional<CoreReport> report_;
  std::optional<EntrySet> core_;
};

}  // namespace tessera

#endif  // TESSERA_SERVER_CORE_CORE_SEARCH_H_
