// CIFAR's binary records, as they are and as gzip (data_file.h). The first two flags choose CIFAR-100's labels.
#include "tests/fuzz/data_file.h"
#include "worker/data/cifar.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tessera;
  FuzzInput input(data, size);
  DataFile file = TakeDataFile(&input);
  file.spec.features = 3072;  // There is no other size.
  const CifarLabels labels = file.spec.class_sets    ? CifarLabels::kFine
                             : file.spec.local_files ? CifarLabels::kCoarse
                                                     : CifarLabels::kOne;
  CheckTable(ReadCifar({WriteDataFile(file, input.rest())}, file.spec, labels), file.spec);
  return 0;
}
