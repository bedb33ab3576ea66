// The payload of an answer to a pull or a fetch, made as the network takes it.
#ifndef TESSERA_SERVER_RPC_ANSWER_PAYLOAD_H_
#define TESSERA_SERVER_RPC_ANSWER_PAYLOAD_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <grpcpp/support/slice.h>

#include "common/codec/coded_keys.h"
#include "common/codec/encoder.h"
#include "server/shard/block_store.h"
#include "server/shard/forms/exchanged_entries.h"

namespace tessera {

// One thread at a time.
class AnswerPayload {
 public:
  // With less room than this nothing may come, unless it is all that is left.
  static constexpr int64_t kRoomMin = Encoder::kRoomMin;

  virtual ~AnswerPayload() = default;
  // Bytes that are left.
  virtual int64_t left() const = 0;
  // The next bytes, at most `room`; some, if `room` is kRoomMin or more.
  virtual std::vector<grpc::Slice> Next(int64_t room) = 0;
  // Values lie in memory that is sent as it is.
  virtual bool is_borrowed() const { return false; }
};

// f32, from where the values lie: `entries` from entry `begin` of the dense order on.
std::unique_ptr<AnswerPayload> DensePayload(std::shared_ptr<const Snapshot> snapshot, int64_t begin,
                                            int64_t entries);
// f32, gathered: `entries` of `source`.
std::unique_ptr<AnswerPayload> GatheredPayload(int64_t entries,
                                               std::unique_ptr<EntrySource> source);
// `keys`, which must outlive this, say how the entries of `source` are written.
std::unique_ptr<AnswerPayload> CodedPayload(const CodedKeys& keys, const PayloadRandom& random,
                                            std::unique_ptr<EntrySource> source);

// Bytes that are there.
std::unique_ptr<AnswerPayload> BytesPayload(std::string bytes);

}  // namespace tessera

#endif  // TESSERA_SERVER_RPC_ANSWER_PAYLOAD_H_
