#include "common/checkpoint/checkpoint.h"

#include <sys/stat.h>

#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/checkpoint/durable_file.h"
#include "common/checkpoint/slices.h"

namespace tessera {
namespace {

constexpr int64_t kFloatBytes = sizeof(float);

}  // namespace

std::string CheckpointPath(const std::string& directory, uint64_t step) {
  struct stat info;
  // A folder with a manifest is a checkpoint itself; any other one holds a folder for each step.
  const bool is_one = stat(absl::StrCat(directory, "/", kManifestName).c_str(), &info) == 0;
  return is_one ? directory : absl::StrCat(directory, "/", StepFolderName(step));
}

std::vector<TensorSpec> ShardTensors(const Manifest& manifest, int64_t shard) {
  const int64_t shards = static_cast<int64_t>(manifest.shards.size());
  std::vector<TensorSpec> tensors;
  // Parameters come before their states (-1), each in the order of the manifest: a writer appends values in this order.
  for (int64_t state = -1; state < manifest.states; ++state) {
    for (const CheckpointParameter& parameter : manifest.parameters) {
      const ShardRows rows = RowsOf(parameter.rows, shard, parameter.OwnersOf(shards));
      // A shard that owns no values of a parameter has no tensor of it.
      if ((rows.end - rows.begin) * parameter.columns == 0) continue;
      TensorSpec tensor;
      tensor.name = state < 0 ? parameter.name : StateName(state, parameter.name);
      tensor.dtype = "F32";
      tensor.shape = parameter.Shape(rows.end - rows.begin);
      tensors.push_back(std::move(tensor));
    }
  }
  return tensors;
}

absl::Status Checkpoint::ReadManifest() {
  const std::string manifest_path = PathOf(kManifestName);
  TESSERA_ASSIGN_OR_RETURN(const std::string text, ReadWholeFile(manifest_path, kManifestBytesMax));
  TESSERA_ASSIGN_OR_RETURN(manifest_, ParseManifest(manifest_path, text));
  absl::MutexLock lock(&mutex_);
  shards_.resize(manifest_.shards.size());
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<Checkpoint>> Checkpoint::Open(const std::string& path) {
  std::unique_ptr<Checkpoint> checkpoint(new Checkpoint(path, nullptr));
  TESSERA_RETURN_IF_ERROR(checkpoint->ReadManifest());
  const auto count = static_cast<int64_t>(checkpoint->manifest_.shards.size());
  for (int64_t shard = 0; shard < count; ++shard) {
    TESSERA_RETURN_IF_ERROR(checkpoint->Shard(shard).status());
  }
  return checkpoint;
}

absl::StatusOr<std::unique_ptr<Checkpoint>> Checkpoint::OpenParts(const std::string& path,
                                                                  BringFile bring) {
  std::unique_ptr<Checkpoint> checkpoint(new Checkpoint(path, std::move(bring)));
  TESSERA_RETURN_IF_ERROR(checkpoint->ReadManifest());
  return checkpoint;
}

absl::StatusOr<const SafetensorsReader*> Checkpoint::Shard(int64_t shard) const {
  absl::MutexLock lock(&mutex_);
  std::unique_ptr<SafetensorsReader>& reader = shards_[static_cast<size_t>(shard)];
  if (reader == nullptr) {
    TESSERA_ASSIGN_OR_RETURN(reader, OpenShard(shard));
  }
  return reader.get();
}

absl::StatusOr<std::unique_ptr<SafetensorsReader>> Checkpoint::OpenShard(int64_t shard) const {
  const int64_t count = static_cast<int64_t>(manifest_.shards.size());
  const CheckpointFile& file = *manifest_.FindFile(ShardFileName(shard, count));
  TESSERA_ASSIGN_OR_RETURN(std::unique_ptr<SafetensorsReader> reader,
                           SafetensorsReader::Open(PathOf(file.name)));
  // The size alone tells most broken copies, and costs no reading.
  if (reader->file_bytes() != file.bytes) {
    return absl::InvalidArgumentError(absl::StrCat("\"", reader->path(), "\": is ",
                                                   reader->file_bytes(), " bytes, want ",
                                                   file.bytes, " as the manifest says"));
  }
  // Everything is compared before a value is read, so that a checkpoint is either usable as a whole or refused.
  const std::vector<TensorSpec> wanted = ShardTensors(manifest_, shard);
  if (wanted.size() != reader->tensors().size()) {
    return absl::InvalidArgumentError(absl::StrCat("\"", reader->path(), "\": has ",
                                                   reader->tensors().size(), " tensors, want ",
                                                   wanted.size(), " as the manifest says"));
  }
  for (const TensorSpec& tensor : wanted) {
    TESSERA_RETURN_IF_ERROR(reader->Want(tensor.name, tensor.dtype, tensor.shape).status());
  }
  return reader;
}

// All bytes are read for the sum, which may take minutes for a large shard; `goes_on` ends it early.
absl::Status Checkpoint::VerifyFile(const CheckpointFile& file,
                                    const std::function<bool()>& goes_on) const {
  // Whoever brings a file has compared its sum.
  if (bring_) return bring_(file, goes_on);
  TESSERA_ASSIGN_OR_RETURN(const uint64_t sum, SumOfFile(PathOf(file.name), file.bytes, goes_on));
  if (sum == file.sum) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "\"", PathOf(file.name), "\": sum is ", absl::Hex(sum, absl::kZeroPad16), ", want ",
      absl::Hex(file.sum, absl::kZeroPad16), "; its bytes are not the ones that were written"));
}

