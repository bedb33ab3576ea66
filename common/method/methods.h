// The methods of this build, one file each, and what their recipes share.
#ifndef TESSERA_COMMON_METHOD_METHODS_H_
#define TESSERA_COMMON_METHOD_METHODS_H_

#include "common/method/recipe.h"

namespace tessera {

Recipe DataParallel(const v1::Job& job);
Recipe LocalSgd(const v1::Job& job);
Recipe Diloco(const v1::Job& job);
Recipe AsyncSgd(const v1::Job& job);
Recipe Softsync(const v1::Job& job);
Recipe Ssp(const v1::Job& job);
Recipe Ist(const v1::Job& job);
Recipe Ensemble(const v1::Job& job);
Recipe QuantDp(const v1::Job& job);
Recipe Decentralized(const v1::Job& job);
Recipe SlimDp(const v1::Job& job);
Recipe LayerSeparation(const v1::Job& job);

// Chooses that gradients are sent, and the servers apply the job's optimizer.
void ApplyOptimizer(const v1::Job& job, Recipe* recipe);

// Chooses that exchanges go on beside training, and says so in the description.
void Overlap(Recipe* recipe);

}  // namespace tessera

#endif  // TESSERA_COMMON_METHOD_METHODS_H_
