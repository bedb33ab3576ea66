// What `tessera run` shows while a job trains, and the table at its end.
//
// Evaluations are lines that stay; on a terminal a last line below them is redrawn in place.
#ifndef TESSERA_DEPLOY_CLI_PROGRESS_H_
#define TESSERA_DEPLOY_CLI_PROGRESS_H_

#include <string>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "proto/status.pb.h"

namespace tessera {

class Progress {
 public:
  // Writes to stdout. `live`: it is a terminal, so that the last line may be redrawn.
  explicit Progress(bool live) : live_(live) {}

  // Prints evaluations not printed yet, and that the last checkpoint failed and is tried again; redraws the last
  // line.
  void Show(const v1::JobStatus& status);
  // A line that stays, above the redrawn one.
  void Say(absl::string_view line);
  // Removes the redrawn line.
  void Clear();

  // One line of at most `width` columns: where the job is and how fast; for whom it waits, before
  // it has begun or when it is `stalled`; that its last checkpoint is tried again. (Under a barrier
  // somebody is waited for at almost every moment.)
  static std::string StatusLine(const v1::JobStatus& status, int width, bool stalled);
  // One evaluation, under the heads that Show prints; "-" for what is no number.
  static std::string HistoryLine(const v1::HistoryEntry& entry);
  // The closing table.
  static std::string Summary(const v1::JobStatus& status, absl::string_view report_path);

 private:
  const bool live_;
  int history_shown_ = 0;
  uint64_t failed_checkpoint_ = 0;  // the last one that was told of
  // When the job's step last moved.
  uint64_t step_ = 0;
  absl::Time step_moved_ = absl::InfiniteFuture();
  bool drawn_ = false;
};

}  // namespace tessera

#endif  // TESSERA_DEPLOY_CLI_PROGRESS_H_
