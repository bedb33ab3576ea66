#include "server/checkpoint/shard_saver.h"

#include <memory>
#include <utility>
#include <vector>

#include "common/base/check.h"
#include "common/base/steady_clock.h"
#include "common/checkpoint/checkpoint.h"
#include "common/checkpoint/safetensors_writer.h"

namespace tessera {
namespace {

// Tasks are bounded because each holds the parameters of another moment.
constexpr size_t kTasksMax = 2;

}  // namespace

ShardSaver::ShardSaver(OpenPart parts, Manifest model, int64_t shard)
    : parts_(std::move(parts)), model_(std::move(model)), shard_(shard) {
  thread_ = std::thread([this] { Run(); });
}

ShardSaver::~ShardSaver() {
  {
    absl::MutexLock lock(&mutex_);
    stopping_ = true;
  }
  thread_.join();
}

void ShardSaver::Save(ShardCopy copy, Done done) {
  {
    absl::MutexLock lock(&mutex_);
    if (tasks_.size() < kTasksMax) {
      tasks_.push_back({std::move(copy), std::move(done), SteadyNow()});
      return;
    }
  }
  // Blocks of the copy are released before the answer, as the shard copies what somebody holds.
  copy.values.snapshot.reset();
  copy.states.clear();
  done(copy, absl::ResourceExhaustedError("checkpoint: others are still being written"),
       absl::ZeroDuration());
}

absl::StatusOr<CheckpointFile> ShardSaver::Write(const ShardCopy& copy) const {
  // The folder was made by the coordinator; here a file is added to it.
  const std::string name = ShardFileName(shard_, static_cast<int64_t>(model_.shards.size()));
  TESSERA_ASSIGN_OR_RETURN(std::unique_ptr<SafetensorsWriter> writer,
                           SafetensorsWriter::CreatePart(parts_, copy.order.mark.folder_step, name,
                                                         ShardTensors(model_, shard_), {}));
  constexpr int64_t kFloatBytes = sizeof(float);
  // Values first and states behind them, each in the order of the shard's entries, as ShardTensors lists them.
  for (const std::shared_ptr<const Block>& block : copy.values.snapshot->blocks()) {
    TESSERA_RETURN_IF_ERROR(writer->Append(block->data(), block->size() * kFloatBytes));
  }
  for (const auto& state : copy.states) {
    const int64_t bytes = static_cast<int64_t>(state->size()) * kFloatBytes;
    TESSERA_RETURN_IF_ERROR(writer->Append(state->data(), bytes));
  }
  return writer->Finish();
}

void ShardSaver::Run() {
  while (true) {
    Task task;
    {
      absl::MutexLock lock(&mutex_);
      const auto has_task = [this]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) {
        return stopping_ || !tasks_.empty();
      };
      mutex_.Await(absl::Condition(&has_task));
      if (stopping_) return;
      task = std::move(tasks_.front());
    }
    const absl::StatusOr<CheckpointFile> file = Write(task.copy);
    // The copy is let go of here, so that the shard may write the blocks in place again.
    task.copy.values.snapshot.reset();
    task.copy.states.clear();
    {
      absl::MutexLock lock(&mutex_);
      // The task counts until here, so that no more than kTasksMax copies exist.
      tasks_.pop_front();
    }
    task.done(task.copy, file, SteadyNow() - task.copied);
  }
}

}  // namespace tessera
