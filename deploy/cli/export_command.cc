#include "deploy/cli/export_command.h"

#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/strip.h"
#include "common/base/check.h"
#include "common/base/output_file.h"
#include "common/base/utf8.h"
#include "common/checkpoint/durable_file.h"
#include "common/checkpoint/manifest.h"
#include "common/checkpoint/model_facts.h"
#include "common/checkpoint/safetensors_writer.h"
#include "common/config/job_digest.h"
#include "common/config/job_reader.h"
#include "deploy/cli/batch_norms.h"
#include "deploy/cli/open_checkpoint.h"
#include "deploy/cli/saved_network.h"

namespace tessera {
namespace {

// The values that are held at a time; more where one row has more.
constexpr int64_t kPieceEntries = int64_t{1} << 20;

// Writes one parameter piece by piece, so that a model of any size takes some megabytes.
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

// What a model file has beside the parameters.
struct ModelExtras {
  std::optional<ModelFacts> facts;
  std::vector<BatchNormLayer> norms;
  // The constants of batch norms, in the order of ModelFacts::norm_constants.
  std::vector<float> constants;
};

// The counter of batches that PyTorch keeps beside its statistics. Counters come first in the file, where they lie
// at multiples of their size.
constexpr int64_t kBatchesTracked = 1;

// The file's tensors in order: the parameters, and behind them what batch norms normalise with.
std::vector<TensorSpec> TensorsOf(const Manifest& manifest, const ModelExtras& extras) {
  std::vector<TensorSpec> tensors;
  const auto add = [&tensors](std::string name, const char* dtype, std::vector<int64_t> shape) {
    TensorSpec& tensor = tensors.emplace_back();
    tensor.name = std::move(name);
    tensor.dtype = dtype;
    tensor.shape = std::move(shape);
  };
  const auto of_norm = [](const BatchNormLayer& norm, absl::string_view what) {
    return absl::StrCat(norm.name, ".", what);
  };
  for (const BatchNormLayer& norm : extras.norms) {
    add(of_norm(norm, "num_batches_tracked"), "I64", {});
  }
  for (int64_t p = 0; p < manifest.model_parameters; ++p) {
    const CheckpointParameter& parameter = manifest.parameters[static_cast<size_t>(p)];
    add(parameter.name, "F32", parameter.WholeShape());
  }
  for (const BatchNormLayer& norm : extras.norms) {
    add(of_norm(norm, "running_mean"), "F32", {norm.channels});
    add(of_norm(norm, "running_var"), "F32", {norm.channels});
  }
  return tensors;
}

// What a reader needs beside the tensors: where they come from, the normalisation, and the labels or the
// characters. "format" is what PyTorch's reader asks for.
TensorMetadata MetadataOf(const Manifest& manifest, const ModelExtras& extras) {
  TensorMetadata metadata = {{"format", "pt"},
                             {"job", manifest.job},
                             {"job_digest", manifest.job_digest},
                             {"method", manifest.method},
                             {"step", absl::StrCat(manifest.step)}};
  if (!extras.facts) return metadata;
  const auto list = [](const auto& values) { return nlohmann::json(values).dump(); };
  metadata["mean"] = list(extras.facts->mean);
  metadata["stddev"] = list(extras.facts->stddev);
  if (!extras.facts->labels.empty()) metadata["labels"] = list(extras.facts->labels);
  if (!extras.facts->characters.empty()) metadata["characters"] = list(extras.facts->characters);
  return metadata;
}

// Writes all tensors in the order of TensorsOf; a reader relies on it, as the header's offsets do.
absl::Status WriteModel(const Checkpoint& checkpoint, const ModelExtras& extras,
                        const std::string& path) {
  const Manifest& manifest = checkpoint.manifest();
  TESSERA_ASSIGN_OR_RETURN(
      std::unique_ptr<SafetensorsWriter> out,
      SafetensorsWriter::Create(path, TensorsOf(manifest, extras), MetadataOf(manifest, extras)));
  for (size_t i = 0; i < extras.norms.size(); ++i) {
    TESSERA_RETURN_IF_ERROR(out->Append(&kBatchesTracked, sizeof kBatchesTracked));
  }
  std::vector<float> piece;
  for (int64_t p = 0; p < manifest.model_parameters; ++p) {
    TESSERA_RETURN_IF_ERROR(WriteParameter(checkpoint, p, &piece, out.get()));
  }
  const float* mean = extras.constants.data();
  for (const BatchNormLayer& norm : extras.norms) {
    const auto channels = static_cast<size_t>(norm.channels);
    const float* const inverse_sigma = mean + channels;
    piece.assign(mean, inverse_sigma);
    for (size_t c = 0; c < channels; ++c) {
      piece.push_back(static_cast<float>(VarianceOf(inverse_sigma[c], norm.epsilon)));
    }
    TESSERA_RETURN_IF_ERROR(
        out->Append(piece.data(), static_cast<int64_t>(piece.size() * sizeof(float))));
    mean = inverse_sigma + channels;
  }
  return out->Finish().status();
}

// The job's rows, its device and its memory; the model and the order of its rows are the checkpoint's.
absl::StatusOr<std::vector<float>> ConstantsWith(const ExportOptions& options,
                                                 const Checkpoint& checkpoint,
                                                 std::optional<ModelFacts>* facts) {
  const JobReading reading = ReadJobFile(options.job_path, options.overrides, kDataFilesAlone);
  if (!reading.ok()) {
    return absl::FailedPreconditionError(absl::StripSuffix(FormatJobErrors(reading.errors), "\n"));
  }
  v1::Job job = reading.job;
  *job.mutable_model() = JobOfText(checkpoint.manifest().job_text).model();
  const absl::StatusOr<Datasets> data = LoadDataOf(job, *facts);
  if (!data.ok()) return absl::FailedPreconditionError(data.status().message());
  TESSERA_ASSIGN_OR_RETURN(const std::unique_ptr<SavedNetwork> network,
                           SavedNetwork::Create(job, checkpoint, *facts, *data));
  TESSERA_ASSIGN_OR_RETURN(std::vector<float> constants, network->Constants());
  // A checkpoint of an older build has neither facts nor constants.
  if (!*facts) *facts = data->facts;
  return constants;
}

// The facts and the batch norms' constants of the checkpoint. Where it has no constants they are calibrated from
// the rows that --job names, or the export is refused: PyTorch would read it wrongly.
absl::StatusOr<ModelExtras> ExtrasOf(const ExportOptions& options, const Checkpoint& checkpoint) {
  const Manifest& manifest = checkpoint.manifest();
  ModelExtras extras;
  TESSERA_ASSIGN_OR_RETURN(extras.facts, ReadFacts(checkpoint));
  TESSERA_ASSIGN_OR_RETURN(extras.norms, BatchNormsOf(JobOfText(manifest.job_text).model()));
  if (extras.norms.empty()) return extras;
  if (extras.facts) extras.constants = extras.facts->norm_constants;
  if (extras.constants.empty() && options.job_path.empty()) {
    return absl::FailedPreconditionError(absl::StrCat(
        "export: the checkpoint of step ", manifest.step,
        " has no constants of its batch norms, as ",
        extras.facts ? "the job made no evaluation there" : "an older build wrote it",
        "; give --job JOB.yaml, whose training rows tell them, or take a checkpoint that has them: "
        "of an evaluation, or of the job's end"));
  }
  if (extras.constants.empty()) {
    TESSERA_ASSIGN_OR_RETURN(extras.constants, ConstantsWith(options, checkpoint, &extras.facts));
  }
  if (ConstantsOf(extras.norms) == static_cast<int64_t>(extras.constants.size())) return extras;
  return absl::InvalidArgumentError(
      absl::StrCat("export: the checkpoint's batch norms have ", extras.constants.size(),
                   " constants, want ", ConstantsOf(extras.norms), " as its job's model has"));
}

// Refuses to overwrite a file of the checkpoint that is read.
absl::Status CheckIsNoFileOf(const Checkpoint& checkpoint, const std::string& out_path) {
  std::vector<std::string> files = {absl::StrCat(checkpoint.path(), "/", kManifestName)};
  for (const CheckpointFile& file : checkpoint.manifest().files) {
    files.push_back(absl::StrCat(checkpoint.path(), "/", file.name));
  }
  const absl::Status status = CheckIsNoInput("OUT", out_path, files);
  // The code is changed, as a broken checkpoint is an invalid argument, too.
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

// Checks all that can be wrong before the first byte is written.
absl::Status Export(const ExportOptions& options) {
  TESSERA_ASSIGN_OR_RETURN(const std::unique_ptr<Checkpoint> checkpoint,
                           OpenNamedCheckpoint(options.checkpoint));
  TESSERA_RETURN_IF_ERROR(CheckIsNoFileOf(*checkpoint, options.out_path));
  TESSERA_ASSIGN_OR_RETURN(const ModelExtras extras, ExtrasOf(options, *checkpoint));
  const bool is_file = PlaceOf(options.out_path).may_be_replaced;
  OutputFile out(options.out_path);
  const auto not_written = [&options](int error) {
    return FileError(error, options.out_path, "written");
  };
  absl::Status written =
      out.error() == 0 ? WriteModel(*checkpoint, extras, out.path()) : not_written(out.error());
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
  // A file that comes out of a pipe may come out of stdout: the summary then goes to stderr.
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
  if (!options.overrides.empty() && options.job_path.empty()) {
    std::fputs("tessera: --set: changes a key of a job, and none is given; name it with --job\n",
               stderr);
    return 2;
  }
  const absl::Status status = Export(options);
  if (status.ok()) return 0;
  std::fprintf(stderr, "tessera: %s\n", std::string(status.message()).c_str());
  const bool is_wrongly_asked = absl::IsNotFound(status) || absl::IsAlreadyExists(status) ||
                                absl::IsFailedPrecondition(status);
  return is_wrongly_asked ? 2 : 1;
}

}  // namespace tessera
