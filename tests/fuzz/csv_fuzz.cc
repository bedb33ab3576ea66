// Comma-separated values, as they are and as gzip (data_file.h), twice, as training and test files are read. The first
// two flags choose the label's field.
#include "tests/fuzz/data_file.h"
#include "worker/data/csv.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tessera;
  FuzzInput input(data, size);
  DataFile file = TakeDataFile(&input);
  CsvColumns columns(file.spec.class_sets ? "first" : file.spec.local_files ? "label" : "");
  const std::string path = WriteDataFile(file, input.rest());
  for (int i = 0; i < 2; ++i) CheckTable(ReadCsv({path}, file.spec, &columns), file.spec);
  return 0;
}
