// Errors of keys of a job file, each placed where its key is written.
#ifndef TESSERA_COMMON_CONFIG_KEY_ERRORS_H_
#define TESSERA_COMMON_CONFIG_KEY_ERRORS_H_

#include "absl/strings/string_view.h"
#include "common/config/job_error.h"

namespace tessera {

// A view of one job's positions and errors, both of which outlive it. It may be copied.
class KeyErrors {
 public:
  KeyErrors(const Positions& positions, JobErrors* errors)
      : positions_(positions), errors_(*errors) {}

  // Whether no error was added for `key`, a key above it or one below it: only then do its values mean something.
  bool Sound(absl::string_view key) const { return !errors_.Touches(key); }

  // Adds an error for `key`, a path such as "method.ist.tail_steps". The message begins with "got" or "missing".
  void Add(absl::string_view key, absl::string_view message) const {
    errors_.Add(PositionOf(positions_, key), key, message);
  }

 private:
  const Positions& positions_;
  JobErrors& errors_;
};

}  // namespace tessera

#endif  // TESSERA_COMMON_CONFIG_KEY_ERRORS_H_
