// w += u.  Deltas of local SGD: the workers have applied their rates already.
#ifndef TESSERA_COMMON_RULE_ADD_H_
#define TESSERA_COMMON_RULE_ADD_H_

#include <memory>

#include "common/rule/rule.h"

namespace tessera {

std::unique_ptr<UpdateRule> MakeAdd();

}  // namespace tessera

#endif  // TESSERA_COMMON_RULE_ADD_H_
