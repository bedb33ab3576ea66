// What a checkpoint's folder is made of, and what it was taken of.
//
//   <directory>/step-000000000400/        the number is the step's, so that names sort by age
//     manifest.json                       this, written last
//     shard-0-of-2.safetensors            what server 0 owns (common/layout/shard_map.h): of every
//     shard-1-of-2.safetensors              parameter its rows, under the parameter's name, and of every
//                                           state of the servers' rule, under "state.<i>.<parameter>"
//     worker-0.safetensors                what only worker 0 knows, where the method keeps such things
//
// While it is written the folder is "partial-step-000000000400"; whatever begins with "partial-" is
// nobody's. The files in it have their sums behind their names until the commit (WrittenName): who was
// given up may write a file of the same name, at any time, and it is another one.
// The manifest is a JSON object, whose keys are the fields below, and after them its own sum.
// Sums are XXH3, 64 bits.
#ifndef TESSERA_COMMON_CHECKPOINT_MANIFEST_H_
#define TESSERA_COMMON_CHECKPOINT_MANIFEST_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/layout/shard_map.h"

namespace tessera {

constexpr char kManifestName[] = "manifest.json";
constexpr int64_t kManifestBytesMax = int64_t{256} << 20;

// What a job that goes on counts from lies below these, and then never reaches the end of its numbers. As many
// steps as train.steps may ask for:
constexpr uint64_t kSavedStepEnd = uint64_t{1} << 40;
// Half of what exchanges may be numbered with (kExchangeEnd in common/consistency/plan.h); generations and
// members are no more.
constexpr uint64_t kSavedNumberEnd = uint64_t{1} << 39;
// The limit of versions, pushes and rows of a server. Those of 256 servers add up to less than 2^64.
constexpr uint64_t kSavedCountEnd = uint64_t{1} << 56;

struct CheckpointFile {
  // The file's name, without the folder.
  std::string name;
  int64_t bytes = 0;
  uint64_t sum = 0;
};

struct CheckpointParameter {
  std::string name;
  int64_t rows = 0;
  int64_t columns = 1;
  bool is_vector = false;
  // The number that an export multiplies the tensor's values by (common/keyset/mean_share.h).
  double export_factor = 1;
  // What the columns of a matrix are made of: channels, height and width for a convolution. Their product is
  // `columns`. Empty: nothing more is known of them.
  std::vector<int64_t> columns_are = {};
  // A vector of one entry whose tensor has no extents.
  bool is_scalar = false;
  // The servers that share its rows, of all that wrote the checkpoint; without `end`: all of them.
  Owners owners = {0, 0};

  Owners OwnersOf(int64_t shards) const {
    return owners.end == 0 ? Owners{0, static_cast<int>(shards)} : owners;
  }
  // The shape of a tensor that has so many of its rows.
  std::vector<int64_t> Shape(int64_t row_count) const;
  // The shape of a tensor that has all of them.
  std::vector<int64_t> WholeShape() const {
    return is_scalar ? std::vector<int64_t>() : Shape(rows);
  }
  // The tensor's rows and columns, even of a vector, for people.
  std::vector<int64_t> Extents() const;
};

// What the manifest says of one server. Servers are in the order of the shards.
struct CheckpointShard {
  uint64_t version = 0;
  // Rows that the server's updates were computed from.
  uint64_t examples = 0;
  uint64_t pushes = 0;
  uint64_t staleness_sum = 0;
  uint64_t staleness_max = 0;
  std::vector<uint64_t> staleness;
};

// A worker that took part.
struct CheckpointMember {
  uint64_t member = 0;
  uint64_t rank = 0;
  // Where the worker was: the last exchange that the checkpoint has of it, and the minibatches behind it.
  uint64_t exchange = 0;
  uint64_t step = 0;
};

struct Manifest {
  std::string job;
  std::string job_digest;
  // The text that the digest is made of (common/config/job_digest.h), which tells which keys differ.
  std::string job_text;
  std::string method;
  // The version of the program that wrote it.
  std::string version;
  uint64_t step = 0;
  // The last exchange that all parameters have; 0 where members advance on their own.
  uint64_t exchange = 0;
  uint64_t generation = 0;
  uint64_t layout_hash = 0;
  // Arrays of the parameters' size that the servers' rule keeps.
  int64_t states = 0;
  // The first so many of `parameters` are the model's; after them come those of averaged states.
  int64_t model_parameters = 0;
  std::vector<CheckpointParameter> parameters;
  std::vector<CheckpointShard> shards;
  std::vector<CheckpointMember> members;
  std::vector<CheckpointFile> files;
  // The part that the coordinator goes on from: a JSON object, of its own making.
  std::string coordinator = "{}";

  const CheckpointFile* FindFile(absl::string_view name) const;
  // Whether its members had exactly the ranks 0 to workers - 1.
  bool HasRanks(uint64_t workers) const;
};

std::string FormatManifest(const Manifest& manifest);
// XXH3 of what FormatManifest makes of it: the same checkpoint, wherever its folder is copied to. Never 0.
uint64_t SumOf(const Manifest& manifest);
// kFailedPrecondition, naming the checkpoint's `path`, where `sum` is another manifest's. 0: any.
absl::Status CheckSum(const Manifest& manifest, uint64_t sum, absl::string_view path);

// kInvalidArgument, naming `path` and the field, where `text` is no manifest that FormatManifest could
// have written: unknown or missing keys, wrong kinds, names that are no names of a checkpoint's files,
// numbers beyond their end, numbers of files that contradict each other, another sum.
absl::StatusOr<Manifest> ParseManifest(absl::string_view path, absl::string_view text);

// The name of a step's folder: "step-000000000400".
std::string StepFolderName(uint64_t step);
std::string PartialFolderName(uint64_t step);
constexpr char kPartialPrefix[] = "partial-";
// False where `name` is none that StepFolderName gives.
bool ParseStepFolderName(absl::string_view name, uint64_t* step);
std::string ShardFileName(int64_t shard, int64_t shard_count);
std::string WorkerFileName(uint64_t rank);
// Whose file it is, by its name; false where it is none of a checkpoint's.
struct FileOwner {
  bool is_worker = false;
  // The shard or the worker's rank.
  uint64_t rank = 0;
};
bool ParseFileName(absl::string_view name, FileOwner* owner);
// The name under which the bytes of `file` lie until the commit: "worker-0.safetensors.00a81c5dd5c2ab7e".
std::string WrittenName(const CheckpointFile& file);
std::string StateName(int64_t state, absl::string_view parameter);

}  // namespace tessera

#endif  // TESSERA_COMMON_CHECKPOINT_MANIFEST_H_
