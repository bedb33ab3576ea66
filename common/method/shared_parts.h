// What the files of several methods share.
#ifndef TESSERA_COMMON_METHOD_SHARED_PARTS_H_
#define TESSERA_COMMON_METHOD_SHARED_PARTS_H_

#include <cstdint>
#include <string>

#include "common/config/key_errors.h"
#include "common/method/recipe.h"

namespace tessera {

// Every minibatch ends in an exchange of gradients, which waits for those of all workers. The recipe has no name.
Recipe MeanOfGradients(const v1::Job& job);

// Workers send gradients, and the servers apply the job's optimizer to their mean.
void ApplyOptimizer(const v1::Job& job, Recipe* recipe);

// Exchanges go on beside training.
void Overlap(Recipe* recipe);

// Refuses `pushes`, the value of `key`, as the number of pushes that make an update where the job has fewer workers.
void CheckPushes(const v1::Job& job, const std::string& key, int64_t pushes, KeyErrors* errors);

}  // namespace tessera

#endif  // TESSERA_COMMON_METHOD_SHARED_PARTS_H_
