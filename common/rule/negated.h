// For updates that point downhill: a worker's delta is what its optimizer added, where a rule that
// is an optimizer subtracts what it is given.
#ifndef TESSERA_COMMON_RULE_NEGATED_H_
#define TESSERA_COMMON_RULE_NEGATED_H_

#include <memory>

#include "common/rule/rule.h"

namespace tessera {

// Makes a rule that is `rule`, fed -u. With plain SGD at rate 1 it gives what MakeAdd gives, bit for bit, wherever
// w is finite.
std::unique_ptr<UpdateRule> MakeNegated(std::unique_ptr<UpdateRule> rule);

}  // namespace tessera

#endif  // TESSERA_COMMON_RULE_NEGATED_H_
