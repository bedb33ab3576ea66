// A checkpoint's folder: a manifest and the shards' files, opened and read whole. It is refused in words, or
// has all rows that its manifest says.
//
//   input = count(1) sums(1) manifest_bytes(2) manifest (file_bytes(2) file)*
//   sums    bit 0: the manifest's own sum is put right (else nothing but the corpus would come far)
#include <xxhash.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include "common/base/check.h"
#include "common/checkpoint/checkpoint.h"
#include "common/checkpoint/strict_json.h"
#include "tests/fuzz/fuzz_input.h"
#include "tests/fuzz/scratch_file.h"

namespace tessera {
namespace {

constexpr int64_t kFilesMax = 3;

// As manifest.cc has it: the text ends with `<16 digits>"\n}\n`, and the sum is of zeros there.
void PutSumRight(std::string* text) {
  const size_t from_end = 16 + 4;
  if (text->size() < from_end) return;
  const size_t at = text->size() - from_end;
  text->replace(at, 16, 16, '0');
  text->replace(at, 16, Hex64(XXH3_64bits(text->data(), text->size())));
}

// Every row of every parameter and state. Files have no more bytes than there were to write.
void ReadAll(const Checkpoint& checkpoint, int64_t bytes_written) {
  const Manifest& manifest = checkpoint.manifest();
  for (size_t p = 0; p < manifest.parameters.size(); ++p) {
    const CheckpointParameter& parameter = manifest.parameters[p];
    if (parameter.columns == 0) continue;
    TESSERA_CHECK(parameter.rows <= bytes_written / 4 / parameter.columns);
    std::vector<float> values(static_cast<size_t>(parameter.rows * parameter.columns));
    for (int64_t state = -1; state < manifest.states; ++state) {
      TESSERA_CHECK(
          checkpoint.ReadRows(static_cast<int64_t>(p), state, 0, parameter.rows, values.data())
              .ok());
      if (parameter.rows * parameter.columns == 0) break;
    }
  }
}

}  // namespace
}  // namespace tessera

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tessera;
  FuzzInput input(data, size);
  const int64_t count = 1 + static_cast<int64_t>(input.Below(kFilesMax));
  const bool puts_right = input.Bit();
  std::string text(input.Piece());
  if (puts_right) PutSumRight(&text);
  const std::filesystem::path folder =
      std::filesystem::path(WriteScratchFile(kManifestName, text)).parent_path();
  std::vector<std::string> files;
  for (int64_t shard = 0; shard < count; ++shard) {
    files.push_back(WriteScratchFile(ShardFileName(shard, count), input.Piece()));
  }
  const auto checkpoint = Checkpoint::Open(folder);
  if (checkpoint.ok()) {
    ReadAll(**checkpoint, static_cast<int64_t>(size));
    const absl::Status sums = (*checkpoint)->VerifySums();
    TESSERA_CHECK(sums.ok() || !sums.message().empty());
    const auto worker = (*checkpoint)->OpenWorker(0);
    TESSERA_CHECK(worker.ok() || !worker.status().message().empty());
  } else {
    TESSERA_CHECK(!checkpoint.status().message().empty());
  }
  for (const std::string& file : files) std::filesystem::remove(file);
  return 0;
}
