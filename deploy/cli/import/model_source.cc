#include "deploy/cli/import/model_source.h"

#include <sys/stat.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/checkpoint/checkpoint.h"
#include "common/checkpoint/initial_file.h"
#include "common/checkpoint/safetensors_reader.h"
#include "deploy/cli/open_checkpoint.h"

namespace tessera {
namespace {

// The initial file of a job finds, checks and converts the tensors already; it takes over the open reader.
class FileSource final : public ModelSource {
 public:
  explicit FileSource(std::unique_ptr<SafetensorsReader> reader)
      : tensors_(reader->tensors()), path_(reader->path()), reader_(std::move(reader)) {}

  const std::vector<TensorSpec>& tensors() const override { return tensors_; }
  std::vector<std::string> files() const override { return {path_}; }

  absl::Status Choose(const std::vector<ParameterSpec>& parameters) override {
    TESSERA_ASSIGN_OR_RETURN(file_, InitialFile::OpenWith(std::move(reader_), parameters));
    return absl::OkStatus();
  }

  absl::Status ReadRows(int parameter, int64_t row_begin, int64_t row_end,
                        float* out) const override {
    return file_->FillRows(parameter, row_begin, row_end, out);
  }

 private:
  const std::vector<TensorSpec> tensors_;
  const std::string path_;
  std::unique_ptr<SafetensorsReader> reader_;  // until Choose
  std::shared_ptr<const InitialFile> file_;    // from then on
};

// Values are multiplied as in an export: what was trained as subnets is imported as the network that was scored, and
// the job that begins with it makes the values of subnets of it again.
class CheckpointSource final : public ModelSource {
 public:
  explicit CheckpointSource(std::unique_ptr<Checkpoint> checkpoint)
      : checkpoint_(std::move(checkpoint)) {
    // Averaged states of workers' optimizers come behind the model's parameters, and are no part of it.
    const Manifest& manifest = checkpoint_->manifest();
    for (int64_t p = 0; p < manifest.model_parameters; ++p) {
      const CheckpointParameter& parameter = manifest.parameters[static_cast<size_t>(p)];
      tensors_.push_back({parameter.name, "F32", parameter.WholeShape()});
    }
  }

  const std::vector<TensorSpec>& tensors() const override { return tensors_; }

  std::vector<std::string> files() const override {
    std::vector<std::string> files = {absl::StrCat(checkpoint_->path(), "/", kManifestName)};
    for (const CheckpointFile& file : checkpoint_->manifest().files) {
      files.push_back(absl::StrCat(checkpoint_->path(), "/", file.name));
    }
    return files;
  }

  absl::Status Choose(const std::vector<ParameterSpec>& parameters) override {
    for (const ParameterSpec& spec : parameters) {
      const auto found =
          std::find_if(tensors_.begin(), tensors_.end(),
                       [&spec](const TensorSpec& tensor) { return tensor.name == spec.name; });
      TESSERA_CHECK(found != tensors_.end());
      chosen_.push_back(found - tensors_.begin());
    }
    return absl::OkStatus();
  }

  absl::Status ReadRows(int parameter, int64_t row_begin, int64_t row_end,
                        float* out) const override {
    const int64_t index = chosen_[static_cast<size_t>(parameter)];
    const CheckpointParameter& saved =
        checkpoint_->manifest().parameters[static_cast<size_t>(index)];
    TESSERA_RETURN_IF_ERROR(checkpoint_->ReadRows(index, /*state=*/-1, row_begin, row_end, out));
    const auto factor = static_cast<float>(saved.export_factor);
    const int64_t count = (row_end - row_begin) * saved.columns;
    for (int64_t i = 0; i < count; ++i) {
      if (factor != 1) out[i] *= factor;
      // A job would refuse such a file when it begins, which may be much later.
      if (std::isfinite(out[i])) continue;
      return absl::InvalidArgumentError(absl::StrCat(
          "\"", checkpoint_->path(), "\": tensor \"", saved.name, "\": value ",
          row_begin * saved.columns + i, " is ", out[i],
          ", want numbers that are finite; take a checkpoint from before it diverged"));
    }
    return absl::OkStatus();
  }

 private:
  const std::unique_ptr<Checkpoint> checkpoint_;
  std::vector<TensorSpec> tensors_;
  std::vector<int64_t> chosen_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<ModelSource>> OpenModelSource(const std::string& path) {
  struct stat info = {};
  if (stat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode)) {
    TESSERA_ASSIGN_OR_RETURN(std::unique_ptr<Checkpoint> checkpoint, OpenNamedCheckpoint(path));
    return std::make_unique<CheckpointSource>(std::move(checkpoint));
  }
  TESSERA_ASSIGN_OR_RETURN(std::unique_ptr<SafetensorsReader> reader,
                           SafetensorsReader::Open(path));
  return std::make_unique<FileSource>(std::move(reader));
}

}  // namespace tessera
