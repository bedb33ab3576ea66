#include "server/control/status_limit.h"

namespace tessera {

absl::string_view LimitStatus(size_t bytes_max, v1::JobStatus* status) {
  if (status->ByteSizeLong() <= bytes_max) return "";
  status->clear_members();
  status->clear_worker_reports();
  if (status->ByteSizeLong() <= bytes_max) return "members";
  if (status->history_size() > 1) {
    status->mutable_history()->DeleteSubrange(0, status->history_size() - 1);
  }
  status->clear_report_json();
  if (status->ByteSizeLong() <= bytes_max) return "members, history and report";
  status->clear_servers();
  status->clear_owners();
  return "members, history, report and servers";
}

}  // namespace tessera
