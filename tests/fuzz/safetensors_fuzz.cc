// A safetensors file: opened, and every tensor that it says it has read whole.
#include <vector>

#include "common/base/check.h"
#include "common/checkpoint/safetensors_reader.h"
#include "tests/fuzz/scratch_file.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tessera;
  const std::string path =
      WriteScratchFile("safetensors", {reinterpret_cast<const char*>(data), size});
  const auto reader = SafetensorsReader::Open(path);
  if (!reader.ok()) {
    TESSERA_CHECK(!reader.status().message().empty());
    return 0;
  }
  int64_t total = 0;
  for (const TensorSpec& tensor : (*reader)->tensors()) {
    // Offsets fill the file: together the tensors are no more than that.
    total += tensor.bytes();
    TESSERA_CHECK(total <= static_cast<int64_t>(size));
    std::vector<char> bytes(static_cast<size_t>(tensor.bytes()));
    TESSERA_CHECK((*reader)->Read(tensor, 0, tensor.bytes(), bytes.data()).ok());
    TESSERA_CHECK((*reader)->Find(tensor.name) == &tensor);
  }
  // What was read can be written, and says the same.
  const auto text = FormatTensorHeader((*reader)->tensors(), (*reader)->metadata());
  TESSERA_CHECK(text.ok());
  const auto again = ParseTensorHeader("again", text->substr(kTensorLengthBytes), total);
  TESSERA_CHECK(again.ok() && again->tensors.size() == (*reader)->tensors().size());
  TESSERA_CHECK(again->metadata == (*reader)->metadata());
  return 0;
}
