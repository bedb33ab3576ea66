// What a test breaks on purpose, to see that the checker objects.
#ifndef TESSERA_TESTS_SIM_MUTATION_H_
#define TESSERA_TESTS_SIM_MUTATION_H_

namespace tessera {

enum class Mutation {
  kNone,
  kAppliesDuplicates,     // a repeated push is taken for the member's next one
  kCountsTwice,           // every twentieth push is folded with weight 2
  kPolicyForgetsRemoval,  // the policy goes on waiting for members that were removed
  kServerForgetsRemoval,  // one server acknowledges removals and does not apply them
  kForgetsRests,          // the policy is not told that members rest
  kWeighsAlike,           // every push is folded with the method's plain weight, however stale
  kReadsEarly,            // readers are never made to wait
  kForgetsPromise,        // a server agrees to a joiner's exchange and does not hold it
  kLosesStaged,           // one server acknowledges a push now and then, and forgets it
  kTakesAllTies,          // a server takes all entries that are as significant as the core's last
  kSaysReportsOnce,       // a server does not repeat what it says of a core
  kForgetsDepartedSites,  // one server cuts rounds without members that were lost
  kAcknowledgesEarly,     // a leader acknowledges before its standby has it
  kTakesOldTerm,          // a standby that leads acknowledges its predecessor's log still
  kNeverCopies,           // a leader has a standby only from the beginning
  kLeadsUnsynced,         // the coordinator takes every standby for one that could take over
  kTellsUnkept,           // the coordinator tells what it has not kept, and tells nobody so
  kForgetsTime,  // a coordinator that goes on takes the job's clock for one that has just begun
  kCopiesLate,   // a server copies itself for a checkpoint one exchange late
  kSavesLate,    // a worker writes its file of a checkpoint one exchange late
  kSavesAhead,   // a worker writes what it is, not what it was when the exchange began
  kGoesOnAfterRestore,  // a server says that it has gone back, and goes on with what it has
  kMisreportsRemoved,   // one server tells a wrong last exchange of removed members
  kCountsOneMore,       // servers tell of one example more than there were
  kReadsTwice,          // every worker trains the rows of an epoch's first part
  kScoresTwice,         // every member is told to score the first part
  kEvaluatesEarly,      // a worker scores what it read before all had come
  kLeavesEarly,         // a worker takes any evaluation for the last one
  kTicksEarly,          // the coordinator ends leases long before their time
  kForgetsSavedStates,  // a server that goes back has the parameters and no more
  kForgetsHeld,         // a worker that goes back has nothing held back
  kSavesHeldLate,  // a worker's file has what is held back when it is written, not when it was asked for
  kEncodesAgain,     // a worker encodes anew what it sends again
  kForgetsFlush,     // a worker's last push is like any other
  kMixesParameters,  // a worker sends what it learned of one parameter as of another
  kCutsBits,         // servers cut what is written as bf16, in place of rounding it
  kRoundsForEach,    // servers round values by other random numbers for each reader
};

}  // namespace tessera

#endif  // TESSERA_TESTS_SIM_MUTATION_H_
