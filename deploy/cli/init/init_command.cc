#include "deploy/cli/init/init_command.h"

#include <cstdio>
#include <filesystem>
#include <iterator>
#include <system_error>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/output_file.h"
#include "common/base/printable.h"
#include "common/config/job_reader.h"
#include "common/layout/parameters.h"
#include "deploy/cli/init/data_look.h"
#include "deploy/cli/init/found_files.h"
#include "deploy/cli/init/job_draft.h"
#include "worker/data/dataset.h"
#include "worker/data/load_datasets.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;

// The folder that all of the data lies in, as far as one argument says it.
fs::path FolderOf(const InitOptions& options) {
  std::error_code error;
  const fs::path first = fs::absolute(options.paths[0]).lexically_normal();
  if (!fs::is_directory(first, error)) return first.parent_path();
  return first.has_filename() ? first : first.parent_path();
}

// Whether the job is right and its data can be trained on.
absl::Status TryJob(const std::string& text, const std::string& path,
                    std::vector<std::string>* notes) {
  JobSource source;
  source.text = text;
  source.path = path;
  source.directory = fs::absolute(path).lexically_normal().parent_path().string();
  const JobReading reading = ReadJob(source, JobOptions{});
  if (!reading.ok()) {
    return absl::InvalidArgumentError(
        absl::StrCat("the draft is no job that can be run:\n", FormatJobErrors(reading.errors)));
  }
  TESSERA_ASSIGN_OR_RETURN(const ModelShape shape, ShapeOf(reading.job.model()));
  TESSERA_ASSIGN_OR_RETURN(const Datasets data,
                           LoadDatasets(reading.job, EndsOf(reading.job.model(), shape)));
  *notes = data.notes;
  return absl::OkStatus();
}

absl::Status WriteJob(const InitOptions& options) {
  std::error_code error;
  const fs::path out = fs::absolute(options.out_path).lexically_normal();
  if (fs::is_regular_file(out, error) && !options.force) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--out: \"", options.out_path, "\" is there already, want another name, or --force"));
  }
  TESSERA_ASSIGN_OR_RETURN(const FoundFiles files, FindDataFiles(options.paths));
  std::vector<std::string> inputs = files.train;
  inputs.insert(inputs.end(), files.test.begin(), files.test.end());
  TESSERA_RETURN_IF_ERROR(CheckIsNoInput("--out", options.out_path, inputs));
  TESSERA_ASSIGN_OR_RETURN(const DataLook look, LookAtData(files));
  const fs::path folder = FolderOf(options);
  // A path that climbs to the root says less than one that begins there.
  fs::path written = folder.lexically_relative(out.parent_path());
  const bool has_common = *std::next(folder.begin()) == *std::next(out.begin());
  if (written.empty() || !has_common) written = folder;
  const std::string name = folder.filename().empty() ? "job" : folder.filename().string();
  FoundFiles absolute = files;
  for (auto* paths :
       {&absolute.train, &absolute.train_labels, &absolute.test, &absolute.test_labels}) {
    for (std::string& path : *paths) path = fs::absolute(path).lexically_normal().string();
  }
  DataLook named = look;
  named.files = absolute;
  std::string text =
      DraftJob(named, {name, out.filename().string(), folder.string(), written.string()});
  std::vector<std::string> notes;
  TESSERA_RETURN_IF_ERROR(TryJob(text, options.out_path, &notes));
  text.pop_back();  // WriteOutput ends the file with a line break of its own.
  TESSERA_RETURN_IF_ERROR(WriteOutput("--out", options.out_path, text));
  if (look.files.has_no_test) {
    notes.push_back(
        "no file is called test or validation: the job evaluates the training rows; name test "
        "files under data.test");
  }
  for (const std::string& note : notes) {
    std::fprintf(stderr, "tessera init: note: %s\n", ToPrintable(note).c_str());
  }
  std::printf("%s\nwritten: %s; next: tessera run %s\n", DescribeLook(look).c_str(),
              options.out_path.c_str(), options.out_path.c_str());
  return absl::OkStatus();
}

}  // namespace

int InitJob(const InitOptions& options) {
  const absl::Status status = WriteJob(options);
  if (status.ok()) return 0;
  std::fprintf(stderr, "tessera init: %s\n", std::string(status.message()).c_str());
  return absl::IsUnavailable(status) ? 1 : 2;
}

}  // namespace tessera
