// What servers and the coordinator say to each other to select one core for the whole model.
//
//   server       coordinator
//   kSums        ->            it has committed what the core is selected by; with sum |w|, sum |g|
//                <- kSample    all have: here is the weight of |g|
//   counts       ->            of a sample, by the upper half of the significance
//                              (common/keyset/significance.h)
//                <- kCoarse    the last core entry is likely to be in these buckets
//   counts       ->            of all entries in them, by bucket, and of those above
//                <- kWide      it is not; the same again for all buckets. Else left out
//                <- kFine      it is in this bucket
//   counts       ->            of the entries in it, by the lower half
//                <- kTies      it has this significance; how many have just that, by parameter?
//   ties         ->            left out where all of them are core
//                <- kDone      so many of them are core, by parameter
//
// Whoever hears something twice says its answer again; what is of an earlier core or stage is out of date
// and changes nothing. So a connection may break at any time.
#ifndef TESSERA_SERVER_CORE_CORE_WORDS_H_
#define TESSERA_SERVER_CORE_CORE_WORDS_H_

#include <cstdint>
#include <vector>

#include "common/keyset/significance.h"

namespace tessera {

enum class CoreStage {
  kSums = 0,
  kSample = 1,
  kCoarse = 2,
  kWide = 3,
  kFine = 4,
  kTies = 5,
  kDone = 6
};

// A server's word. `stage` is that of the question that it answers.
struct CoreReport {
  uint64_t core = 0;
  CoreStage stage = CoreStage::kSums;
  // kSums.
  double weight_sum = 0;
  double gradient_sum = 0;
  // kSample to kFine: buckets that are not empty, ascending, and their counts.
  std::vector<uint32_t> buckets;
  std::vector<uint64_t> counts;
  // kCoarse: entries above the range.
  uint64_t above = 0;
  // kTies: by parameter.
  std::vector<uint64_t> ties;
};

// A question of the coordinator to one server.
struct CoreQuestion {
  uint64_t core = 0;
  CoreStage stage = CoreStage::kSample;
  // From kSample on.
  float gradient_weight = 0;
  // kCoarse, kWide; from kFine on one bucket.
  BucketRange buckets;
  // From kTies on: the significance's lower half.
  uint32_t fine = 0;
  // kDone: all entries of this significance are core, or of each parameter so many, the first ones.
  bool all_ties = false;
  std::vector<uint64_t> ties;
};

}  // namespace tessera

#endif  // TESSERA_SERVER_CORE_CORE_WORDS_H_
