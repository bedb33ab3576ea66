// One answer to Pull or to FetchSubnet.
//
//   1. The request is read and its caller checked.
//   2. The shard is asked; the answer may wait for other workers. A client that goes is forgotten.
//   3. Chunks are sent one after the other. All entries, those of some layers, or rows of one parameter: they
//      reference the snapshot's blocks. A
//      subnet: its entries are gathered from the blocks into the memory that is sent, one copy, but
//      only if the caller's place is what it asked for. The first chunk is sent by the shard's
//      thread, so of several it is a short one, and a subnet's has the header alone; gRPC's threads
//      do the rest.
// A reader that is too slow loses its snapshot and ends with ABORTED, or with CANCELLED if its
// network stands still.
#ifndef TESSERA_SERVER_RPC_PULL_CALL_H_
#define TESSERA_SERVER_RPC_PULL_CALL_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/server_callback.h>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "common/codec/codec.h"
#include "common/keyset/rows.h"
#include "proto/parameter_server.pb.h"
#include "server/rpc/answer_payload.h"
#include "server/rpc/data_plane.h"

namespace tessera {

// Keeps itself alive until gRPC and the shard are done with it.
class PullCall final : public grpc::ServerWriteReactor<grpc::ByteBuffer>,
                       public ActiveReader,
                       public std::enable_shared_from_this<PullCall> {
 public:
  static grpc::ServerWriteReactor<grpc::ByteBuffer>* Start(DataPlanes* planes,
                                                           grpc::CallbackServerContext* context,
                                                           const grpc::ByteBuffer& request);
  static grpc::ServerWriteReactor<grpc::ByteBuffer>* StartFetch(
      DataPlanes* planes, grpc::CallbackServerContext* context, const grpc::ByteBuffer& request);

  void OnWriteDone(bool ok) override;
  void OnCancel() override;
  void OnDone() override;
  void CutOffIfRevoked() override;

 private:
  PullCall(DataPlanes* planes, grpc::CallbackServerContext* context)
      : planes_(planes), context_(context) {}

  using AskFunction = absl::Status (PullCall::*)(const grpc::ByteBuffer& request);
  static grpc::ServerWriteReactor<grpc::ByteBuffer>* Begin(std::shared_ptr<PullCall> call,
                                                           AskFunction ask,
                                                           const grpc::ByteBuffer& request);
  absl::Status AskAll(const grpc::ByteBuffer& request);
  absl::Status TakeKeys(const v1::PullRequest& request);
  absl::Status AskSparse(const v1::PullRequest& request);
  absl::Status TakeLayers(const v1::LayerKeys& keys);
  absl::Status TakeCodec(absl::string_view name);
  absl::Status AskSubnet(const grpc::ByteBuffer& request);
  absl::Status AskCopy(const v1::PullRequest& request);
  // `read`: the shard's number for what was asked.
  void CancelWhenGone(uint64_t read);
  void Answer(absl::StatusOr<ReadResult> result);
  void AnswerSparse(absl::StatusOr<SparseReadResult> result);
  void AnswerCore(absl::StatusOr<std::shared_ptr<const Core>> core);
  void AnswerSubnet(const SubnetPlace& asked, absl::StatusOr<SubnetReadResult> result);
  std::unique_ptr<AnswerPayload> Coded(const CodedKeys& keys, Version version,
                                       std::unique_ptr<EntrySource> source);
  void BeginAnswer(ReadResult result);
  void SendNext();
  v1::ChunkHeader Header() const;
  // Bytes that were not sent.
  int64_t left() const { return payload_ == nullptr ? 0 : payload_->left(); }

  DataPlanes* const planes_;
  DataPlane* plane_ = nullptr;  // once the caller has named the shard
  grpc::CallbackServerContext* const context_;
  std::shared_ptr<PullCall> self_;
  std::string where_;
  bool outside_exchange_ = false;
  std::optional<RowRange> rows_;     // all that is asked for
  const LayerPart* part_ = nullptr;  // so
  Codec codec_;

  absl::Mutex mutex_;
  uint64_t read_ ABSL_GUARDED_BY(mutex_) = 0;
  bool gone_ ABSL_GUARDED_BY(mutex_) = false;

  // Set once by Answer. Then one thread at a time, as gRPC calls OnWriteDone.
  std::shared_ptr<const Snapshot> snapshot_;
  Version version_;
  uint64_t examples_ = 0;
  CheckpointMark checkpoint_;
  Generation plan_;
  bool waits_only_ = false;
  bool is_whole_model_ = false;               // a fetch that came when there are no rounds any more
  std::optional<ReplicaTable> table_;         // of a replica's copy
  std::shared_ptr<const SiteSubnet> site_;    // of a subnet's answer
  std::unique_ptr<AnswerPayload> payload_;    // nullptr: the answer has none
  std::shared_ptr<const SparsePlace> place_;  // of a core's and an explorer's entries
  std::shared_ptr<const Core> core_;          // whose keys are the answer
  int core_form_ = 0;
  uint64_t cores_ = 0;
  bool need_keys_ = false;
  bool is_reader_ = false;
  bool has_begun_ = false;  // the header was sent
  int64_t bytes_ = 0;       // of the answer
  grpc::ByteBuffer message_;
};

}  // namespace tessera

#endif  // TESSERA_SERVER_RPC_PULL_CALL_H_
