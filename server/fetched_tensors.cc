#include "server/fetched_tensors.h"

#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <filesystem>
#include <system_error>

#include <grpcpp/grpcpp.h>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/base/check.h"
#include "common/base/log.h"
#include "common/base/steady_clock.h"
#include "common/checkpoint/durable_file.h"
#include "common/rpc/status.h"
#include "proto/tensor_file.grpc.pb.h"

namespace tessera {
namespace {

// How long one call takes at most, and the pause before the next where it failed.
constexpr std::chrono::seconds kCallMax{30};
constexpr absl::Duration kPause = absl::Milliseconds(250);

// Whether the same call may succeed later: the coordinator is away, or has too many others to answer.
bool MayBeBack(const absl::Status& status) {
  return absl::IsUnavailable(status) || absl::IsDeadlineExceeded(status) ||
         absl::IsResourceExhausted(status);
}

absl::StatusOr<v1::TensorFilePiece> ReadPiece(v1::TensorFile::Stub* stub, uint64_t offset) {
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + kCallMax);
  v1::TensorFileRequest request;
  request.set_offset(offset);
  v1::TensorFilePiece piece;
  TESSERA_RETURN_IF_ERROR(FromGrpc(stub->Read(&context, request, &piece)));
  return piece;
}

absl::Status Append(int fd, const std::string& path, absl::string_view data) {
  while (!data.empty()) {
    const ssize_t written = write(fd, data.data(), data.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return FileError(errno, path, "written");
    data.remove_prefix(static_cast<size_t>(written));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<FetchedTensors>> FetchedTensors::Fetch(
    const std::shared_ptr<grpc::Channel>& channel, absl::Duration patience) {
  std::error_code error;
  std::filesystem::path folder = std::filesystem::temp_directory_path(error);
  if (error) folder = "/tmp";
  std::string path = (folder / "tessera-tensors-XXXXXX").string();
  const int fd = mkostemp(path.data(), O_CLOEXEC);
  if (fd < 0) return FileError(errno, path, "written");
  std::unique_ptr<FetchedTensors> fetched(new FetchedTensors(fd));
  unlink(path.c_str());
  TESSERA_RETURN_IF_ERROR(fetched->CopyFrom(channel, patience));
  return fetched;
}

FetchedTensors::~FetchedTensors() { close(fd_); }

std::string FetchedTensors::path() const { return absl::StrCat("/proc/self/fd/", fd_); }

absl::Status FetchedTensors::CopyFrom(const std::shared_ptr<grpc::Channel>& channel,
                                      absl::Duration patience) {
  const std::unique_ptr<v1::TensorFile::Stub> stub = v1::TensorFile::NewStub(channel);
  uint64_t offset = 0, file_bytes = 0;
  absl::Time give_up = SteadyNow() + patience;
  bool is_told = false;
  while (true) {
    const absl::StatusOr<v1::TensorFilePiece> piece = ReadPiece(stub.get(), offset);
    if (!piece.ok()) {
      if (!MayBeBack(piece.status()) || SteadyNow() >= give_up) return piece.status();
      if (!is_told) {
        Log(LogLevel::kInfo, absl::StrCat("server: waiting for the coordinator's tensors error=\"",
                                          piece.status().message(), "\""));
      }
      is_told = true;
      absl::SleepFor(kPause);
      continue;
    }
    if (offset > 0 && piece->file_bytes() != file_bytes) {
      return absl::AbortedError(absl::StrCat("the coordinator's file had ", file_bytes,
                                             " bytes and has ", piece->file_bytes(),
                                             ", want one that stays; start again"));
    }
    file_bytes = piece->file_bytes();
    TESSERA_RETURN_IF_ERROR(Append(fd_, "the temporary copy of model.tensors", piece->data()));
    offset += piece->data().size();
    give_up = SteadyNow() + patience;
    if (offset >= file_bytes || piece->data().empty()) break;
  }
  Log(LogLevel::kInfo, absl::StrCat("server: fetched the coordinator's tensors bytes=", offset));
  return absl::OkStatus();
}

}  // namespace tessera
