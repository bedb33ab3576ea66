// What one server's disk has of a job's checkpoints, where each server has a disk of its own (checkpoint.store:
// own_disks). The folders are those of checkpoint_directory.h, with the manifest in each and some of its files.
//
// Processes of one job on one machine may have the same folder: each step is then taken by several of them, one after
// the other, and the second finds it done.
#ifndef TESSERA_SERVER_CHECKPOINT_HELD_CHECKPOINTS_H_
#define TESSERA_SERVER_CHECKPOINT_HELD_CHECKPOINTS_H_

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "common/checkpoint/durable_file.h"
#include "common/checkpoint/manifest.h"
#include "common/checkpoint/part_file.h"
#include "proto/checkpoint_store.pb.h"
#include "server/checkpoint/checkpoint_directory.h"

namespace tessera {

// The most files that are being written here at once for others.
constexpr size_t kHeldWritersMax = 512;

// Any thread; calls wait for the disk, and for one another.
class HeldCheckpoints {
 public:
  struct Options {
    // checkpoint.directory; empty: none are written.
    std::string directory;
    // The folder of the checkpoints that checkpoint.restore names; empty: none.
    std::string restore;
    int64_t keep = 1;
    // No file of the job is longer.
    int64_t file_bytes_max = 0;
  };
  // Makes the folders, but not those above them. DurableFile's codes.
  static absl::StatusOr<std::unique_ptr<HeldCheckpoints>> Open(Options options);
  ~HeldCheckpoints();

  // The steps of CheckpointDirectory.
  absl::Status Begin(uint64_t folder_step);
  // The manifest lies in the folder, or is that of the whole checkpoint of `step`, with these bytes.
  absl::Status Commit(uint64_t folder_step, uint64_t step, uint64_t manifest_file_sum);
  absl::Status Commit(const Manifest& manifest, uint64_t folder_step);
  // `manifest_sum` is SumOf the whole checkpoint that goes, too; 0: none.
  absl::Status Abandon(uint64_t folder_step, uint64_t step, uint64_t manifest_sum);
  absl::Status Prune(uint64_t newest);

  // The next piece of a file that somebody else sends. A piece that came before is taken for the same.
  //   kInvalidArgument  no such name, not the next piece, more bytes than any file of the job has, another sum
  //   kUnavailable      too many files are being written
  absl::Status Write(const v1::WritePieceRequest& piece);
  // A file that this process writes.
  OpenPart Parts() const { return PartsIn(options_.directory); }

  // All that is held, the newest first, all bytes read.
  absl::StatusOr<v1::ListCheckpointsReply> List() const;
  //   kNotFound  there is no such checkpoint, or it has no such file here
  absl::StatusOr<v1::ReadPieceReply> Read(const v1::ReadPieceRequest& request);

  // The folder of a whole checkpoint: in the folder of checkpoint.restore or the other one.
  //   kNotFound  it is not here
  absl::StatusOr<std::string> FolderOf(bool from_restore, uint64_t step, uint64_t manifest_sum);
  // Makes the folder, with nothing in it but the manifest: files may be brought into it. One of another checkpoint of
  // this step gives way.
  absl::StatusOr<std::string> Adopt(bool from_restore, const Manifest& manifest);

 private:
  // A file that comes in pieces.
  struct Writer;
  // A whole checkpoint, as it was found.
  struct Found {
    std::string folder;
    std::set<std::string> files;
  };

  explicit HeldCheckpoints(Options options);
  const std::string& DirectoryOf(bool from_restore) const {
    return from_restore ? options_.restore : options_.directory;
  }
  absl::Status CheckWrites() const;
  absl::StatusOr<Found> Find(const std::string& directory, uint64_t step,
                             uint64_t manifest_sum) const;
  absl::Status CommitHeld(const Manifest& manifest, uint64_t folder_step)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void DropWriters(uint64_t except) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const Options options_;
  absl::Mutex mutex_;
  std::unique_ptr<CheckpointDirectory> directory_ ABSL_GUARDED_BY(mutex_);  // nullptr: none
  std::map<uint64_t, std::unique_ptr<Writer>> writers_ ABSL_GUARDED_BY(mutex_);
  // By step and sum of the manifest, as whoever reads asks for many pieces.
  std::map<std::pair<uint64_t, uint64_t>, Found> found_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace tessera

#endif  // TESSERA_SERVER_CHECKPOINT_HELD_CHECKPOINTS_H_
