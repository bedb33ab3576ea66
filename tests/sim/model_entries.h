// The entries of a model by one number each: parameter by parameter, row by row.
#ifndef TESSERA_TESTS_SIM_MODEL_ENTRIES_H_
#define TESSERA_TESTS_SIM_MODEL_ENTRIES_H_

#include <cstdint>
#include <vector>

#include "common/layout/parameters.h"
#include "common/layout/shard_map.h"

namespace tessera {

// Of all entries of a parameter, by parameter.
using EntryNumbers = std::vector<std::vector<int64_t>>;

EntryNumbers NumbersOf(const ModelShape& shape);
// Of what `slices` say of arrays that have these, in the order of the wire.
std::vector<int64_t> NumbersIn(const EntryNumbers& numbers, const ShardSlices& slices);

}  // namespace tessera

#endif  // TESSERA_TESTS_SIM_MODEL_ENTRIES_H_
