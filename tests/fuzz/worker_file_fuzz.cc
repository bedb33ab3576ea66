// A worker's file of a checkpoint: read into arrays of a learner. What was read can be written, and reads the
// same; what is refused is refused in words; nothing beside the arrays is written.
//
//   input = the file
#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/base/check.h"
#include "common/checkpoint/model_facts.h"
#include "common/checkpoint/safetensors_reader.h"
#include "tests/fuzz/scratch_file.h"
#include "worker/checkpoint/worker_file.h"

namespace tessera {
namespace {

constexpr float kBefore = 77;
constexpr size_t kGuard = 4;

// What a small learner keeps, with room around every array that nobody writes in.
struct Kept {
  Kept() {
    for (const auto& [name, size] : {std::pair<const char*, size_t>{"state.momentum.w", 6},
                                     {"replica.b", 1},
                                     {"residual.0", 3}}) {
      Add(name, size, /*may_lack=*/false);
    }
    Add("codec", 2, /*may_lack=*/true);
    for (size_t i = 0; i < memory.size(); ++i) {
      state.arrays[i].values =
          absl::MakeSpan(memory[i].data() + kGuard, memory[i].size() - 2 * kGuard);
    }
    state.local_steps = &local_steps;
  }
  void Add(const char* name, size_t size, bool may_lack) {
    memory.emplace_back(size + 2 * kGuard, kBefore);
    state.arrays.push_back({name, {}, may_lack});
  }
  void CheckGuards() const {
    for (const std::vector<float>& array : memory) {
      for (size_t i = 0; i < kGuard; ++i) {
        TESSERA_CHECK(array[i] == kBefore && array[array.size() - 1 - i] == kBefore);
      }
    }
  }
  WorkerCopy Copy(const WorkerCursor& cursor) const {
    WorkerCopy copy;
    copy.cursor = cursor;
    copy.local_steps = local_steps;
    for (const PrivateState::Array& array : state.arrays) {
      copy.arrays.push_back({array.name, {array.values.begin(), array.values.end()}});
    }
    return copy;
  }

  std::vector<std::vector<float>> memory;
  uint64_t local_steps = 0;
  PrivateState state;
};

std::string Folder() {
  static const std::string* const folder =
      new std::string(std::filesystem::path(WriteScratchFile("worker", "")).parent_path());
  return *folder;
}

// What it says of the model is refused in words, or can be written and reads the same.
void TryFacts(const std::string& path) {
  const auto file = SafetensorsReader::Open(path);
  if (!file.ok()) return;
  const absl::StatusOr<std::optional<ModelFacts>> facts = ReadFacts(**file);
  TESSERA_CHECK(facts.ok() || !facts.status().message().empty());
  if (!facts.ok() || !facts->has_value()) return;
  WorkerCopy copy;
  copy.facts = **facts;
  const absl::StatusOr<CheckpointFile> written = WriteWorkerFile(Folder(), Rank(0), copy);
  TESSERA_CHECK(written.ok());
  const std::string again = Folder() + "/" + WrittenName(*written);
  const absl::StatusOr<std::optional<ModelFacts>> same =
      ReadFacts(**SafetensorsReader::Open(again));
  TESSERA_CHECK(same.ok() && (*same)->ReadsAs(copy.facts) &&
                (*same)->train_sum == copy.facts.train_sum &&
                (*same)->norm_constants.size() == copy.facts.norm_constants.size());
  std::filesystem::remove(again);
}

}  // namespace
}  // namespace tessera

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tessera;
  const std::string path = WriteScratchFile("worker", {reinterpret_cast<const char*>(data), size});
  TryFacts(path);
  Kept kept;
  const absl::StatusOr<WorkerCursor> cursor = ReadWorkerFile(path, kept.state);
  kept.CheckGuards();
  if (!cursor.ok()) {
    TESSERA_CHECK(!cursor.status().message().empty() && kept.local_steps == 0);
    return 0;
  }
  const absl::StatusOr<CheckpointFile> file =
      WriteWorkerFile(Folder(), Rank(0), kept.Copy(*cursor));
  TESSERA_CHECK(file.ok());
  const std::string written = Folder() + "/" + WrittenName(*file);
  Kept again;
  const absl::StatusOr<WorkerCursor> same = ReadWorkerFile(written, again.state);
  TESSERA_CHECK(same.ok() && OpenListed(written, *file).ok());
  TESSERA_CHECK(same->progress.step == cursor->progress.step &&
                same->progress.exchange == cursor->progress.exchange &&
                same->loss_count == cursor->loss_count &&
                same->evaluation_due == cursor->evaluation_due);
  const absl::StatusOr<CheckpointFile> second =
      WriteWorkerFile(Folder(), Rank(1), again.Copy(*same));
  TESSERA_CHECK(second.ok() && second->sum == file->sum);
  std::filesystem::remove(written);
  std::filesystem::remove(Folder() + "/" + WrittenName(*second));
  return 0;
}
