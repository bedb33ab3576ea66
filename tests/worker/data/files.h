// A small language for tests of readers: bytes of the formats, files in the test's own directory.
#ifndef TESSERA_TESTS_WORKER_DATA_FILES_H_
#define TESSERA_TESTS_WORKER_DATA_FILES_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "worker/data/table.h"

namespace tessera {

// Writes the file, replacing one of the same name, and returns its path.
std::string WriteFile(const std::string& name, absl::string_view bytes);

// One gzip member.
std::string Gzip(absl::string_view bytes);

std::string BigEndian(uint64_t value, int bytes);

std::string LittleEndian(uint64_t value, int bytes);

// An IDX file of a type (8: u8) with these sizes; `values` are bytes as they stand in the file.
std::string Idx(int type, const std::vector<uint32_t>& sizes, absl::string_view values);

// A NumPy file of version 1.0 with what np.save writes for this descr and shape, such as "<f4" and "(2, 2)"; `values`
// are bytes as they stand in the file.
std::string Npy(absl::string_view descr, absl::string_view shape, absl::string_view values);

// The same with any text for a header, and any version.
std::string NpyOfHeader(absl::string_view header, absl::string_view values, int version = 1);

// One CIFAR record whose pixel i is (first + i) mod 256.
std::string CifarRecord(int label, int first);

inline std::string Text(const absl::Status& status) { return std::string(status.message()); }

// A row of a table with one class each, values as float whatever they are stored as.
std::vector<float> Row(const Table& table, int64_t row);

}  // namespace tessera

#endif  // TESSERA_TESTS_WORKER_DATA_FILES_H_
