// How many members a job can have. job.proto says the same of its keys (tests/common/config/schema_test.cc);
// these are for what is read from elsewhere: calls, files, flags.
#ifndef TESSERA_COMMON_BASE_LIMITS_H_
#define TESSERA_COMMON_BASE_LIMITS_H_

#include <cstdint>

namespace tessera {

// The most workers (cluster.workers), or workers of linear layers, that a job may ask for. More may join it.
constexpr int kJobWorkersMax = 1024;

// Workers' ranks stay below this one: random keys hold them in 16 bits, and the last one stands for nobody.
constexpr uint64_t kRankEnd = 65535;

// The most servers of a job, and shards of its parameters: random keys hold them in 8 bits.
constexpr uint32_t kServersMax = 256;

// The most workers that plan and simulate may be asked about. One of them is a fiber, which takes two of the
// kernel's 65,530 mappings.
constexpr int kSimulatedWorkersMax = 20000;

static_assert(kJobWorkersMax <= kSimulatedWorkersMax && kSimulatedWorkersMax < int{kRankEnd});
static_assert(kRankEnd < uint64_t{1} << 16 && kServersMax <= uint32_t{1} << 8);

}  // namespace tessera

#endif  // TESSERA_COMMON_BASE_LIMITS_H_
