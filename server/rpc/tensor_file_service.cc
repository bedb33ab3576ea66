#include "server/rpc/tensor_file_service.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "common/rpc/status.h"

namespace tessera {
namespace {

// One call, which counts until its reply has left. It deletes itself then.
class ReadCall final : public grpc::ServerUnaryReactor {
 public:
  explicit ReadCall(std::atomic<int>* reads) : reads_(*reads), place_(reads_.fetch_add(1)) {}
  ~ReadCall() override { reads_.fetch_sub(1); }

  bool is_one_too_many() const { return place_ >= kTensorReadsMax; }
  void OnDone() override { delete this; }

 private:
  std::atomic<int>& reads_;
  const int place_;  // those that were on their way before it
};

}  // namespace

absl::StatusOr<std::unique_ptr<TensorFileService>> TensorFileService::Open(
    const std::string& path) {
  if (path.empty()) return std::unique_ptr<TensorFileService>(new TensorFileService(-1, 0));
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  struct stat info = {};
  if (fd < 0 || fstat(fd, &info) != 0) {
    const int error = errno;
    if (fd >= 0) close(fd);
    return absl::ErrnoToStatus(error, absl::StrCat("model.tensors: \"", path, "\" cannot be read"));
  }
  return std::unique_ptr<TensorFileService>(
      new TensorFileService(fd, static_cast<uint64_t>(info.st_size)));
}

TensorFileService::~TensorFileService() {
  if (fd_ >= 0) close(fd_);
}

grpc::ServerUnaryReactor* TensorFileService::Read(grpc::CallbackServerContext* context,
                                                  const v1::TensorFileRequest* request,
                                                  v1::TensorFilePiece* piece) {
  auto* const call = new ReadCall(&reads_);
  call->Finish(ToGrpc(call->is_one_too_many()
                          ? absl::ResourceExhaustedError(
                                absl::StrCat("tensor file: ", kTensorReadsMax,
                                             " pieces are on their way, want this one again later"))
                          : ReadPiece(request->offset(), piece)));
  return call;
}

absl::Status TensorFileService::ReadPiece(uint64_t offset, v1::TensorFilePiece* piece) const {
  if (fd_ < 0) {
    return absl::FailedPreconditionError(
        "tensor file: the job is none of tensors, want one with model.tensors");
  }
  if (offset > file_bytes_) {
    return absl::InvalidArgumentError(absl::StrCat("tensor file: offset is ", offset,
                                                   ", want at most ", file_bytes_,
                                                   ", which is the size of the file"));
  }
  std::string& data = *piece->mutable_data();
  data.resize(std::min<uint64_t>(kTensorPieceBytesMax, file_bytes_ - offset));
  size_t filled = 0;
  while (filled < data.size()) {
    const ssize_t got =
        pread(fd_, data.data() + filled, data.size() - filled, static_cast<off_t>(offset + filled));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) {
      return absl::FailedPreconditionError(
          absl::StrCat("tensor file: byte ", offset + filled, " cannot be read: ",
                       got < 0 ? std::strerror(errno) : "the file was cut since the job was read"));
    }
    filled += static_cast<size_t>(got);
  }
  piece->set_file_bytes(file_bytes_);
  return absl::OkStatus();
}

}  // namespace tessera
