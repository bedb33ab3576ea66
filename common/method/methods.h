// The methods of this build, one file each, and what their recipes share.
#ifndef TESSERA_COMMON_METHOD_METHODS_H_
#define TESSERA_COMMON_METHOD_METHODS_H_

#include <memory>

#include "common/method/recipe.h"

namespace tessera {

Recipe DataParallel(const v1::Job& job);
Recipe LocalSgd(const v1::Job& job);
Recipe AsyncSgd(const v1::Job& job);

// The job's optimizer as a rule of the shard.
std::unique_ptr<UpdateRule> OptimizerRule(const v1::Optimizer& optimizer);

}  // namespace tessera

#endif  // TESSERA_COMMON_METHOD_METHODS_H_
