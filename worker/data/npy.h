// NumPy's own files (.npy), as np.save writes them: features in one, labels in another. Their
// grammar is in npy_header.h.
//
// The first size of a file's shape counts rows, and the others together are the row: (N, 28, 28) has
// rows of 784 values, (N,) rows of one. Labels are integers of any type, or bools, of shape (N,) or
// (N, 1). Features are taken as they are, bools as 0 and 1; those of type u1 are bytes as in every
// other format, so that 255 stands for 1 (dataset.h).
#ifndef TESSERA_WORKER_DATA_NPY_H_
#define TESSERA_WORKER_DATA_NPY_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "worker/data/table.h"

namespace tessera {

// As array.h says of all such files.
absl::StatusOr<Table> ReadNpy(const std::vector<std::string>& features_paths,
                              const std::vector<std::string>& labels_paths, const TableSpec& spec);

}  // namespace tessera

#endif  // TESSERA_WORKER_DATA_NPY_H_
