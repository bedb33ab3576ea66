#include "deploy/simulate/exchange_sizes.h"

#include <algorithm>
#include <string>

#include "common/rpc/chunk.h"
#include "common/rpc/key_set_message.h"
#include "common/rpc/transport.h"
#include "proto/activations.pb.h"

namespace tessera {
namespace {

constexpr int64_t kFieldHeadBytes = 5;  // tag and length of a payload

// The sizes are those of messages whose numbers have grown to these, as they do in a job: a varint has a byte for each
// 7 bits.
constexpr uint64_t kExchanges = 1000;
constexpr uint64_t kExamples = 1000000;

// A stream of chunks whose first one carries `head_bytes` beside its payload.
int64_t StreamWireBytes(int64_t head_bytes, int64_t payload_bytes) {
  int64_t bytes = 0;
  // A push without payload still has a chunk, with its header.
  do {
    const int64_t piece = std::min(kChunkBytes, payload_bytes);
    bytes += WireBytes(head_bytes + piece + (piece > 0 ? kFieldHeadBytes : 0));
    head_bytes = 0;
    payload_bytes -= piece;
  } while (payload_bytes > 0);
  return bytes;
}

}  // namespace

v1::Caller CallerOf(MemberId member, absl::string_view job_digest) {
  v1::Caller caller;
  caller.set_member(member.value());
  caller.set_job_digest(std::string(job_digest));
  caller.set_generation(1);
  return caller;
}

int64_t PushWireBytes(const v1::Caller& caller, const KeySet& keys, int64_t payload_bytes) {
  v1::PushChunk push;
  v1::PushHeader& header = *push.mutable_header();
  *header.mutable_caller() = caller;
  *header.mutable_keys() = ToMessage(keys.On(0));
  if (keys.layers.has_value()) header.set_summed(1);
  header.set_exchange(kExchanges);
  header.set_base_version(kExchanges);
  // All bits, since a hash may have any.
  header.set_layout_hash(~uint64_t{0});
  header.set_examples(kExchanges);
  header.set_payload_bytes(payload_bytes);
  return kCallWireBytes + StreamWireBytes(push.ByteSizeLong(), payload_bytes);
}

int64_t PullWireBytes(const v1::Caller& caller, const KeySet& keys) {
  v1::PullRequest request;
  *request.mutable_caller() = caller;
  *request.mutable_keys() = ToMessage(keys.On(0));
  request.set_after_exchange(kExchanges);
  return kCallWireBytes + WireBytes(request.ByteSizeLong());
}

int64_t FetchWireBytes(const v1::Caller& caller, const KeySet& keys) {
  v1::SubnetRequest request;
  *request.mutable_caller() = caller;
  SetKeys(keys, &request);
  return kCallWireBytes + WireBytes(request.ByteSizeLong());
}

int64_t AnswerWireBytes(const SiteSubnet* site, int64_t payload_bytes) {
  v1::Chunk answer;
  answer.mutable_header()->set_version(kExchanges);
  answer.mutable_header()->set_layout_hash(~uint64_t{0});
  answer.mutable_header()->set_examples(kExamples);
  if (site == nullptr) return StreamWireBytes(answer.ByteSizeLong(), payload_bytes);
  answer.mutable_header()->set_payload_bytes(payload_bytes);
  *answer.mutable_header()->mutable_subnet() = ToMessage(site->place());
  // The header of a fetch goes alone, as the server knows the cut before it has the values.
  return StreamWireBytes(answer.ByteSizeLong(), 0) +
         (payload_bytes > 0 ? StreamWireBytes(0, payload_bytes) : 0);
}

int64_t ActivationWireBytes(const v1::Caller& caller, int64_t label_bytes,
                            int64_t activation_bytes) {
  v1::ActivationChunk chunk;
  v1::ActivationHeader& header = *chunk.mutable_header();
  header.set_member(caller.member());
  header.set_job_digest(caller.job_digest());
  header.set_step(kExchanges);
  header.set_rows(kExchanges);
  header.set_has_classes(true);
  header.set_payload_bytes(static_cast<uint64_t>(label_bytes + activation_bytes));
  // Labels and activations are sent from memories of their own, in chunks of their own.
  return kCallWireBytes + StreamWireBytes(static_cast<int64_t>(chunk.ByteSizeLong()), label_bytes) +
         StreamWireBytes(0, activation_bytes);
}

int64_t GradientWireBytes(int64_t gradient_bytes) {
  v1::GradientChunk chunk;
  // A gradient that came too late has no bytes.
  chunk.mutable_header()->set_too_late(gradient_bytes == 0);
  chunk.mutable_header()->set_loss(1);
  chunk.mutable_header()->set_payload_bytes(static_cast<uint64_t>(gradient_bytes));
  return StreamWireBytes(static_cast<int64_t>(chunk.ByteSizeLong()), gradient_bytes);
}

ExchangeSizes SizesOf(const ShardSlices& slices, MemberId member, absl::string_view job_digest) {
  const v1::Caller caller = CallerOf(member, job_digest);
  ExchangeSizes sizes;
  sizes.push_payload_bytes = slices.bytes();
  sizes.push_wire_bytes = PushWireBytes(caller, KeySet(), slices.bytes());
  sizes.pull_request_wire_bytes = PullWireBytes(caller, KeySet());
  sizes.pull_payload_bytes = slices.bytes();
  sizes.pull_wire_bytes = AnswerWireBytes(nullptr, slices.bytes());
  return sizes;
}

}  // namespace tessera
