// What `tessera run` shows while a job trains, and the table at its end.
//
// Evaluations are lines that stay; on a terminal a last line below them is redrawn in place.
#ifndef TESSERA_DEPLOY_CLI_PROGRESS_H_
#define TESSERA_DEPLOY_CLI_PROGRESS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "deploy/cli/terminal.h"
#include "proto/status.pb.h"

namespace tessera {

class Progress {
 public:
  // Writes to stdout. `live`: it is a terminal, so that the last line may be redrawn.
  explicit Progress(bool live) : live_(live) {}

  // Prints the new lines, and redraws the last one.
  void Show(const v1::JobStatus& status);
  // The lines that stay, each of them once: evaluations; that the job went back, behind which those that are made
  // again come again; that the last checkpoint failed and is tried again.
  std::vector<std::string> NewLines(const v1::JobStatus& status);
  // Prints a line that stays, above the redrawn one.
  void Say(absl::string_view line);
  // Removes the redrawn line.
  void Clear();

  // One line of at most `width` columns: where the job is, with a bar where its end is known, how long it goes on, and
  // how fast; for whom it waits, before it has begun or when it is `stalled`; that its last checkpoint is tried again.
  // (Under a barrier somebody is waited for at almost every moment.) In a narrow terminal the number of workers, the
  // seconds, the epoch and then the bar are left out, in this order.
  static std::string StatusLine(const v1::JobStatus& status, int width, bool stalled);
  // The heads above evaluations.
  static std::string HistoryHeads();
  // One evaluation, under the heads; "-" for what is no number.
  static std::string HistoryLine(const v1::HistoryEntry& entry);
  // The closing table; what is long in it is broken to lines of `width` columns. `model`: what became of it, where
  // there is something to say.
  static std::string Summary(const v1::JobStatus& status, absl::string_view report_path,
                             int width = kTextWidthMax, absl::string_view model = "");

 private:
  // An evaluation: its step, which may come again once the job went back, and the seconds, which do not.
  using Made = std::pair<uint64_t, double>;
  static Made MadeAt(const v1::HistoryEntry& entry) { return {entry.step(), entry.seconds()}; }
  // Forgets evaluations that do not stand any more. Returns the first of them; nullopt: all stand, as far as the
  // status tells.
  std::optional<Made> DropUndone(const v1::JobStatus& status);

  const bool live_;
  bool heads_shown_ = false;
  std::vector<Made> shown_;         // evaluations, and of these the ones that stand
  uint64_t rollbacks_ = 0;          // that were told of
  uint64_t failed_checkpoint_ = 0;  // the last one that was told of
  // The step that the job was at, and when it last moved.
  uint64_t step_ = 0;
  absl::Time step_moved_ = absl::InfiniteFuture();
  bool drawn_ = false;
};

}  // namespace tessera

#endif  // TESSERA_DEPLOY_CLI_PROGRESS_H_
