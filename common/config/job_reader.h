// The job file: from YAML text and --set options to a resolved v1::Job, or to everything that is
// wrong with it.
//
// The schema is proto/job.proto and nothing else. The steps:
//   1. yaml_tree       text -> tree, bounded in size, depth and aliases
//   2. override        --set a.b.c=v changes the tree
//   3. message_reader  tree -> message; unknown, repeated, missing, mistyped, out of range
//   4. job_paths       paths that start at the job file are made absolute
//   5. tensor_file     of a job of tensors: names, shapes and a sum of the values, from the file
//   6. job_check       what must hold between keys; data_check and local_check: files
#ifndef TESSERA_COMMON_CONFIG_JOB_READER_H_
#define TESSERA_COMMON_CONFIG_JOB_READER_H_

#include <string>
#include <vector>

#include "common/config/job_error.h"
#include "proto/job.pb.h"

namespace tessera {

struct JobSource {
  std::string text;
  // The file's name as the user gave it, for messages.
  std::string path;
  // The job file's own, where its relative paths start. Empty: they are left as they are.
  std::string directory;
  // "a.b.c=v", in order.
  std::vector<std::string> overrides;
};

struct JobOptions {
  // Data files must exist. A server needs none.
  bool check_files = true;
  // Whether check_files also looks for the files under `security`: for a program that loads them.
  bool check_security = true;
  // With check_files, so must the folder of checkpoint.restore. A worker may need none: one that joins late has no
  // use for it where the job has a checkpoint of its own since.
  bool check_restore = true;
  // The file that model.tensors names may be missing, on a server that fetches it. The layout is empty then, and only
  // what that has no part in is checked.
  bool may_lack_tensors = false;
  // Keys may say `auto`, for a program that chooses their values, or only looks (Recipe::open_keys).
  bool may_be_open = false;
};

// For a look at the job with its data, on a machine that need not be one of the job's.
constexpr JobOptions kDataFilesAlone{true, /*check_security=*/false, /*check_restore=*/false};

// `options` for a program that chooses what is left open, or only looks.
constexpr JobOptions MayBeOpen(JobOptions options) {
  options.may_be_open = true;
  return options;
}

struct JobReading {
  // Every key has its value or its default. Of no use when there are errors.
  v1::Job job;
  // All of them, in the order of the file.
  std::vector<JobError> errors;

  bool ok() const { return errors.empty(); }
};

// Pure but for the look at files. The same source gives the same job on every machine; of a job of tensors, the same
// source and the same file.
JobReading ReadJob(const JobSource& source, const JobOptions& options);

// Reads the file too. One that cannot be read, or has more than kJobFileBytesMax bytes, is an error
// of the reading like any other. What can be read once only is kept, and its relative paths start at the current
// folder; its writer may pause for a minute.
JobReading ReadJobFile(const std::string& path, const std::vector<std::string>& overrides,
                       const JobOptions& options);

// A pipe, or what a shell calls /dev/stdin and /dev/fd/63: another process, or a second look, finds nothing there.
bool CanBeReadOnce(const std::string& path);

}  // namespace tessera

#endif  // TESSERA_COMMON_CONFIG_JOB_READER_H_
