// A checkpoint that is there, to be read from.
#ifndef TESSERA_COMMON_CHECKPOINT_CHECKPOINT_H_
#define TESSERA_COMMON_CHECKPOINT_CHECKPOINT_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "common/checkpoint/manifest.h"
#include "common/checkpoint/safetensors_reader.h"

namespace tessera {

// Brings a file of a checkpoint into its folder. OK: it is there, with the size and the sum of the manifest.
// kCancelled: `goes_on`, which may be empty, said no.
using BringFile =
    std::function<absl::Status(const CheckpointFile& file, const std::function<bool()>& goes_on)>;

// Reads the parameters and states of a checkpoint by rows, wherever they lie. Any thread.
class Checkpoint {
 public:
  // The folder's manifest, and the headers of the shards' files: every tensor has the shape that the
  // manifest says. No values are read.
  //   kInvalidArgument  something is broken; the message says what
  //   kNotFound         a file is missing; and FileError's other codes
  static absl::StatusOr<std::unique_ptr<Checkpoint>> Open(const std::string& path);
  // The folder's manifest alone, where other files may be missing. Each is brought by `bring` before it is read, as
  // late as in VerifyRows, ReadRows and OpenWorker, which have its codes, too.
  static absl::StatusOr<std::unique_ptr<Checkpoint>> OpenParts(const std::string& path,
                                                               BringFile bring);

  // Reads every file and compares its sum with the manifest's: kInvalidArgument names one that
  // differs.
  absl::Status VerifySums() const;
  // Rows whose files VerifyRows reads, to compare their sums with the manifest's as VerifySums does for all files.
  // kCancelled: `goes_on` said no, which is asked at every MiB.
  struct Rows {
    int64_t parameter = 0;
    int64_t begin = 0;
    int64_t end = 0;
  };
  absl::Status VerifyRows(const std::vector<Rows>& rows,
                          const std::function<bool()>& goes_on) const;

  const std::string& path() const { return path_; }
  const Manifest& manifest() const { return manifest_; }

  // Rows [row_begin, row_end) of parameter `parameter` (of the manifest's), row-major; of its state
  // `state` where that is not -1. They are there.
  absl::Status ReadRows(int64_t parameter, int64_t state, int64_t row_begin, int64_t row_end,
                        float* out) const;

  // Opens what worker `rank` saved; nullptr where it saved nothing.
  absl::StatusOr<std::unique_ptr<SafetensorsReader>> OpenWorker(uint64_t rank) const;

 private:
  Checkpoint(std::string path, BringFile bring)
      : path_(std::move(path)), bring_(std::move(bring)) {}
  absl::Status ReadManifest();
  absl::StatusOr<std::unique_ptr<SafetensorsReader>> OpenShard(int64_t shard) const;
  // The shard's file, opened when it is first wanted.
  absl::StatusOr<const SafetensorsReader*> Shard(int64_t shard) const;
  absl::Status VerifyFile(const CheckpointFile& file, const std::function<bool()>& goes_on) const;
  std::string PathOf(const std::string& file) const { return path_ + "/" + file; }

  const std::string path_;
  const BringFile bring_;  // empty: all files are there
  Manifest manifest_;
  mutable absl::Mutex mutex_;
  // One for each shard; nullptr: not opened yet.
  mutable std::vector<std::unique_ptr<SafetensorsReader>> shards_ ABSL_GUARDED_BY(mutex_);
};

// The path of the checkpoint of `step` among those in `directory`; or `directory` itself, where that is one.
std::string CheckpointPath(const std::string& directory, uint64_t step);

// The tensors of a shard's file in the order in which they are written: the parameters, then state by
// state. Those of no rows are left out.
std::vector<TensorSpec> ShardTensors(const Manifest& manifest, int64_t shard);

}  // namespace tessera

#endif  // TESSERA_COMMON_CHECKPOINT_CHECKPOINT_H_
