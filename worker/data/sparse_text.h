// What the text formats of sparse rows have in common: fields, and entries `index:value`.
#ifndef TESSERA_WORKER_DATA_SPARSE_TEXT_H_
#define TESSERA_WORKER_DATA_SPARSE_TEXT_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/strings/string_view.h"
#include "worker/data/table.h"

namespace tessera {

// Says what is wrong with a line; nullopt: nothing is.
using Complaint = std::optional<std::string>;

// The next field between white space; `rest` loses it and what is before it. Empty at the end.
absl::string_view NextTextField(absl::string_view& rest);

// Whether the line's last field looks like an entry, whatever its index is.
bool EndsWithEntry(absl::string_view line);

// Appends all entries of `rest` as one row to `out`; an entry whose value is 0 is left out. Indices
// ascend, so none is there twice; they count from `index_base` (0 or 1) to `features` of them.
Complaint AppendSparseRow(absl::string_view rest, int64_t index_base, int64_t features,
                          SparseValues& out);

}  // namespace tessera

#endif  // TESSERA_WORKER_DATA_SPARSE_TEXT_H_
