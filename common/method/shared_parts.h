// What the files of several methods share.
#ifndef TESSERA_COMMON_METHOD_SHARED_PARTS_H_
#define TESSERA_COMMON_METHOD_SHARED_PARTS_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/strings/string_view.h"
#include "common/config/key_errors.h"
#include "common/consistency/policy.h"
#include "common/method/recipe.h"

namespace tessera {

// Every minibatch ends in an exchange of gradients, which waits for those of all workers. The recipe has no name.
Recipe MeanOfGradients(const v1::Job& job);

// Workers send gradients, and the servers apply the job's optimizer to their mean.
void ApplyOptimizer(const v1::Job& job, Recipe* recipe);

// Makes the policy of a mean over all members: of their pushes, or, where slower workers have smaller minibatches
// (data.partition: by_speed), of their examples.
using PolicyMaker = std::unique_ptr<ConsistencyPolicy> (*)();
PolicyMaker BarrierOf(const v1::Job& job);

// Refuses data.partition by_speed; `why` continues 'want "global" '.
void RefuseBySpeed(const v1::Job& job, absl::string_view why, KeyErrors* errors);

// Exchanges go on beside training.
void Overlap(Recipe* recipe);

// Has exchanges move fragments in turn.
void MoveFragments(const FragmentTurns& turns, Recipe* recipe);
// Has exchanges move fragments in turn where `keys`, a method's LocalSgd or Diloco, name two or more.
template <typename Keys>
void TakeFragments(const Keys& keys, Recipe* recipe) {
  if (keys.fragments() > 1) {
    MoveFragments(
        {static_cast<int>(keys.fragments()), keys.delay(), static_cast<float>(keys.alpha())},
        recipe);
  }
}

// What a job says of fragments, under `method`, such as "method.diloco".
struct FragmentWish {
  std::string method;
  int64_t local_steps = 1;
  int64_t fragments = 1;
  int64_t delay = 0;
  double alpha = 0;
  // The first of the method's choices with which no fragments go; empty: none. Such as "asynchronous".
  std::string excluding;
};
void CheckFragments(const v1::Job& job, const FragmentWish& wish, KeyErrors* errors);

// Refuses `pushes`, the value of `key`, as the number of pushes that make an update where the job has fewer workers.
void CheckPushes(const v1::Job& job, const std::string& key, int64_t pushes, KeyErrors* errors);

}  // namespace tessera

#endif  // TESSERA_COMMON_METHOD_SHARED_PARTS_H_
