// CIFAR-10's binary records, as they are and as gzip (data_file.h).
#include "tests/fuzz/data_file.h"
#include "worker/data/cifar.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tessera;
  FuzzInput input(data, size);
  DataFile file = TakeDataFile(&input);
  file.spec.features = 3072;  // There is no other size.
  CheckTable(ReadCifar({WriteDataFile(file, input.rest())}, file.spec), file.spec);
  return 0;
}