absl::Status Checkpoint::VerifySums() const {
  for (const CheckpointFile& file : manifest_.files) {
    TESSERA_RETURN_IF_ERROR(VerifyFile(file, nullptr));
  }
  return absl::OkStatus();
}

absl::Status Checkpoint::VerifyRows(const std::vector<Rows>& rows,
                                    const std::function<bool()>& goes_on) const {
  const auto count = static_cast<int64_t>(manifest_.shards.size());
  // A shard's file is verified once, however many runs of rows lie in it: its sum takes in all of its bytes.
  std::set<int64_t> shards;
  for (const Rows& wanted : rows) {
    const CheckpointParameter& spec = manifest_.parameters[static_cast<size_t>(wanted.parameter)];
    const Owners owners = spec.OwnersOf(count);
    for (const SavedRows& run : SavedRowsOf(spec.rows, owners, wanted.begin, wanted.end)) {
      shards.insert(run.shard);
    }
  }
  for (const int64_t shard : shards) {
    TESSERA_RETURN_IF_ERROR(VerifyFile(*manifest_.FindFile(ShardFileName(shard, count)), goes_on));
  }
  return absl::OkStatus();
}

absl::Status Checkpoint::ReadRows(int64_t parameter, int64_t state, int64_t row_begin,
                                  int64_t row_end, float* out) const {
  const CheckpointParameter& spec = manifest_.parameters[static_cast<size_t>(parameter)];
  TESSERA_CHECK(0 <= row_begin && row_begin <= row_end && row_end <= spec.rows);
  TESSERA_CHECK(-1 <= state && state < manifest_.states);
  // A parameter without entries has no tensor to be found.
  if (spec.columns == 0) return absl::OkStatus();
  const std::string name = state < 0 ? spec.name : StateName(state, spec.name);
  const int64_t shard_count = static_cast<int64_t>(manifest_.shards.size());
  const Owners owners = spec.OwnersOf(shard_count);
  for (const SavedRows& run : SavedRowsOf(spec.rows, owners, row_begin, row_end)) {
    TESSERA_ASSIGN_OR_RETURN(const SafetensorsReader* const file, Shard(run.shard));
    const TensorSpec* tensor = file->Find(name);
    // OpenShard compared every tensor, so one that is missing now is a fault of this code.
    TESSERA_CHECK(tensor != nullptr);
    const int64_t entries = run.row_count * spec.columns;
    TESSERA_RETURN_IF_ERROR(file->Read(*tensor, run.row_begin * spec.columns * kFloatBytes,
                                       entries * kFloatBytes, out));
    out += entries;
  }
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<SafetensorsReader>> Checkpoint::OpenWorker(uint64_t rank) const {
  const std::string name = WorkerFileName(rank);
  // A worker without state of its own left no file.
  const CheckpointFile* const file = manifest_.FindFile(name);
  if (file == nullptr) return std::unique_ptr<SafetensorsReader>();
  if (bring_) TESSERA_RETURN_IF_ERROR(bring_(*file, nullptr));
  return SafetensorsReader::Open(PathOf(name));
}

}  // namespace tessera
