#include "deploy/cli/import/import_command.h"

#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/strip.h"
#include "common/base/check.h"
#include "common/base/output_file.h"
#include "common/checkpoint/durable_file.h"
#include "common/checkpoint/safetensors_writer.h"
#include "common/config/job_reader.h"
#include "common/layout/parameters.h"
#include "deploy/cli/batch_norms.h"
#include "deploy/cli/fetch_advice.h"
#include "deploy/cli/import/model_source.h"
#include "deploy/cli/import/name_match.h"
#include "deploy/cli/tensor_refusal.h"

namespace tessera {
namespace {

// The values that are held at a time; more where one row has more.
constexpr int64_t kPieceEntries = int64_t{1} << 20;

int Fail(int exit_code, absl::string_view message) {
  std::fprintf(stderr, "tessera: %s\n", std::string(message).c_str());
  return exit_code;
}

// What failed, without the word that readers and writers of the format begin with, which are also those of checkpoints.
std::string Told(const absl::Status& failed) {
  return absl::StrCat("import: ", absl::StripPrefix(failed.message(), "checkpoint: "));
}

absl::Status WriteModel(const ModelSource& source, const ModelShape& shape,
                        const std::string& path) {
  std::vector<TensorSpec> tensors;
  for (const ParameterSpec& spec : shape.parameters) {
    tensors.push_back({spec.name, "F32", ExtentsOf(spec)});
  }
  // "format" is what PyTorch's reader asks for.
  TESSERA_ASSIGN_OR_RETURN(const std::unique_ptr<SafetensorsWriter> out,
                           SafetensorsWriter::Create(path, tensors, {{"format", "pt"}}));
  std::vector<float> piece;
  for (int p = 0; p < static_cast<int>(shape.parameters.size()); ++p) {
    const ParameterSpec& spec = shape.parameters[static_cast<size_t>(p)];
    const int64_t rows_max = std::max<int64_t>(1, kPieceEntries / spec.columns);
    for (int64_t row = 0; row < spec.rows; row += rows_max) {
      const int64_t end = std::min(spec.rows, row + rows_max);
      piece.resize(static_cast<size_t>((end - row) * spec.columns));
      TESSERA_RETURN_IF_ERROR(source.ReadRows(p, row, end, piece.data()));
      TESSERA_RETURN_IF_ERROR(
          out->Append(piece.data(), static_cast<int64_t>(piece.size() * sizeof(float))));
    }
  }
  return out->Finish().status();
}

absl::Status Write(const ModelSource& source, const ModelShape& shape,
                   const std::string& out_path) {
  OutputFile out(out_path);
  if (out.error() != 0) return FileError(out.error(), out_path, "written");
  const absl::Status written = WriteModel(source, shape, out.path());
  // The user knows the place that was asked for, not the file beside it that is written first.
  if (!written.ok()) {
    return absl::Status(written.code(),
                        absl::StrReplaceAll(written.message(), {{out.path(), out_path}}));
  }
  if (const int error = out.Commit(); error != 0) return FileError(error, out_path, "written");
  return absl::OkStatus();
}

// Says what was written, what of the model was not used, and how the job begins with it.
void TellOf(const ImportOptions& options, const v1::Job& job, const ModelShape& shape,
            const NameMatch& match, const std::string& out_path) {
  // A file that comes out of a pipe may come out of stdout: the summary then goes to stderr.
  std::FILE* const told = PlaceOf(out_path).may_be_replaced ? stdout : stderr;
  std::fprintf(told, "%s: %" PRId64 " parameters in %zu tensors\n", out_path.c_str(), shape.size,
               shape.parameters.size());
  if (!match.passed_over.empty()) {
    std::fprintf(told, "not used, as the job calibrates its batch norms: %s\n",
                 absl::StrJoin(match.passed_over, ", ").c_str());
  }
  if (job.model().init().empty()) {
    std::fprintf(told, "begin %s with it: --set model.init=%s\n", options.job_path.c_str(),
                 out_path.c_str());
  }
}

}  // namespace

int ImportModel(const ImportOptions& options) {
  std::vector<Renaming> renamings;
  for (const std::string& text : options.renamings) {
    const absl::StatusOr<Renaming> renaming = ParseRenaming(text);
    if (!renaming.ok()) return Fail(2, renaming.status().message());
    renamings.push_back(*renaming);
  }
  // Neither the job's data nor its checkpoints have to be on the machine where a model is imported.
  JobOptions look;
  look.check_files = false;
  const JobReading reading = ReadJobFile(options.job_path, options.overrides, look);
  if (!reading.ok()) {
    TellJobErrors(reading);
    return 2;
  }
  const v1::Job& job = reading.job;
  const absl::Status has_layers = RefuseTensors(
      "import", job.model(), "name the model in model.tensors, where it need not be imported");
  if (!has_layers.ok()) return Fail(2, has_layers.message());
  const absl::StatusOr<ModelShape> shape = ShapeOf(job.model());
  if (!shape.ok()) return Fail(2, absl::StrCat(options.job_path, ": ", shape.status().message()));
  const absl::StatusOr<std::vector<BatchNormLayer>> norms = BatchNormsOf(job.model());
  TESSERA_CHECK(norms.ok());  // The model has a shape.

  const std::string out_path = options.out_path.empty() ? job.model().init() : options.out_path;
  if (out_path.empty()) {
    return Fail(2, absl::StrCat("OUT: is not given, and ", options.job_path,
                                " names no file in model.init, want the path of the file to "
                                "write behind ",
                                options.model));
  }
  // What can be wrong with the place is told before a large model is read.
  if (const absl::Status place = CheckWritable("OUT", out_path); !place.ok()) {
    return Fail(2, place.message());
  }

  const absl::StatusOr<std::unique_ptr<ModelSource>> source = OpenModelSource(options.model);
  if (!source.ok()) {
    return Fail(absl::IsNotFound(source.status()) ? 2 : 1, Told(source.status()));
  }
  if (const absl::Status other = CheckIsNoInput("OUT", out_path, (*source)->files()); !other.ok()) {
    return Fail(2, other.message());
  }
  std::vector<std::string> norm_names;
  for (const BatchNormLayer& norm : *norms) norm_names.push_back(norm.name);
  const std::vector<TensorSpec>& tensors = (*source)->tensors();
  const absl::StatusOr<NameMatch> match =
      MatchNames(shape->parameters, norm_names, tensors, renamings);
  if (!match.ok()) {
    return Fail(2, absl::StrCat("import: \"", options.model, "\" is no model of the layers of ",
                                options.job_path, ":\n  ",
                                absl::StrReplaceAll(match.status().message(), {{"\n", "\n  "}})));
  }
  // The model knows its tensors by its own names; their order and their shapes are the job's.
  std::vector<ParameterSpec> chosen = shape->parameters;
  for (size_t p = 0; p < chosen.size(); ++p) chosen[p].name = tensors[match->tensors[p]].name;
  absl::Status written = (*source)->Choose(chosen);
  if (written.ok()) written = Write(**source, *shape, out_path);
  if (!written.ok()) return Fail(1, Told(written));
  if (!options.quiet) TellOf(options, job, *shape, *match, out_path);
  return 0;
}

}  // namespace tessera
