// How far a job is, and how it ended there, for people.
#ifndef TESSERA_DEPLOY_CLI_HOW_FAR_H_
#define TESSERA_DEPLOY_CLI_HOW_FAR_H_

#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "common/base/printable.h"
#include "proto/status.pb.h"

namespace tessera {

// "step 120 of 2000"; "step 120" where the end is not known.
inline std::string HowFar(const v1::JobStatus& status) {
  std::string text = absl::StrCat("step ", status.step());
  if (status.steps_planned() > 0) absl::StrAppend(&text, " of ", status.steps_planned());
  return text;
}

inline bool WasStopped(const v1::JobStatus& status) { return status.outcome() == "stopped"; }

// "stopped at step 120 of 2000 (SIGINT to tessera run)".
inline std::string StoppedText(const v1::JobStatus& status) {
  const std::string& reason = status.stop_reason();
  return ToPrintable(absl::StrCat("stopped at ", HowFar(status), reason.empty() ? "" : " (", reason,
                                  reason.empty() ? "" : ")"));
}

// "the job has failed: all workers are gone"; of a status whose job ended without a last evaluation.
inline std::string FailureText(const v1::JobStatus& status) {
  absl::string_view why = status.failure();
  if (WasStopped(status)) absl::ConsumePrefix(&why, "stopped: ");
  return ToPrintable(
      absl::StrCat(WasStopped(status) ? "the job was stopped: " : "the job has failed: ", why));
}

}  // namespace tessera

#endif  // TESSERA_DEPLOY_CLI_HOW_FAR_H_
