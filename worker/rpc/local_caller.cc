#include "worker/rpc/local_caller.h"

#include <optional>
#include <string>
#include <vector>

#include <grpcpp/support/slice.h>

#include "absl/status/statusor.h"

namespace tessera {
namespace {

// What the body of a kEnd says.
std::string TextOf(const grpc::ByteBuffer& body) {
  std::string text;
  std::vector<grpc::Slice> slices;
  if (!body.Dump(&slices).ok()) return text;
  for (const grpc::Slice& slice : slices) {
    text.append(reinterpret_cast<const char*>(slice.begin()), slice.size());
  }
  return text;
}

}  // namespace

uint32_t LocalCaller::Begin(PacketKind kind, const grpc::ByteBuffer& request, LocalAnswer* answer) {
  // A number that a call of long ago still has is passed over.
  do {
    ++last_;
  } while (calls_.count(last_) > 0);
  const uint32_t call = last_;
  calls_[call] = answer;
  const absl::Status sent = SendPacket(link_->connection(), call, kind, request);
  // The code is one that is tried again, whatever the system has said: another way may be open.
  if (!sent.ok()) End(call, absl::UnavailableError(sent.message()));
  return call;
}

void LocalCaller::Cancel(uint32_t call) {
  if (calls_.count(call) == 0) return;
  // The server need not answer. Whether it hears so makes no difference here.
  static_cast<void>(SendPacket(link_->connection(), call, PacketKind::kCancel, grpc::ByteBuffer()));
  End(call, absl::CancelledError("local call: cancelled"));
}

void LocalCaller::Take() {
  while (true) {
    absl::StatusOr<std::optional<LocalPacket>> packet = reader_.Next(link_->connection());
    if (packet.ok() && !packet->has_value()) return;
    if (packet.ok()) {
      Tell(**std::move(packet));
      continue;
    }
    // What has broken the connection makes no difference: the calls are made again over gRPC.
    while (!calls_.empty()) {
      End(calls_.begin()->first,
          absl::UnavailableError("local call: the server has ended, or has closed the link"));
    }
    return;
  }
}

void LocalCaller::End(uint32_t call, const absl::Status& status) {
  const auto found = calls_.find(call);
  LocalAnswer* const answer = found->second;
  // Before it is told, as whoever is told may begin another call.
  calls_.erase(found);
  answer->OnEnd(status);
}

void LocalCaller::Tell(LocalPacket packet) {
  const auto found = calls_.find(packet.call);
  // It was cancelled meanwhile.
  if (found == calls_.end()) return;
  if (packet.kind == PacketKind::kEnd) {
    return End(packet.call, absl::Status(packet.code, TextOf(packet.body)));
  }
  if (!found->second->OnMessage(std::move(packet.body))) return Cancel(packet.call);
  if (packet.kind == PacketKind::kLast) End(packet.call, absl::OkStatus());
}

}  // namespace tessera
