#include "server/rpc/checkpoint_store_service.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/utf8.h"
#include "common/rpc/status.h"

namespace tessera {

CheckpointStoreService::CheckpointStoreService(HeldCheckpoints* held, std::string job_digest)
    : held_(held), job_digest_(std::move(job_digest)) {
  thread_ = std::thread([this] { Run(); });
}

CheckpointStoreService::~CheckpointStoreService() {
  {
    absl::MutexLock lock(&mutex_);
    stopping_ = true;
  }
  thread_.join();
}

grpc::ServerUnaryReactor* CheckpointStoreService::Do(grpc::CallbackServerContext* context,
                                                     const std::string& digest,
                                                     std::function<absl::Status()> work) {
  grpc::ServerUnaryReactor* const call = context->DefaultReactor();
  absl::Status refused;
  // Jobs on the same machines with the same tokens do not write into each other's folders.
  if (digest != job_digest_) {
    refused = absl::FailedPreconditionError(
        "checkpoint: the call is of another job than this server's, want the same job file");
  } else {
    absl::MutexLock lock(&mutex_);
    if (!stopping_ && tasks_.size() < kStoreCallsMax) {
      tasks_.push_back({call, std::move(work)});
      return call;
    }
    refused = absl::UnavailableError(absl::StrCat(
        "checkpoint: ", tasks_.size(), " calls wait for the disk, want this one again later"));
  }
  call->Finish(ToGrpc(refused));
  return call;
}

void CheckpointStoreService::Run() {
  while (true) {
    Task task;
    {
      absl::MutexLock lock(&mutex_);
      const auto has_task = [this]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) {
        return stopping_ || !tasks_.empty();
      };
      mutex_.Await(absl::Condition(&has_task));
      // What was accepted is done before the thread ends: each call is to be answered.
      if (tasks_.empty()) return;
      task = std::move(tasks_.front());
    }
    const absl::Status status = task.work();
    {
      absl::MutexLock lock(&mutex_);
      // The task counts until here, so that its piece does.
      tasks_.pop_front();
    }
    task.call->Finish(ToGrpc(ToUtf8(status)));
  }
}

grpc::ServerUnaryReactor* CheckpointStoreService::Begin(grpc::CallbackServerContext* context,
                                                        const v1::BeginCheckpointRequest* request,
                                                        v1::BeginCheckpointReply*) {
  return Do(context, request->job_digest(),
            [this, request] { return held_->Begin(request->folder_step()); });
}

grpc::ServerUnaryReactor* CheckpointStoreService::Write(grpc::CallbackServerContext* context,
                                                        const v1::WritePieceRequest* request,
                                                        v1::WritePieceReply*) {
  return Do(context, request->job_digest(), [this, request] { return held_->Write(*request); });
}

grpc::ServerUnaryReactor* CheckpointStoreService::Commit(grpc::CallbackServerContext* context,
                                                         const v1::CommitCheckpointRequest* request,
                                                         v1::CommitCheckpointReply*) {
  return Do(context, request->job_digest(), [this, request] {
    return held_->Commit(request->folder_step(), request->step(), request->manifest_file_sum());
  });
}

grpc::ServerUnaryReactor* CheckpointStoreService::Abandon(
    grpc::CallbackServerContext* context, const v1::AbandonCheckpointRequest* request,
    v1::AbandonCheckpointReply*) {
  return Do(context, request->job_digest(), [this, request] {
    return held_->Abandon(request->folder_step(), request->step(), request->manifest_sum());
  });
}

grpc::ServerUnaryReactor* CheckpointStoreService::Prune(grpc::CallbackServerContext* context,
                                                        const v1::PruneCheckpointsRequest* request,
                                                        v1::PruneCheckpointsReply*) {
  return Do(context, request->job_digest(),
            [this, request] { return held_->Prune(request->newest()); });
}

grpc::ServerUnaryReactor* CheckpointStoreService::List(grpc::CallbackServerContext* context,
                                                       const v1::ListCheckpointsRequest* request,
                                                       v1::ListCheckpointsReply* reply) {
  return Do(context, request->job_digest(), [this, reply] {
    absl::StatusOr<v1::ListCheckpointsReply> list = held_->List();
    if (list.ok()) *reply = *std::move(list);
    return list.status();
  });
}

grpc::ServerUnaryReactor* CheckpointStoreService::Read(grpc::CallbackServerContext* context,
                                                       const v1::ReadPieceRequest* request,
                                                       v1::ReadPieceReply* reply) {
  return Do(context, request->job_digest(), [this, request, reply] {
    absl::StatusOr<v1::ReadPieceReply> piece = held_->Read(*request);
    if (piece.ok()) *reply = *std::move(piece);
    return piece.status();
  });
}

}  // namespace tessera
