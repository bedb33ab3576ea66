// Whether the rows of a file lie in memory as model.input says, by their sizes alone.
//
// Rows fit where one shape is the other flattened: sizes that stand side by side are multiplied, and ones do not
// count. [28, 28], [1, 28, 28] and [28, 28, 1] fit [784], and [3, 64] fits [3, 8, 8]. [8, 8, 3] does not: it has as
// many values, in another order.
#ifndef TESSERA_COMMON_LAYOUT_ROW_SHAPE_H_
#define TESSERA_COMMON_LAYOUT_ROW_SHAPE_H_

#include <cstdint>
#include <string>

#include "absl/types/span.h"

namespace tessera {

// Both have as many values. Sizes are at least 1.
bool IsSameOrder(absl::Span<const int64_t> row, absl::Span<const int64_t> wanted);

// Of rows that do not lie in that order. Where those of `x`, an array of rows, would fit after an exchange of axes:
// the exchange in NumPy's words, as "x.transpose(0, 3, 1, 2)" for rows of [8, 8, 3] and [3, 8, 8]. Empty: there is
// none.
std::string TransposeTo(absl::Span<const int64_t> row, absl::Span<const int64_t> wanted);

// "[3, 8, 8]", as model.input is written.
std::string ShapeText(absl::Span<const int64_t> sizes);

}  // namespace tessera

#endif  // TESSERA_COMMON_LAYOUT_ROW_SHAPE_H_
