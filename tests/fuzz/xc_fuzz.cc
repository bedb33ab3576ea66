// The Extreme Classification Repository's text, as they are and as gzip (data_file.h).
#include "tests/fuzz/data_file.h"
#include "worker/data/xc.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tessera;
  FuzzInput input(data, size);
  DataFile file = TakeDataFile(&input);
  CheckTable(ReadXc({WriteDataFile(file, input.rest())}, file.spec), file.spec);
  return 0;
}
