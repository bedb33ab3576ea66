// What the targets of data readers have in common: a file on the disk, and what a table must be.
//
//   input   = spec content
//   spec    = features(1) classes(1) flags(1)       a byte each; 0 counts as 1
//   flags   = 1: rows may have sets of classes     2: other workers have other files
//             4: the content is gzip as it is       8: the content is compressed first
//             16: values stay on disk, where the format can
#ifndef TESSERA_TESTS_FUZZ_DATA_FILE_H_
#define TESSERA_TESTS_FUZZ_DATA_FILE_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "tests/fuzz/fuzz_input.h"
#include "worker/data/table.h"

namespace tessera {

// Values and labels that a reader may make of one input.
constexpr int64_t kFuzzTableBytes = int64_t{1} << 20;

struct DataFile {
  TableSpec spec;
  bool gzip = false;
  bool compress = false;
};

DataFile TakeDataFile(FuzzInput* input);

// Writes `content` as `file` says and returns its path, which ends in .gz where it is gzip. The next
// file of the same number takes its place.
std::string WriteDataFile(const DataFile& file, absl::string_view content, int number = 0);

// Aborts unless the table is what table.h promises, within the spec, or there is an error that says
// something.
void CheckTable(const absl::StatusOr<Table>& table, const TableSpec& spec);

}  // namespace tessera

#endif  // TESSERA_TESTS_FUZZ_DATA_FILE_H_
