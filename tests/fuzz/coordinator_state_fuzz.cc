// What a coordinator goes on from: any kept state, as a file and as a message. It is refused in words, or the
// coordinator that goes on can be told anything, keeps what can be read again, and ends its job.
//
//   input = job(1) how(1) state's size(2) state (event(1) choices)*
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "common/base/check.h"
#include "server/checkpoint/state_file.h"
#include "tests/fuzz/coordinator_events.h"
#include "tests/fuzz/scratch_file.h"

namespace tessera {
namespace {

// What is no state as it was written is told from it, and is left where it is.
void ReadAsFile(absl::string_view bytes) {
  const std::string path = WriteScratchFile("state", bytes);
  const auto store = StateFile::Open(std::filesystem::path(path).parent_path().string());
  TESSERA_CHECK(store.ok());
  const auto read = (*store)->Read();
  TESSERA_CHECK(read.ok() ? read->has_value() : absl::IsDataLoss(read.status()));
  TESSERA_CHECK(std::filesystem::file_size(path) == bytes.size());
}

void PutRight(const FuzzJob& job, uint8_t how, v1::CoordinatorState* state) {
  if ((how & 2) == 0) return;
  state->set_format(1);
  state->set_job_digest(job.digest);
}

void GoOn(const FuzzJob& job, uint8_t how, absl::string_view bytes, FuzzInput* input) {
  v1::CoordinatorState state;
  if (!state.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) return;
  PutRight(job, how, &state);
  const absl::Time now = absl::FromUnixSeconds(1000);
  // As ServerControl does.
  ShiftTimes({now, kSteadyClock, now}, absl::Minutes(1), &state);
  absl::StatusOr<std::unique_ptr<Coordinator>> loaded = Coordinator::Load(job.facts, state);
  if (!loaded.ok()) {
    TESSERA_CHECK(absl::IsInvalidArgument(loaded.status()) && !loaded.status().message().empty());
    return;
  }
  CoordinatorEvents events(job, input, *std::move(loaded), now);
  events.Restart();
  if ((how & 4) != 0) events.Begin();
  events.Run();
}

}  // namespace
}  // namespace tessera

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tessera;
  FuzzInput input(data, size);
  const std::vector<FuzzJob>& jobs = FuzzJobs();
  const FuzzJob& job = jobs[input.Below(jobs.size())];
  const uint8_t how = input.Byte();
  const absl::string_view bytes = input.Piece();
  if (how % 16 == 1) {
    ReadAsFile(bytes);
  } else {
    GoOn(job, how, bytes, &input);
  }
  return 0;
}
