#include "deploy/cli/export_command.h"

#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "common/base/check.h"
#include "common/base/output_file.h"
#include "common/base/utf8.h"
#include "common/checkpoint/durable_file.h"
#include "common/checkpoint/manifest.h"
#include "common/checkpoint/safetensors_writer.h"
#include "deploy/cli/open_checkpoint.h"

namespace tessera {
namespace {

// Values that are held at a time, or one row of them.
constexpr int64_t kPieceEntries = int64_t{1} << 20;

absl::Status WriteParameter(const Checkpoint& checkpoint, int64_t index, std::vector<float>* piece,
                            SafetensorsWriter* out) {
  const CheckpointParameter& parameter =
      checkpoint.manifest().parameters[static_cast<size_t>(index)];
  if (parameter.columns == 0) return absl::OkStatus();
  const int64_t rows_max = std::max<int64_t>(1, kPieceEntries / parameter.columns);
  const float factor = static_cast<float>(parameter.export_factor);
  for (int64_t row = 0; row < parameter.rows; row += rows_max) {
    const int64_t end = std::min(parameter.rows, row + rows_max);
    piece->resize(static_cast<size_t>((end - row) * parameter.columns));
    TESSERA_RETURN_IF_ERROR(checkpoint.ReadRows(index, /*state=*/-1, row, end, piece->data()));
    if (factor != 1) {
      for (float& value : *piece) value *= factor;
    }
    TESSERA_RETURN_IF_ERROR(
        out->Append(piece->data(), static_cast<int64_t>(piece->size() * sizeof(float))));
  }
  return absl::OkStatus();
}

absl::Status WriteModel(const Checkpoint& checkpoint, const std::string& path) {
  const Manifest& manifest = checkpoint.manifest();
  std::vector<TensorSpec> tensors;
  for (int64_t p = 0; p < manifest.model_parameters; ++p) {
    const CheckpointParameter& parameter = manifest.parameters[static_cast<size_t>(p)];
    TensorSpec tensor;
    tensor.name = parameter.name;
    tensor.dtype = "F32";
    tensor.shape = parameter.Shape(parameter.rows);
    tensors.push_back(std::move(tensor));
  }
  const TensorMetadata metadata = {{"format", "pt"},
                                   {"job", manifest.job},
                                   {"job_digest", manifest.job_digest},
                                   {"method", manifest.method},
                                   {"step", absl::StrCat(manifest.step)}};
  TESSERA_ASSIGN_OR_RETURN(std::unique_ptr<SafetensorsWriter> out,
                           SafetensorsWriter::Create(path, tensors, metadata));
  std::vector<float> piece;
  for (int64_t p = 0; p < manifest.model_parameters; ++p) {
    TESSERA_RETURN_IF_ERROR(WriteParameter(checkpoint, p, &piece, out.get()));
  }
  return out->Finish().status();
}

absl::Status CheckIsNoFileOf(const Checkpoint& checkpoint, const std::string& out_path) {
  std::vector<std::string> files = {absl::StrCat(checkpoint.path(), "/", kManifestName)};
  for (const CheckpointFile& file : checkpoint.manifest().files) {
    files.push_back(absl::StrCat(checkpoint.path(), "/", file.name));
  }
  const absl::Status status = CheckIsNoInput("OUT", out_path, files);
  // A broken checkpoint is an invalid argument.
  return status.ok() ? status : absl::AlreadyExistsError(status.message());
}

// What failed, which may be the checkpoint's reading, with the file that is written under the name that the user gave.
std::string TellOfOut(const absl::Status& failed, const std::string& path,
                      const std::string& out_path) {
  const auto named = [](absl::string_view what, const std::string& name) {
    return ToUtf8(absl::StrCat(what, "\"", name, "\""));
  };
  return absl::StrReplaceAll(failed.message(),
                             {{named("checkpoint: ", path), named("", out_path)},
                              {named("checkpoint: ", out_path), named("", out_path)}});
}

absl::Status Export(const ExportOptions& options) {
  TESSERA_ASSIGN_OR_RETURN(const std::unique_ptr<Checkpoint> checkpoint,
                           OpenNamedCheckpoint(options.checkpoint));
  TESSERA_RETURN_IF_ERROR(CheckIsNoFileOf(*checkpoint, options.out_path));
  const bool is_file = PlaceOf(options.out_path).may_be_replaced;
  OutputFile out(options.out_path);
  const auto not_written = [&options](int error) {
    return FileError(error, options.out_path, "written");
  };
  absl::Status written =
      out.error() == 0 ? WriteModel(*checkpoint, out.path()) : not_written(out.error());
  if (written.ok()) {
    if (const int error = out.Commit(); error != 0) written = not_written(error);
  }
  if (!written.ok()) {
    return absl::AbortedError(
        absl::StrCat("export: ", TellOfOut(written, out.path(), options.out_path)));
  }
  if (options.quiet) return absl::OkStatus();
  int64_t entries = 0;
  for (int64_t p = 0; p < checkpoint->manifest().model_parameters; ++p) {
    const CheckpointParameter& parameter =
        checkpoint->manifest().parameters[static_cast<size_t>(p)];
    entries += parameter.rows * parameter.columns;
  }
  // Who has the file come out of a pipe may have it come out of stdout.
  std::FILE* const told = is_file ? stdout : stderr;
  std::fprintf(told, "%s: %" PRId64 " parameters in %" PRId64 " tensors, of step %" PRIu64 "\n",
               options.out_path.c_str(), entries, checkpoint->manifest().model_parameters,
               checkpoint->manifest().step);
  return absl::OkStatus();
}

}  // namespace

int ExportCheckpoint(const ExportOptions& options) {
  if (const absl::Status place = CheckWritable("OUT", options.out_path); !place.ok()) {
    std::fprintf(stderr, "tessera: %s\n", std::string(place.message()).c_str());
    return 2;
  }
  const absl::Status status = Export(options);
  if (status.ok()) return 0;
  std::fprintf(stderr, "tessera: %s\n", std::string(status.message()).c_str());
  return absl::IsNotFound(status) || absl::IsAlreadyExists(status) ? 2 : 1;
}

}  // namespace tessera
