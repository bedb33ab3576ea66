#include "common/rpc/coordinator_contact.h"

#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/base/log.h"

namespace tessera {

bool CoordinatorContact::Hear(const v1::CoordinatorWord* word, absl::Time now) {
  if (word != nullptr) {
    // A message of an older term comes from a coordinator that has been replaced and does not know it yet.
    if (word->term() < word_.term()) return false;
    word_ = *word;
  }
  last_heard_ = now;
  has_heard_ = true;
  return true;
}

absl::Duration CoordinatorContact::patience() const {
  // The coordinator says how long it may be away; it is waited for at least as long as a lease.
  return std::max(lease_, absl::Nanoseconds(word_.away_timeout_ns()));
}

void LogCoordinatorAway(absl::string_view who, absl::string_view meanwhile, bool is_away,
                        absl::Duration silence, absl::Duration patience) {
  const int64_t seconds = absl::ToInt64Seconds(silence);
  if (!is_away) {
    return Log(LogLevel::kWarning, absl::StrCat(who, ": coordinator is back after s=", seconds));
  }
  std::string line = absl::StrCat(who, ": coordinator is away last_heard_s=", seconds);
  // Where nobody waits for the coordinator the caller tells of the end next.
  if (patience > silence) {
    absl::StrAppend(&line, "; ", meanwhile,
                    ", waiting for another s=", absl::ToInt64Seconds(patience - silence));
  }
  Log(LogLevel::kWarning, line);
}

}  // namespace tessera
