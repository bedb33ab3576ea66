#include "deploy/simulate/step_share.h"

#include <algorithm>
#include <numeric>

#include "common/base/check.h"

namespace tessera {
namespace {

constexpr int64_t kSampleRows = 1000;

// Stored entries of an average row.
double MeanEntries(const Dataset& data) {
  std::vector<uint32_t> rows(std::min(data.rows(), kSampleRows));
  std::iota(rows.begin(), rows.end(), 0);
  SparseBatch batch;
  BatchView view;
  view.sparse = &batch;
  data.FillBatch(rows, view);
  return static_cast<double>(batch.column.size()) / static_cast<double>(rows.size());
}

}  // namespace

double RowEntries(const ModelShape& shape, const Dataset& data, const InputRows& input) {
  return input.sparse ? MeanEntries(data) : static_cast<double>(shape.inputs());
}

StepShare StepShareOf(const ModelShape& shape, const Dataset& data, const InputRows& input) {
  return StepShare(shape, RowEntries(shape, data, input));
}

StepShare::StepShare(const ModelShape& shape, double row_entries) {
  std::vector<bool> is_factor;
  for (const ParameterSpec& spec : shape.parameters) is_factor.push_back(spec.is_factor);
  for (const ModelLayer& layer : shape.layers) {
    if (layer.tied_to >= 0) is_factor[static_cast<size_t>(layer.tied_to)] = true;
  }
  for (const ParameterSpec& spec : shape.parameters) {
    double forward = is_factor[passes_.size()] ? 1 : 0;
    double passes = 3 * forward;
    // Nothing before it has parameters.
    if (passes_.empty() && spec.is_factor) {
      forward = row_entries / static_cast<double>(shape.inputs());
      passes = 2 * forward;
    }
    // A convolution's are used in each place of an image, all of a model of tokens in each of a sequence.
    const Image& image = shape.images[spec.layer + 1];
    const auto places =
        static_cast<double>(spec.columns_are.empty() ? image.places() : image.positions());
    forward *= places;
    passes *= places;
    passes_.push_back(passes);
    forward_.push_back(forward);
    sizes_.push_back(spec.size());
    whole_ += passes * static_cast<double>(spec.size());
  }
}

double StepShare::Of(const KeySet& keys) const {
  if (!keys.subnet.has_value()) return 1;
  TESSERA_CHECK(whole_ > 0);
  double part = 0;
  for (const ShardSlices& slices : keys.slices) {
    for (const Slice& slice : slices.slices) {
      part += passes_[slice.parameter] * static_cast<double>(slice.size());
    }
  }
  return part / whole_;
}

double StepShare::Of(const ParameterRange& range) const {
  double part = 0;
  for (int i = range.begin; i < range.end; ++i) part += passes_[i] * static_cast<double>(sizes_[i]);
  return part / whole_;
}

double StepShare::ForwardOf(const ParameterRange& range) const {
  double part = 0;
  for (int i = range.begin; i < range.end; ++i) {
    part += forward_[i] * static_cast<double>(sizes_[i]);
  }
  return part / whole_;
}

}  // namespace tessera
