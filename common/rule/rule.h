// How a committed update changes the parameters.
//
// A rule is arithmetic on runs of entries; its state (a momentum) lies beside the rows it belongs
// to and is sharded with them. Entries know nothing of each other, so however they are cut into runs
// the bits are the same, and on every CPU. Memory bound: each form reads and writes every array once
// (bench/rules).
#ifndef TESSERA_COMMON_RULE_RULE_H_
#define TESSERA_COMMON_RULE_RULE_H_

#include <cstdint>

namespace tessera {

// What all entries of one update have in common.
struct Update {
  // The number that u is multiplied by first: 1 / number of folded pushes for a mean.
  float scale = 1;
  // Counts the updates of these parameters from 1.
  uint64_t number = 1;
  // The number that learning rates are multiplied by (common/rule/schedule.h).
  float rate = 1;
};

// Constant after construction: any thread may apply it, to arrays of its own.
class UpdateRule {
 public:
  virtual ~UpdateRule() = default;

  // The number of arrays of the parameters' size that the rule keeps. They start at zero.
  virtual int state_count() const = 0;

  // Whether the rule would write what it read where u is 0, so that such entries may be left out. Only -0 is
  // something else then: it stays, and is +0 where it is written. Never so for a rule with state or decay.
  virtual bool keeps_where_zero() const { return false; }

  // What the rule divides state array `state` by where it takes it up: one that a job saved whose rule divided by
  // another number goes on times this over that, so that what is in it weighs what it would have.
  virtual float divisor(int state) const { return 1; }

  // w_out = rule(w_in, update.scale * u, state) for `count` entries. w_out is w_in or does not
  // overlap it. `state` holds state_count() pointers. u points uphill where the rule is an
  // optimizer (a gradient) and is what is added where it adds.
  virtual void Apply(const Update& update, const float* u, const float* w_in, float* w_out,
                     float* const* state, int64_t count) const = 0;
};

}  // namespace tessera

#endif  // TESSERA_COMMON_RULE_RULE_H_
