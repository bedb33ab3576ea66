// What a minibatch costs on a part of a model: its share of the whole model's multiply-adds.
//
// A weight of r rows and c columns takes r c multiply-adds for each row of data forward, as many for
// its gradient, and as many for the gradient of its inputs, which the first weight does not need. Of a
// sparse row the first weight meets the entries alone. A convolution takes all of that in each place of
// its output. Vectors count for nothing.
#ifndef TESSERA_DEPLOY_SIMULATE_STEP_SHARE_H_
#define TESSERA_DEPLOY_SIMULATE_STEP_SHARE_H_

#include <cstdint>
#include <vector>

#include "common/keyset/key_set.h"
#include "common/layout/layer_cut.h"
#include "common/layout/parameters.h"
#include "worker/data/dataset.h"
#include "worker/replica/batch_rows.h"

namespace tessera {

// Constant after construction.
class StepShare {
 public:
  // Rows of data have `row_entries` inputs that count: all of them, or their entries.
  StepShare(const ModelShape& shape, double row_entries);

  // The share of `keys` in a step, in (0, 1]; 1 where they are dense.
  double Of(const KeySet& keys) const;
  // The share of the layers that have these parameters; and that of their way forward alone.
  double Of(const ParameterRange& range) const;
  double ForwardOf(const ParameterRange& range) const;

 private:
  // For each parameter: multiply-adds for each of its entries, and those of the way forward.
  std::vector<double> passes_, forward_;
  // The number of entries of each parameter.
  std::vector<int64_t> sizes_;
  double whole_ = 0;
};

// The stored entries of an average row, by the rows that `data` begins with.
double RowEntries(const ModelShape& shape, const Dataset& data, const InputRows& input);
// The shares of the parameters in a step on rows like those of `data`.
StepShare StepShareOf(const ModelShape& shape, const Dataset& data, const InputRows& input);

}  // namespace tessera

#endif  // TESSERA_DEPLOY_SIMULATE_STEP_SHARE_H_
