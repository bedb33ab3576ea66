// Comma-separated values, as they are and as gzip (data_file.h).
#include "tests/fuzz/data_file.h"
#include "worker/data/csv.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tessera;
  FuzzInput input(data, size);
  DataFile file = TakeDataFile(&input);
  CheckTable(ReadCsv({WriteDataFile(file, input.rest())}, file.spec), file.spec);
  return 0;
}
