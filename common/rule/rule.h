// How a committed update changes the parameters.
//
// A rule is arithmetic on runs of entries; its state (a momentum) lies beside the rows it belongs
// to and is sharded with them. Memory bound: each form reads and writes every array once.
#ifndef TESSERA_COMMON_RULE_RULE_H_
#define TESSERA_COMMON_RULE_RULE_H_

#include <cstdint>

namespace tessera {

class UpdateRule {
 public:
  virtual ~UpdateRule() = default;

  // Arrays of the parameters' size that the rule keeps. They start at zero.
  virtual int state_count() const = 0;

  // w_out = rule(w_in, scale * u, state) for `count` entries. w_out is w_in or does not overlap it.
  // `state` holds state_count() pointers.
  virtual void Apply(const float* u, float scale, const float* w_in, float* w_out,
                     float* const* state, int64_t count) const = 0;
};

}  // namespace tessera

#endif  // TESSERA_COMMON_RULE_RULE_H_
