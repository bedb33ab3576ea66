// The file of a job of tensors, read by servers that have none.
#ifndef TESSERA_SERVER_RPC_TENSOR_FILE_SERVICE_H_
#define TESSERA_SERVER_RPC_TENSOR_FILE_SERVICE_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "proto/tensor_file.grpc.pb.h"

namespace tessera {

// The most bytes of a piece.
constexpr int64_t kTensorPieceBytesMax = int64_t{1} << 20;
// The most pieces that are on their way at once, for all callers together: this bounds the memory of those that do not
// read them.
constexpr int kTensorReadsMax = 32;

// Holds the file open and none of its bytes: a file that takes its place is not read. Every call is answered at once,
// by gRPC's threads; one beyond kTensorReadsMax is refused as RESOURCE_EXHAUSTED, and may be made again.
class TensorFileService final : public v1::TensorFile::CallbackService {
 public:
  // Opens the file of a job of tensors. `path` is empty where the job is none, and every call is refused then.
  //   kNotFound, kPermissionDenied  it cannot be opened
  static absl::StatusOr<std::unique_ptr<TensorFileService>> Open(const std::string& path);
  ~TensorFileService() override;

  grpc::ServerUnaryReactor* Read(grpc::CallbackServerContext* context,
                                 const v1::TensorFileRequest* request,
                                 v1::TensorFilePiece* piece) override;

 private:
  TensorFileService(int fd, uint64_t file_bytes) : fd_(fd), file_bytes_(file_bytes) {}
  absl::Status ReadPiece(uint64_t offset, v1::TensorFilePiece* piece) const;

  const int fd_;  // -1: there is none
  const uint64_t file_bytes_;
  std::atomic<int> reads_{0};  // on their way
};

}  // namespace tessera

#endif  // TESSERA_SERVER_RPC_TENSOR_FILE_SERVICE_H_
