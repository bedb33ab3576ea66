#include "common/codec/residual.h"

#include <algorithm>

#include "common/base/check.h"

namespace tessera {

Residual::Residual(const ModelShape& shape)
    : Residual(shape, {0, static_cast<int>(shape.parameters.size())}) {}

Residual::Residual(const ModelShape& shape, const ParameterRange& layers) {
  for (int p = 0; p < static_cast<int>(shape.parameters.size()); ++p) {
    const ParameterSpec& spec = shape.parameters[p];
    // Layers outside the range are held by somebody else and take no memory.
    values_.emplace_back(p >= layers.begin && p < layers.end ? spec.size() : 0);
    rows_.push_back(spec.rows);
  }
}

void Residual::Flush(int parameter, float* update) {
  std::vector<float>& held = values_[parameter];
  for (size_t i = 0; i < held.size(); ++i) update[i] += held[i];
  std::fill(held.begin(), held.end(), 0.0f);
}

ResidualCursor::ResidualCursor(Residual* residual, const ShardSlices& slices, const Subnet* subnet)
    : residual_(residual), slices_(slices), subnet_(subnet) {}

// Calls move(residual, count) for runs that lie behind each other, up to `count` entries. Returns
// where the next one is.
template <typename Move>
ResidualCursor::Place ResidualCursor::Walk(int64_t count, Move move) const {
  Place at = place_;
  while (count > 0) {
    TESSERA_CHECK(at.slice < slices_.slices.size());
    const Slice& slice = slices_.slices[at.slice];
    std::vector<float>& held = residual_->of(slice.parameter);
    int64_t taken = 1;
    if (subnet_ == nullptr) {
      // Without a subnet the rest of the slice lies in one run.
      const int64_t begin = (slice.row_begin + at.row) * slice.columns + at.column;
      taken = std::min(count, slice.row_end * slice.columns - begin);
      move(held.data() + begin, taken);
    } else {
      // A subnet's entries lie scattered in the whole parameter, whose residual is kept in full: what a worker
      // withholds of an entry goes on counting when a later round gives it that entry again.
      const int64_t row = subnet_->rows(slice.parameter)[slice.row_begin + at.row];
      // A vector has one entry per row, and no columns to choose from.
      if (subnet_->groups.uses[slice.parameter].columns < 0) {
        move(held.data() + row, 1);
      } else {
        // The width of the whole parameter, not the subnet's.
        const int64_t width = static_cast<int64_t>(held.size()) / residual_->rows(slice.parameter);
        const std::vector<int32_t>& columns = subnet_->columns(slice.parameter);
        taken = std::min(count, slice.columns - at.column);
        for (int64_t i = 0; i < taken; ++i) {
          move(held.data() + row * width + columns[at.column + i], 1);
        }
      }
    }
    count -= taken;
    at.column += taken;
    at.row += at.column / slice.columns;
    at.column %= slice.columns;
    // The slice is done; the next one begins with its own first row and column.
    if (slice.row_begin + at.row == slice.row_end) at = {at.slice + 1, 0, 0};
  }
  return at;
}

void ResidualCursor::Read(int64_t count, float* out) const {
  // Reading leaves the cursor where it is, as Write goes over the same entries afterwards.
  Walk(count, [&out](const float* held, int64_t n) { out = std::copy_n(held, n, out); });
}

void ResidualCursor::Write(int64_t count, const float* in) {
  place_ = Walk(count, [&in](float* held, int64_t n) {
    std::copy_n(in, n, held);
    in += n;
  });
}

}  // namespace tessera
