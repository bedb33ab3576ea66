// checkpoint.directory of a simulated job: what is in it, whoever wrote it and whoever has died since.
#ifndef TESSERA_TESTS_SIM_SIM_FOLDER_H_
#define TESSERA_TESTS_SIM_SIM_FOLDER_H_

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/base/ids.h"
#include "common/checkpoint/manifest.h"
#include "proto/coordinator.pb.h"
#include "server/control/checkpoints.h"

namespace tessera {

// As CheckpointDirectory and the files of it, without bytes: every step is done at once, and what a process
// had not finished when it died is not there.
class SimFolder {
 public:
  explicit SimFolder(int64_t keep) : keep_(keep) {}

  struct File {
    CheckpointFile listed;
    // A server's: values, then the rule's states.
    std::vector<std::vector<float>> arrays;
    // As the checker knows them.
    uint64_t copy = 0;
    // A worker's, whose arrays are what its codec held back, by parameter.
    MemberId member;
    std::vector<float> learned;
    v1::Progress progress;
    bool evaluation_due = false;
  };
  struct Whole {
    Manifest manifest;
    std::map<std::string, File> files;
  };

  // Hears of every checkpoint that has got its name.
  void SetListener(std::function<void(const Whole&)> on_whole) { on_whole_ = std::move(on_whole); }

  // Into the folder that was begun for `step`, beside what others write there under the same name. Fills in
  // `listed` but for its name.
  //   kNotFound  there is no such folder
  absl::StatusOr<CheckpointFile> Write(uint64_t step, File file);
  // As CheckpointKeeper::Perform.
  absl::Status Perform(const DiskTask& task);
  // As Checkpoint::Open and VerifySums.
  //   kNotFound         there is none of this step
  //   kInvalidArgument  a file is not the one that the manifest lists
  absl::StatusOr<const Whole*> Open(uint64_t step) const;

 private:
  using Files = std::map<std::string, File>;

  bool Has(const Manifest& manifest) const;
  absl::Status Commit(const Manifest& manifest, uint64_t begun);
  void Prune(uint64_t newest);

  const int64_t keep_;
  std::function<void(const Whole&)> on_whole_;
  uint64_t writes_ = 0;
  // By the step in the folder's name; the files by WrittenName.
  std::map<uint64_t, Files> partial_;
  std::map<uint64_t, Whole> whole_;
};

}  // namespace tessera

#endif  // TESSERA_TESTS_SIM_SIM_FOLDER_H_
