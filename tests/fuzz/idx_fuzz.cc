// IDX files of features and of labels, as they are and as gzip.
//
//   input = spec (data_file.h) size(2) features{size} labels
#include "tests/fuzz/data_file.h"
#include "worker/data/idx.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tessera;
  FuzzInput input(data, size);
  const DataFile file = TakeDataFile(&input);
  const std::string features = WriteDataFile(file, input.Piece(), 0);
  const std::string labels = WriteDataFile(file, input.rest(), 1);
  CheckTable(ReadIdx({features}, {labels}, file.spec), file.spec);
  return 0;
}
