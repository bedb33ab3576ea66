// LIBSVM text, as it is and as gzip (data_file.h): a training file, and the same as a test file.
#include <optional>

#include "common/base/check.h"
#include "tests/fuzz/data_file.h"
#include "worker/data/libsvm.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tessera;
  FuzzInput input(data, size);
  const DataFile file = TakeDataFile(&input);
  const std::string path = WriteDataFile(file, input.rest());
  std::optional<LabelMap> labels;
  const absl::StatusOr<Table> train = ReadLibsvm({path}, file.spec, labels);
  CheckTable(train, file.spec);
  if (!train.ok()) return 0;
  TESSERA_CHECK(labels.has_value() || file.spec.class_sets);
  const absl::StatusOr<Table> test = ReadLibsvm({path}, file.spec, labels);
  TESSERA_CHECK(test.ok());
  CheckTable(test, file.spec);
  return 0;
}
