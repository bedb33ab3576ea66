#include "server/shard_loader.h"

#include <utility>

namespace tessera {

ShardLoader::ShardLoader(ShardThread* shard) : shard_(shard) {
  thread_ = std::thread([this] { Run(); });
}

ShardLoader::~ShardLoader() {
  {
    absl::MutexLock lock(&mutex_);
    stopping_ = true;
  }
  thread_.join();
}

void ShardLoader::Load(uint64_t number, const absl::Status& why, Make make,
                       std::function<void(absl::Status)> done) {
  // The shard is told before this returns, so that what the caller does next finds the shard that awaits another.
  shard_->AwaitReplacement(number, why);
  absl::MutexLock lock(&mutex_);
  // A later request replaces one that has not begun; one that is being made finds out by goes_on.
  if (number < wanted_) return;
  wanted_ = number;
  next_ = Task{number, std::move(make), std::move(done)};
}

bool ShardLoader::Wants(uint64_t number) {
  absl::MutexLock lock(&mutex_);
  return !stopping_ && wanted_ == number;
}

void ShardLoader::Run() {
  while (true) {
    Task task;
    {
      absl::MutexLock lock(&mutex_);
      const auto has_task = [this]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) {
        return stopping_ || next_.has_value();
      };
      mutex_.Await(absl::Condition(&has_task));
      if (stopping_) return;
      task = *std::exchange(next_, std::nullopt);
    }
    const auto goes_on = [this, number = task.number] { return Wants(number); };
    absl::StatusOr<std::unique_ptr<Shard>> made = task.make(goes_on);
    // The shard that was made for an older request is dropped here.
    if (goes_on()) shard_->Replace(task.number, std::move(made), std::move(task.done));
  }
}

}  // namespace tessera
