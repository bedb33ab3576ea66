// The folder in which a job keeps its checkpoints (common/checkpoint/manifest.h says what is in it).
//
// A checkpoint comes into being in these steps, each on the disk before the next begins:
//   1. the folder partial-step-N is made
//   2. every file is written into it and synced, by whoever has the values, under a name that tells it from
//      what anybody else writes in its place (WrittenName)
//   3. the files that the manifest lists get their names there, and whatever else is in the folder is removed:
//      it is of processes that were given up
//   4. the manifest is written and synced, then the folder itself
//   5. the folder is renamed to step-N, and the directory is synced
//   6. once it is known that the job would go on from this one, each of the checkpoints beyond the newest
//      `keep` is renamed to partial-..., then removed
// So a process may be killed, or the power fail, at any time: there is nothing named step-* but whole
// checkpoints, and the newest of them stays until a newer one is whole. What begins with partial-* is
// removed at the next Begin. Steps 3 to 5 may be taken again from any place where they ended. A process that was
// given up and writes all the same has no name to take: its file, or the folder that it looks for, is gone.
#ifndef TESSERA_SERVER_CHECKPOINT_CHECKPOINT_DIRECTORY_H_
#define TESSERA_SERVER_CHECKPOINT_CHECKPOINT_DIRECTORY_H_

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/checkpoint/checkpoint.h"
#include "common/checkpoint/manifest.h"

namespace tessera {

// Used by the one process that takes the steps above, but for the second. One thread.
class CheckpointDirectory {
 public:
  // What a folder has of a checkpoint: all files, or, on one of several disks, those that are kept there.
  enum class Extent { kWhole, kHeld };

  // Makes the folder, but not those above it, and tries to write. FileError's codes. Leftovers are removed, unless
  // the job `goes_on`: it may want to commit what is in one of them. The next Begin removes the others.
  static absl::StatusOr<std::unique_ptr<CheckpointDirectory>> Open(std::string path, int64_t keep,
                                                                   bool goes_on = false,
                                                                   Extent extent = Extent::kWhole);

  // Step 1: the folder for the files. Leftovers of others are removed first.
  absl::StatusOr<std::string> Begin(uint64_t step);
  // Steps 3 to 5. All of manifest.files lie in the folder that Begin made for `begun`, complete.
  //   kFailedPrecondition  one of them is not there (but with kHeld) or has another size: this is not the
  //                        folder in which it was written
  //   kAlreadyExists       there is another whole checkpoint of this step
  // On an error nothing has come into being, and the folder is still there.
  absl::Status Commit(const Manifest& manifest, uint64_t begun);
  absl::Status Commit(const Manifest& manifest) { return Commit(manifest, manifest.step); }
  // Step 6: removes old checkpoints, where `newest` is the step of the newest. Only the log tells of an error.
  void Prune(uint64_t newest);
  // Gives up what Begin began for `step`, and frees the disk. If it became the whole checkpoint of `committed`
  // meanwhile, that is removed, too: its job was restored behind it, and would find its name taken. A manifest
  // without files stands for none.
  void Abandon(uint64_t step, const Manifest& committed);

  const std::string& path() const { return path_; }

 private:
  CheckpointDirectory(std::string path, int64_t keep, Extent extent)
      : path_(std::move(path)), keep_(keep), extent_(extent) {}
  // The checkpoint in a folder of this one, as far as it has to be there.
  absl::StatusOr<std::unique_ptr<Checkpoint>> OpenThere(const std::string& folder) const;
  absl::Status RemoveLeftovers(const std::string& except);
  absl::Status MoveAway(const std::string& name);
  // Step 3: gives the files the names that the manifest has.
  absl::Status NameFiles(const std::string& folder, const Manifest& manifest);
  // Whether there is a whole checkpoint of this very manifest.
  bool Has(const Manifest& manifest) const;
  absl::Status RemoveOld(uint64_t newest);
  std::string PathOf(const std::string& name) const { return path_ + "/" + name; }

  const std::string path_;
  const int64_t keep_;
  const Extent extent_;
};

// A folder that has a checkpoint's name.
struct ListedCheckpoint {
  uint64_t step = 0;
  std::string path;
  // OK, or what is broken in it.
  absl::Status status;
};

// The checkpoints in a folder, newest first. `verify`: all bytes are read and compared with their sums. The list
// is empty where there is no such folder.
absl::StatusOr<std::vector<ListedCheckpoint>> ListCheckpoints(const std::string& path, bool verify);

// The newest whole checkpoint. `broken` gets those that were passed over on the way. kNotFound: there is none.
absl::StatusOr<std::unique_ptr<Checkpoint>> NewestCheckpoint(const std::string& path,
                                                             std::vector<ListedCheckpoint>* broken);
// The checkpoint in the folder `path`, read and compared with its sums; where `path` has checkpoints, the
// newest, as above.
absl::StatusOr<std::unique_ptr<Checkpoint>> NamedCheckpoint(const std::string& path,
                                                            std::vector<ListedCheckpoint>* broken);

}  // namespace tessera

#endif  // TESSERA_SERVER_CHECKPOINT_CHECKPOINT_DIRECTORY_H_
