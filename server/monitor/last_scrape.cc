#include "server/monitor/last_scrape.h"

#include "absl/strings/str_cat.h"
#include "common/base/log.h"

namespace tessera {

void LastScrape::OnSent(const v1::JobStatus& status) {
  if (status.state() == "done") over_.Notify();
}

bool LastScrape::OnAskedToEnd() {
  absl::MutexLock lock(&mutex_);
  // The process that is asked to end waits no more, if it was waiting.
  is_asked_to_end_ = true;
  over_.Notify();
  return is_awaited_;
}

void LastScrape::Await(absl::Duration limit) {
  {
    absl::MutexLock lock(&mutex_);
    // Without a limit nobody waits for a last scrape.
    if (is_asked_to_end_ || limit == absl::ZeroDuration()) return;
    is_awaited_ = true;
  }
  Log(LogLevel::kInfo, absl::StrCat("monitor: waiting to be scraped once more, at most seconds=",
                                    absl::ToDoubleSeconds(limit)));
  over_.WaitFor(limit);
}

}  // namespace tessera
