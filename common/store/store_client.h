// A server's part of a job's checkpoints on own disks (proto/checkpoint_store.proto), called over the network.
#ifndef TESSERA_COMMON_STORE_STORE_CLIENT_H_
#define TESSERA_COMMON_STORE_STORE_CLIENT_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "common/checkpoint/part_file.h"
#include "common/config/checkpoint_keys.h"
#include "proto/checkpoint_store.grpc.pb.h"

namespace tessera {

// Calls block, and are made again for ten seconds where the other side is away or has too much to do, but for Abandon
// and Prune: what those leave the next Begin or Prune removes, and a job that ends does not wait for them. Errors begin
// with whom they are of: "server 2 at 10.0.0.3:7000: ...". Any thread.
class StoreClient : public std::enable_shared_from_this<StoreClient> {
 public:
  // Server `rank` at `address`, host:port; an empty one is not there, and every call says so.
  StoreClient(uint64_t rank, std::string address, std::string job_digest);

  absl::Status Begin(uint64_t folder_step);
  // Whole and durable at the other side: the manifest's text, in the folder that Begin made.
  absl::Status WriteManifest(uint64_t folder_step, const std::string& text);
  absl::Status Commit(uint64_t folder_step, const Manifest& manifest);
  // A `manifest` without files stands for none.
  absl::Status Abandon(uint64_t folder_step, const Manifest& manifest);
  absl::Status Prune(uint64_t newest);
  // Takes as long as the other side needs to read what it holds. Asked again until `goes_on` says no, as a server may
  // have yet to be started; `on_wait` hears why it is asked again.
  absl::StatusOr<v1::ListCheckpointsReply> List(
      const std::function<bool()>& goes_on,
      const std::function<void(const absl::Status&)>& on_wait);
  //   kNotFound  it is not there
  absl::StatusOr<v1::ReadPieceReply> Read(uint64_t step, uint64_t manifest_sum,
                                          const std::string& name, uint64_t offset);
  // A file that is sent as it is written, in pieces; this much of it is held.
  std::unique_ptr<PartFile> OpenPart(uint64_t folder_step, const std::string& name);

  std::string Describe() const {
    return absl::StrCat("server ", rank_, address_.empty() ? "" : " at ", address_);
  }

 private:
  class RemotePart;

  template <typename Request, typename Reply>
  using Method = grpc::Status (v1::CheckpointStore::Stub::*)(grpc::ClientContext*, const Request&,
                                                             Reply*);
  template <typename Request, typename Reply>
  absl::StatusOr<Reply> Call(Method<Request, Reply> method, Request request,
                             bool is_repeated = true);
  template <typename Request, typename Reply>
  absl::StatusOr<Reply> CallOnce(Method<Request, Reply> method, const Request& request,
                                 absl::Duration deadline);

  const uint64_t rank_;
  const std::string address_;
  const std::string job_digest_;
  std::unique_ptr<v1::CheckpointStore::Stub> stub_;  // nullptr: the server is not there
};

}  // namespace tessera

#endif  // TESSERA_COMMON_STORE_STORE_CLIENT_H_
