#include "server/rpc/contact_watch.h"

#include <algorithm>

namespace tessera {

bool ContactWatch::Hear(const v1::CoordinatorWord* word) {
  bool was_away = false;
  absl::Duration silence;
  {
    absl::MutexLock lock(&mutex_);
    const absl::Time now = SteadyNow();
    silence = contact_.Silence(now);
    if (!contact_.Hear(word, now)) return false;
    was_away = is_away_;
  }
  // Outside of the lock: whoever is told may ask this object something.
  if (was_away) SetAway(false, silence);
  return true;
}

ContactWatch::Silence ContactWatch::Look() {
  Silence found;
  absl::Duration lease;
  {
    absl::MutexLock lock(&mutex_);
    found = {contact_.Silence(SteadyNow()), patience()};
    lease = contact_.lease();
  }
  // One lease of silence counts as away; how long it is waited for beyond that is patience().
  if (found.silence > lease) SetAway(true, found.silence);
  return found;
}

void ContactWatch::SetClosing() {
  absl::MutexLock lock(&mutex_);
  is_closing_ = true;
}

void ContactWatch::SetAway(bool is_away, absl::Duration silence) {
  {
    absl::MutexLock lock(&mutex_);
    if (is_away_ == is_away) return;
    // It may have been heard just now, by the other thread.
    if (is_away && contact_.Silence(SteadyNow()) <= contact_.lease()) return;
    is_away_ = is_away;
    silence_then_ = silence;
  }
  Tell();
}

void ContactWatch::Tell() {
  // A lock of its own keeps the order of news: two threads could otherwise tell them the wrong way round.
  absl::MutexLock teller(&telling_);
  bool is_away = false;
  absl::Duration silence, waited;
  {
    absl::MutexLock lock(&mutex_);
    // The other thread may have told it, or have changed it back.
    if (is_away_ == told_away_) return;
    is_away = told_away_ = is_away_;
    silence = silence_then_;
    waited = patience();
  }
  LogCoordinatorAway("server", "nothing is trained", is_away, silence, waited);
  if (on_away_) on_away_(is_away);
}

bool ContactWatch::has_heard() const {
  absl::MutexLock lock(&mutex_);
  return contact_.has_heard();
}

v1::CoordinatorWord ContactWatch::word() const {
  absl::MutexLock lock(&mutex_);
  return contact_.word();
}

void ContactWatch::Fill(v1::CoordinatorStatus* status) const {
  absl::MutexLock lock(&mutex_);
  // A status is for people: time since it was heard counts even where that is shorter than a lease.
  status->set_term(contact_.word().term());
  const absl::Duration silence = SteadyNow() - contact_.last_heard();
  status->set_silent_seconds(absl::ToDoubleSeconds(silence));
  status->set_is_away(is_away_);
  if (!is_away_) return;
  status->set_waits_seconds(
      absl::ToDoubleSeconds(std::max(absl::ZeroDuration(), patience() - silence)));
}

}  // namespace tessera
