// Texts of characters and of bytes, as they are and as gzip (data_file.h).
//
//   input = spec bytes(1) size(2) train{size} test
//
// bytes: 1 where bytes are tokens. The test text has the characters of the training text, or is refused.
#include <optional>

#include "tests/fuzz/data_file.h"
#include "worker/data/text.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tessera;
  FuzzInput input(data, size);
  DataFile file = TakeDataFile(&input);
  const bool bytes = input.Bit();
  const std::string train = WriteDataFile(file, input.Piece(), 0);
  const std::string test = WriteDataFile(file, input.rest(), 1);
  if (bytes) file.spec.classes = kByteTokens;
  std::optional<Characters> characters;
  const auto read = [&](const std::string& path) {
    return bytes ? ReadBytes({path}, file.spec) : ReadCharacters({path}, file.spec, &characters);
  };
  file.spec.trains = true;
  CheckTable(read(train), file.spec);
  file.spec.trains = false;
  CheckTable(read(test), file.spec);
  return 0;
}
