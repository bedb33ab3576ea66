#include "server/election/server_election.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/base/log.h"
#include "common/base/steady_clock.h"

namespace tessera {
namespace {

// How long the key is watched before it is looked at again: a watch may end without a word.
constexpr absl::Duration kWatchTime = absl::Seconds(2);
// After a watch that has failed.
constexpr absl::Duration kWatchPause = absl::Milliseconds(200);
constexpr absl::Duration kTroubleInterval = absl::Seconds(10);

}  // namespace

ServerElection::ServerElection(Options options)
    : options_(std::move(options)),
      key_(options_.prefix + "/coordinator"),
      troubles_(1, kTroubleInterval) {}

// The lease is given back, so that the next coordinator need not wait for it to end.
ServerElection::~ServerElection() ABSL_NO_THREAD_SAFETY_ANALYSIS {
  Stop();
  if (election_.lease() != 0) (void)options_.etcd->Revoke(election_.lease());
}

void ServerElection::Start() {
  thread_ = std::thread([this] { Run(); });
}

void ServerElection::Stop() {
  if (!thread_.joinable()) return;
  {
    absl::MutexLock lock(&mutex_);
    stopping_ = true;
  }
  wake_.Notify();
  // A watch that is under way is ended, as the thread may be in it.
  options_.etcd->Cancel();
  thread_.join();
}

absl::Time ServerElection::held_until() const {
  // Until then no other server can hold the key, by this server's own clock.
  absl::MutexLock lock(&mutex_);
  return election_.revision() != 0 ? election_.held_until() : absl::InfinitePast();
}

void ServerElection::Resign() {
  {
    absl::MutexLock lock(&mutex_);
    resigns_ = true;
  }
  wake_.Notify();
}

void ServerElection::Perform(Election::Step step) {
  // The lease counts from before the question: etcd may have granted it at any moment since.
  const absl::Time asked = SteadyNow();
  int64_t lease = 0;
  {
    absl::MutexLock lock(&mutex_);
    lease = election_.lease();
  }
  switch (step) {
    case Election::Step::kGrant: {
      const absl::StatusOr<EtcdLease> granted = options_.etcd->Grant(options_.ttl);
      Tell("lease", granted.status());
      absl::StatusOr<Election::Lease> told(Election::Lease{});
      if (granted.ok()) {
        told = Election::Lease{granted->id, granted->ttl};
      } else {
        told = granted.status();
      }
      absl::MutexLock lock(&mutex_);
      election_.OnGranted(asked, told, SteadyNow());
      break;
    }
    case Election::Step::kCampaign: {
      EtcdTransaction wanted;
      // The key is put only where it is not there: exactly one server can succeed.
      wanted.guard = key_;
      wanted.puts.push_back({key_, options_.address});
      wanted.lease = lease;
      const absl::StatusOr<EtcdOutcome> outcome = options_.etcd->Commit(wanted);
      Tell("campaign", outcome.status());
      absl::StatusOr<Election::Holder> holder(Election::Holder{});
      if (!outcome.ok()) {
        holder = outcome.status();
      } else if (outcome->done) {
        holder = Election::Holder{lease, outcome->revision};
      } else if (outcome->guard) {
        holder = Election::Holder{outcome->guard->lease, outcome->guard->create_revision};
        // Not the key's own: etcd compacts what is older than this in a job of hours.
        seen_revision_ = outcome->revision;
      } else {
        holder = absl::UnavailableError("the key went just now");
      }
      absl::MutexLock lock(&mutex_);
      election_.OnCampaign(holder, SteadyNow());
      break;
    }
    case Election::Step::kAwait: {
      // An error is as good as a change: the key is looked at.
      const absl::Status changed =
          options_.etcd->AwaitChange(key_, seen_revision_, asked + kWatchTime);
      // A quiet watch is no trouble.
      if (!changed.ok() && !absl::IsDeadlineExceeded(changed)) {
        Tell("watch", changed);
        wake_.WaitFor(kWatchPause);
      }
      absl::MutexLock lock(&mutex_);
      election_.OnAwaited(SteadyNow());
      break;
    }
    case Election::Step::kKeep: {
      const absl::StatusOr<absl::Duration> ttl = options_.etcd->KeepAlive(lease);
      Tell("keep", ttl.status());
      absl::MutexLock lock(&mutex_);
      election_.OnKept(asked, ttl, SteadyNow());
      break;
    }
  }
}

// Whoever waits for a coordinator learns here what the election waits for.
void ServerElection::Tell(absl::string_view step, const absl::Status& status) {
  // Told again when the lease is over, as its reason.
  trouble_ = std::string(status.message());
  if (status.ok() || absl::IsCancelled(status) || !troubles_.Pass(SteadyNow())) return;
  Log(LogLevel::kWarning, absl::StrCat("control: the election cannot go on step=", step, " why=\"",
                                       status.message(), "\""));
}

// Tells on_elected and on_deposed what has become of this server's time as coordinator.
void ServerElection::Settle() {
  int64_t tenure = 0, lease = 0;
  bool resigned = false;
  {
    absl::MutexLock lock(&mutex_);
    if (resigns_) {
      lease = election_.lease();
      resigned = true;
      resigns_ = false;
      election_.Resign(SteadyNow());
    }
    tenure = election_.Leads(SteadyNow()) ? election_.revision() : 0;
  }
  // The end is told before the lease is revoked: nobody else may lead while this one still does.
  if (tenure_ != 0 && tenure != tenure_) {
    tenure_ = 0;
    options_.on_deposed(resigned ? "it has resigned"
                                 : absl::StrCat("its lease in etcd is over",
                                                trouble_.empty() ? "" : ": ", trouble_));
  }
  if (lease != 0) (void)options_.etcd->Revoke(lease);
  if (tenure == 0 || tenure == tenure_) return;
  tenure_ = tenure;
  Log(LogLevel::kInfo, absl::StrCat("control: elected coordinator revision=", tenure));
  const absl::Status taken = options_.on_elected(tenure);
  if (taken.ok()) return;
  Log(LogLevel::kError, absl::StrCat("control: elected, and cannot be the coordinator why=\"",
                                     taken.message(), "\""));
  Resign();
}

void ServerElection::Run() {
  while (true) {
    Election::Task task;
    absl::Time until;
    {
      absl::MutexLock lock(&mutex_);
      // This server's lease may end before the next step is due.
      until = election_.Next().at;
      if (tenure_ != 0) until = std::min(until, election_.held_until());
    }
    wake_.WaitUntil(until);
    {
      absl::MutexLock lock(&mutex_);
      if (stopping_) return;
      task = election_.Next();
    }
    if (SteadyNow() >= task.at) Perform(task.step);
    Settle();
  }
}

}  // namespace tessera
