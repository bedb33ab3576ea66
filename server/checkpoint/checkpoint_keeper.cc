#include "server/checkpoint/checkpoint_keeper.h"

#include <utility>

namespace tessera {

CheckpointKeeper::CheckpointKeeper(CheckpointStore* store, Done done)
    : store_(store), done_(std::move(done)) {
  thread_ = std::thread([this] { Run(); });
}

CheckpointKeeper::~CheckpointKeeper() {
  {
    absl::MutexLock lock(&mutex_);
    stopping_ = true;
  }
  thread_.join();
}

void CheckpointKeeper::Do(DiskTask task) {
  absl::MutexLock lock(&mutex_);
  tasks_.push_back(std::move(task));
}

void CheckpointKeeper::Depose() {
  // Tasks of a coordinator that was replaced must not touch the folder; one that is at work ends.
  absl::MutexLock lock(&mutex_);
  tasks_.clear();
}

void CheckpointKeeper::Run() {
  while (true) {
    DiskTask task;
    {
      absl::MutexLock lock(&mutex_);
      const auto has_task = [this]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) {
        return stopping_ || !tasks_.empty();
      };
      mutex_.Await(absl::Condition(&has_task));
      // The last tasks are done even while it stops: a commit that was promised is made.
      if (tasks_.empty()) return;
      task = std::move(tasks_.front());
      tasks_.pop_front();
    }
    const absl::Status status = store_->Perform(task);
    // Told on this thread: the coordinator takes it as any other event.
    if (task.is_awaited()) done_(task, status);
  }
}

}  // namespace tessera
