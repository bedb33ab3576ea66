// A job's staleness weight, as policies take it and in words.
#ifndef TESSERA_COMMON_METHOD_STALENESS_H_
#define TESSERA_COMMON_METHOD_STALENESS_H_

#include <string>

#include "common/consistency/staleness_weight.h"
#include "proto/job.pb.h"

namespace tessera {

// The weight that the job's keys say; where they are absent it is constant 1.
StalenessWeight WeightOf(const v1::StalenessWeight& keys);

// "weight 1", "weight 1 / max(1, tau) when tau updates late".
std::string WeightInWords(const StalenessWeight& weight);

}  // namespace tessera

#endif  // TESSERA_COMMON_METHOD_STALENESS_H_
