// Numbered tokens, as they are and as gzip (data_file.h).
//
//   input = spec type(1) content          type: 1 for tokens of 32 bits in rows that train
#include "tests/fuzz/data_file.h"
#include "worker/data/tokens.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tessera;
  FuzzInput input(data, size);
  DataFile file = TakeDataFile(&input);
  const TokenType type = input.Bit() ? TokenType::kUint32 : TokenType::kUint16;
  file.spec.trains = type == TokenType::kUint32;
  CheckTable(ReadTokens({WriteDataFile(file, input.rest())}, file.spec, type), file.spec);
  return 0;
}
