#include "common/store/store_client.h"

#include <algorithm>
#include <chrono>
#include <random>
#include <utility>

#include <grpcpp/grpcpp.h>
#include <xxhash.h>

#include "absl/time/clock.h"
#include "common/base/check.h"
#include "common/base/steady_clock.h"
#include "common/rpc/control_channel.h"
#include "common/rpc/status.h"

namespace tessera {
namespace {

// How long the same call is made again, and the pause before it.
constexpr absl::Duration kPatience = absl::Seconds(10);
constexpr absl::Duration kPause = absl::Milliseconds(100);
// A disk may take long to make a large file durable; whether the other side lives pings tell.
constexpr absl::Duration kCallMax = absl::Minutes(5);
// Reading all that a server holds takes as long as restoring it.
constexpr absl::Duration kListMax = absl::Hours(6);

// Whether the same call may succeed later.
bool MayBeBack(const absl::Status& status) {
  return absl::IsUnavailable(status) || absl::IsDeadlineExceeded(status);
}

uint64_t Draw() {
  std::random_device device;
  return (uint64_t{device()} << 32) | device();
}

}  // namespace

// Collects a piece and sends it. Each piece is answered before the next is sent, so that no more than one is held.
class StoreClient::RemotePart final : public PartFile {
 public:
  RemotePart(std::shared_ptr<StoreClient> to, uint64_t folder_step, const std::string& name)
      : to_(std::move(to)) {
    piece_.set_folder_step(folder_step);
    piece_.set_name(name);
    piece_.set_writer(Draw());
  }

  absl::Status Write(const void* data, int64_t bytes) override {
    const char* at = static_cast<const char*>(data);
    while (bytes > 0) {
      std::string& piece = *piece_.mutable_data();
      const int64_t room = kStorePieceBytesMax - static_cast<int64_t>(piece.size());
      const int64_t taken = std::min(bytes, room);
      piece.append(at, static_cast<size_t>(taken));
      at += taken;
      bytes -= taken;
      // A full piece waits until more comes: the last one is sent with the file's sum.
      if (bytes > 0) TESSERA_RETURN_IF_ERROR(Send());
    }
    return absl::OkStatus();
  }

  absl::Status Finish(const CheckpointFile& file) override {
    piece_.set_is_last(true);
    piece_.set_sum(file.sum);
    return Send();
  }

 private:
  absl::Status Send() {
    const size_t sent = piece_.data().size();
    const absl::Status status = to_->Call(&v1::CheckpointStore::Stub::Write, piece_).status();
    if (!status.ok()) {
      return absl::Status(status.code(),
                          absl::StrCat("the copy of ", piece_.name(), " on ", status.message()));
    }
    piece_.set_offset(piece_.offset() + sent);
    piece_.clear_data();
    return absl::OkStatus();
  }

  const std::shared_ptr<StoreClient> to_;
  v1::WritePieceRequest piece_;  // the next one, as far as it is collected
};

StoreClient::StoreClient(uint64_t rank, std::string address, std::string job_digest)
    : rank_(rank), address_(std::move(address)), job_digest_(std::move(job_digest)) {
  // The channel connects when it is used first.
  if (!address_.empty()) {
    stub_ = v1::CheckpointStore::NewStub(OpenControlChannel(address_));
  }
}

template <typename Request, typename Reply>
absl::StatusOr<Reply> StoreClient::CallOnce(Method<Request, Reply> method, const Request& request,
                                            absl::Duration deadline) {
  if (stub_ == nullptr) {
    return absl::FailedPreconditionError(absl::StrCat(Describe(), ": it is not there"));
  }
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + absl::ToChronoMilliseconds(deadline));
  Reply reply;
  const absl::Status status = FromGrpc((stub_.get()->*method)(&context, request, &reply));
  if (status.ok()) return reply;
  return absl::Status(status.code(), absl::StrCat(Describe(), ": ", status.message()));
}

