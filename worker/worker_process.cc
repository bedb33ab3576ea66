#include "worker/worker_process.h"

#include <unistd.h>

#include <string>
#include <utility>
#include <vector>

#include "common/base/check.h"
#include "common/base/log.h"

namespace tessera {

absl::Status WorkerProcess::Prepare(const v1::Job& job) {
  TESSERA_ASSIGN_OR_RETURN(worker_, PreparedWorker::Create(options_, job));
  const auto& etcd = job.cluster().coordinator().etcd();
  if (!etcd.empty()) {
    TESSERA_ASSIGN_OR_RETURN(etcd_, EtcdClient::Create({{etcd.begin(), etcd.end()}}));
    const auto& servers = job.cluster().servers().addresses();
    finder_ = std::make_unique<CoordinatorFinder>(
        etcd_.get(), worker_->digest, std::vector<std::string>(servers.begin(), servers.end()));
  }
  if (options_.open_layers != nullptr) {
    TESSERA_ASSIGN_OR_RETURN(layers_, options_.open_layers(options_, *worker_));
  }
  return absl::OkStatus();
}

WorkerMembership* WorkerProcess::Begin(v1::JoinReply before, std::optional<LifeBefore> work) {
  auto membership = std::make_unique<WorkerMembership>(
      &options_, worker_.get(), layers_.get(), finder_.get(), std::move(before), std::move(work));
  WorkerMembership* const begun = membership.get();
  absl::MutexLock lock(&mutex_);
  if (asked_to_leave_) begun->AskToLeave();
  if (!abandoned_.ok()) begun->Abandon(abandoned_);
  // The one before has ended, and nothing of it is left to wait for.
  membership_ = std::move(membership);
  return begun;
}

absl::Status WorkerProcess::Train() {
  WorkerMembership* membership = Begin({}, std::nullopt);
  absl::Status status = membership->Run();
  while (!status.ok() && membership->is_training() && membership->MayRejoin(status)) {
    LifeBefore work = membership->End();
    membership = Begin(membership->admission(), std::move(work));
    status = membership->Run();
  }
  bool is_wanted = false;
  {
    absl::MutexLock lock(&mutex_);
    is_wanted = asked_to_leave_;
  }
  return membership->Leave(std::move(status), is_wanted);
}

bool WorkerProcess::joined() const {
  absl::MutexLock lock(&mutex_);
  return membership_->admission().admitted();
}

bool WorkerProcess::left_early() const {
  absl::MutexLock lock(&mutex_);
  return membership_->left_early();
}

bool WorkerProcess::has_left(const absl::Status& status) const {
  absl::MutexLock lock(&mutex_);
  return asked_to_leave_ && absl::IsCancelled(status);
}

void WorkerProcess::OnSignal(int count) {
  if (count > 1) _exit(1);
  {
    absl::MutexLock lock(&mutex_);
    const bool is_training = membership_ != nullptr && membership_->is_training();
    Log(LogLevel::kInfo,
        is_training ? "worker: signal received, leaving after this exchange; again to end at once"
                    : "worker: signal received, leaving; again to end at once");
  }
  Leave();
}

void WorkerProcess::Leave() {
  absl::MutexLock lock(&mutex_);
  asked_to_leave_ = true;
  if (membership_ != nullptr) membership_->AskToLeave();
  if (layers_ != nullptr) layers_->Leave();
}

void WorkerProcess::Abandon(const absl::Status& why) {
  absl::MutexLock lock(&mutex_);
  asked_to_leave_ = true;
  abandoned_ = why;
  if (membership_ != nullptr) membership_->Abandon(why);
}

}  // namespace tessera
