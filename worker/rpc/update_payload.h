// One server's part of a push, as bytes.
#ifndef TESSERA_WORKER_RPC_UPDATE_PAYLOAD_H_
#define TESSERA_WORKER_RPC_UPDATE_PAYLOAD_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <grpcpp/support/slice.h>

#include "common/codec/coded_keys.h"
#include "common/codec/encoder.h"
#include "common/codec/error_feedback.h"
#include "worker/rpc/replica_runs.h"

namespace tessera {

// One thread at a time. However often it is rewound, the bytes are the same.
class UpdatePayload {
 public:
  virtual ~UpdatePayload() = default;
  // The bytes of the whole payload, and those that are left.
  virtual int64_t bytes() const = 0;
  virtual int64_t left() const = 0;
  virtual void Rewind() = 0;
  // The next bytes, at most `room`, which is Encoder::kRoomMin or more. `memory` is what slices hold
  // that lie in the replica.
  virtual std::vector<grpc::Slice> Next(int64_t room,
                                        const std::shared_ptr<const void>& memory) = 0;
};

// The payload in f32, sent from where the entries lie. `runs` must outlive it.
std::unique_ptr<UpdatePayload> PlainUpdate(UpdateRuns* runs);
// The payload that `keys` describe: made as it is sent, and made again when it is sent again. `runs` must outlive it.
// Bytes that were taken live for as long as a slice of them does.
std::unique_ptr<UpdatePayload> CodedUpdate(CodedKeys keys, const PayloadRandom& random,
                                           UpdateRuns* runs);
// An update's payload with error feedback: made once, and kept to be sent again. `residual` stands where the entries of
// `runs` begin; what it refers to must outlive the payload.
std::unique_ptr<UpdatePayload> FeedbackUpdate(CodedKeys keys, const PayloadRandom& random,
                                              UpdateRuns* runs, const ResidualCursor& residual);
// A payload of bytes that are there, which it owns.
std::unique_ptr<UpdatePayload> MadeUpdate(std::vector<char> bytes);
std::unique_ptr<UpdatePayload> MadeUpdate(std::shared_ptr<const std::vector<char>> bytes);

// A payload of bytes that are there, which somebody else owns and which must outlive it.
std::unique_ptr<UpdatePayload> BorrowedUpdate(const char* bytes, int64_t size);

// A payload that begins with other bytes and goes on with `rest`.
std::unique_ptr<UpdatePayload> PrefixedUpdate(std::string bytes,
                                              std::unique_ptr<UpdatePayload> rest);

}  // namespace tessera

#endif  // TESSERA_WORKER_RPC_UPDATE_PAYLOAD_H_
