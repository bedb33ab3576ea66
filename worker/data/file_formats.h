// The formats of data files that this build reads.
#ifndef TESSERA_WORKER_DATA_FILE_FORMATS_H_
#define TESSERA_WORKER_DATA_FILE_FORMATS_H_

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "worker/data/file_format.h"

namespace tessera {

// All of them, those first whose files are told by the most: the first that says of a file that it is its own has it.
absl::Span<const FileFormat* const> FileFormats();

// The format of this name, which must be one of the table's: the job reader has refused all others.
const FileFormat& FileFormatOf(absl::string_view name);

}  // namespace tessera

#endif  // TESSERA_WORKER_DATA_FILE_FORMATS_H_
