#include "common/keyset/rows.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace tessera {

absl::Status CheckRows(const ModelShape& shape, const RowRange& rows) {
  const int count = static_cast<int>(shape.parameters.size());
  if (rows.parameter < 0 || rows.parameter >= count) {
    return absl::InvalidArgumentError(
        absl::StrCat("rows: parameter is ", rows.parameter, ", want 0 to ", count - 1));
  }
  const ParameterSpec& spec = shape.parameters[rows.parameter];
  if (0 <= rows.row_begin && rows.row_begin <= rows.row_end && rows.row_end <= spec.rows) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat("rows: are ", rows.row_begin, " to ", rows.row_end,
                                                 " of ", spec.name, ", want them between 0 and ",
                                                 spec.rows));
}

Slice OwnedRows(const ShardSlices& slices, const RowRange& rows) {
  const auto found =
      std::find_if(slices.slices.begin(), slices.slices.end(),
                   [&](const Slice& slice) { return slice.parameter == rows.parameter; });
  // A server that owns no rows of the parameter answers with none.
  Slice owned;
  owned.parameter = rows.parameter;
  if (found == slices.slices.end()) return owned;
  owned.columns = found->columns;
  owned.row_begin = std::max(rows.row_begin, found->row_begin);
  owned.row_end = std::max(owned.row_begin, std::min(rows.row_end, found->row_end));
  // The rows wanted begin so far into the server's own.
  owned.offset = found->offset + (owned.row_begin - found->row_begin) * found->columns;
  return owned;
}

}  // namespace tessera
