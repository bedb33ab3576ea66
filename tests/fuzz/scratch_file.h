// Files for targets whose input is read from the disk.
#ifndef TESSERA_TESTS_FUZZ_SCRATCH_FILE_H_
#define TESSERA_TESTS_FUZZ_SCRATCH_FILE_H_

#include <string>

#include "absl/strings/string_view.h"

namespace tessera {

// Writes a file of this name and returns its path. It lies in a folder of the process, which goes with
// it; the next one of the name takes its place.
std::string WriteScratchFile(absl::string_view name, absl::string_view content);

}  // namespace tessera

#endif  // TESSERA_TESTS_FUZZ_SCRATCH_FILE_H_
