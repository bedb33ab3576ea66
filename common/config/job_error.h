// What is wrong with a job file, where, and what is wanted instead.
//
//   x.yaml:14:8: method.local_sgd.local_steps: got "four", want an integer in [1, 1000000]
//   x.yaml:17:3: checkpoint.evry: unknown key; did you mean "every_steps"?
//   --set train.epochs: got "-1", want an integer in [1, 1000000]
#ifndef TESSERA_COMMON_CONFIG_JOB_ERROR_H_
#define TESSERA_COMMON_CONFIG_JOB_ERROR_H_

#include <map>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace tessera {

// Errors beyond this many are counted, not kept.
constexpr int kJobErrorsMax = 100;

// A place where something is written. Lines and columns count from 1; 0 is unknown.
struct Position {
  // The text that the position is in. 0: the job file; n: the n-th --set.
  int source = 0;
  int line = 0;
  int column = 0;
};

// The places of the keys that were given, each by its path: "model.layers.0.linear.units".
using Positions = std::map<std::string, Position>;

// The place of `key`, or of the nearest key above it that was given; the file's start when there is none.
Position PositionOf(const Positions& positions, absl::string_view key);

struct JobError {
  // Where the error is: the job file's path, or "--set a.b.c".
  std::string file;
  int line = 0;
  int column = 0;
  // The path of the key; empty where the error is about the file.
  std::string key;
  std::string message;
};

// The error in one line, without its end.
std::string FormatJobError(const JobError& error);
// The errors, one line each.
std::string FormatJobErrors(const std::vector<JobError>& errors);

// The errors of one job, collected while it is read.
class JobErrors {
 public:
  // `overrides` as in JobSource: "a.b.c=v".
  JobErrors(absl::string_view file, const std::vector<std::string>& overrides);

  void Add(Position at, absl::string_view key, absl::string_view message);

  // Whether an error was added for `key`, for a key above it or for one below it: what it holds means nothing
  // then.
  bool Touches(absl::string_view key) const;
  bool empty() const { return entries_.empty(); }

  // The errors in the order of the file, then of the overrides.
  std::vector<JobError> Sorted() const;

 private:
  struct Entry {
    Position at;
    std::string key;
    std::string message;
  };
  std::vector<std::string> source_names_;
  std::vector<Entry> entries_;
  int left_out_ = 0;
};

// User text as a message has it: quoted, escaped, cut after 60 bytes.
std::string Quoted(absl::string_view text);
// The path of the key `name` below `path`: "a.b" and "c" give "a.b.c". A name that is no plain word is quoted.
std::string KeyPath(absl::string_view path, absl::string_view name);

}  // namespace tessera

#endif  // TESSERA_COMMON_CONFIG_JOB_ERROR_H_