template <typename Request, typename Reply>
absl::StatusOr<Reply> StoreClient::Call(Method<Request, Reply> method, Request request,
                                        bool is_repeated) {
  request.set_job_digest(job_digest_);
  // The clock begins anew with each call: a large file is not given up for being large.
  const absl::Time give_up = SteadyNow() + (is_repeated ? kPatience : absl::ZeroDuration());
  absl::Status before;
  while (true) {
    absl::StatusOr<Reply> reply = CallOnce(method, request, kCallMax);
    if (reply.ok()) return reply;
    // That the begin of the file is not there any more follows from what failed before.
    if (absl::IsInvalidArgument(reply.status()) && !before.ok()) return before;
    if (!MayBeBack(reply.status()) || SteadyNow() >= give_up) return reply;
    before = reply.status();
    absl::SleepFor(kPause);
  }
}

absl::Status StoreClient::Begin(uint64_t folder_step) {
  v1::BeginCheckpointRequest request;
  request.set_folder_step(folder_step);
  return Call(&v1::CheckpointStore::Stub::Begin, std::move(request)).status();
}

absl::Status StoreClient::WriteManifest(uint64_t folder_step, const std::string& text) {
  const std::unique_ptr<PartFile> part = OpenPart(folder_step, kManifestName);
  TESSERA_RETURN_IF_ERROR(part->Write(text.data(), static_cast<int64_t>(text.size())));
  // Only the sum is sent with the last piece; the name was with the first.
  CheckpointFile file;
  file.sum = XXH3_64bits(text.data(), text.size());
  return part->Finish(file);
}

absl::Status StoreClient::Commit(uint64_t folder_step, const Manifest& manifest) {
  const std::string text = FormatManifest(manifest);
  v1::CommitCheckpointRequest request;
  request.set_folder_step(folder_step);
  request.set_manifest_file_sum(XXH3_64bits(text.data(), text.size()));
  request.set_step(manifest.step);
  return Call(&v1::CheckpointStore::Stub::Commit, std::move(request)).status();
}

absl::Status StoreClient::Abandon(uint64_t folder_step, const Manifest& manifest) {
  v1::AbandonCheckpointRequest request;
  request.set_folder_step(folder_step);
  request.set_step(manifest.step);
  if (!manifest.files.empty()) request.set_manifest_sum(SumOf(manifest));
  return Call(&v1::CheckpointStore::Stub::Abandon, std::move(request), /*is_repeated=*/false)
      .status();
}

absl::Status StoreClient::Prune(uint64_t newest) {
  v1::PruneCheckpointsRequest request;
  request.set_newest(newest);
  return Call(&v1::CheckpointStore::Stub::Prune, std::move(request), /*is_repeated=*/false)
      .status();
}

absl::StatusOr<v1::ListCheckpointsReply> StoreClient::List(
    const std::function<bool()>& goes_on, const std::function<void(const absl::Status&)>& on_wait) {
  v1::ListCheckpointsRequest request;
  request.set_job_digest(job_digest_);
  while (true) {
    absl::StatusOr<v1::ListCheckpointsReply> reply =
        CallOnce(&v1::CheckpointStore::Stub::List, request, kListMax);
    if (reply.ok() || !MayBeBack(reply.status()) || !goes_on()) return reply;
    on_wait(reply.status());
    absl::SleepFor(kPause);
  }
}

absl::StatusOr<v1::ReadPieceReply> StoreClient::Read(uint64_t step, uint64_t manifest_sum,
                                                     const std::string& name, uint64_t offset) {
  v1::ReadPieceRequest request;
  request.set_step(step);
  request.set_manifest_sum(manifest_sum);
  request.set_name(name);
  request.set_offset(offset);
  return Call(&v1::CheckpointStore::Stub::Read, std::move(request));
}

std::unique_ptr<PartFile> StoreClient::OpenPart(uint64_t folder_step, const std::string& name) {
  return std::make_unique<RemotePart>(shared_from_this(), folder_step, name);
}

}  // namespace tessera
