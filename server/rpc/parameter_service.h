// The data plane's gRPC service: bytes in and out as they are, without protobuf's copy.
#ifndef TESSERA_SERVER_RPC_PARAMETER_SERVICE_H_
#define TESSERA_SERVER_RPC_PARAMETER_SERVICE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <grpcpp/impl/codegen/service_type.h>

#include "absl/status/status.h"
#include "common/base/ids.h"
#include "server/rpc/data_plane.h"
#include "server/rpc/local_calls.h"
#include "server/shard/shard_thread.h"

namespace tessera {

// Answers Pull, Push and FetchSubnet (proto/parameter_server.proto) for one shard. No gRPC thread
// waits here: a call that must wait is an entry in the shard's lists.
//
// Order at the end: GrpcServer::Shutdown, which waits for the calls, as these do for the shard's thread. No call uses
// this or the shard's thread afterwards, and either may go first; but whoever has the shard's thread ask this for
// its traffic ends that thread first.
class ParameterService {
 public:
  // `shard` must outlive the calls. Calls of another job or of a generation before `generation` are
  // refused. Of one host so many pushes may be open of which not even the header has come; each may hold a
  // message of memory. Another one makes the oldest give way, as do answers of coded or gathered values where a host's
  // readers leave more than `unread_bytes_per_host` of them unread.
  ParameterService(ShardThread* shard, std::string job_digest, Generation generation,
                   int64_t half_open_pushes_per_host = kHalfOpenPushesPerHost,
                   int64_t unread_bytes_per_host = kUnreadAnswerBytes);
  // Serves no shard yet. Who names none means `own`.
  ParameterService(ShardId own, std::string job_digest,
                   int64_t half_open_pushes_per_host = kHalfOpenPushesPerHost,
                   int64_t unread_bytes_per_host = kUnreadAnswerBytes);
  ~ParameterService();

  // As DataPlanes::ShareMemory. Where it is not called, or has failed, all calls and bytes go over gRPC. EndLocalCalls
  // comes before the end of the shard's thread then.
  absl::Status ShareMemory();
  // Shares memory with nobody any more: ends the calls that came by it, and returns when all have ended. A second time
  // it does nothing. Behind GrpcServer::Shutdown, so that no member comes again.
  void EndLocalCalls();
  // Members that share memory with this server, in the order of their numbers.
  std::vector<uint64_t> memory_members() const {
    return planes_.door() == nullptr ? std::vector<uint64_t>() : planes_.door()->members();
  }

  // The service that GrpcServer is to serve.
  grpc::Service* service();

  // Any thread. `shard` must outlive the calls.
  void Add(ShardThread* shard) { planes_.Add(shard); }
  void SetServerKey(uint64_t key) { planes_.SetServerKey(key); }
  uint64_t server_key() const { return planes_.server_key(); }
  void SetLife(uint64_t life) { planes_.SetLife(life); }
  void SetGeneration(Generation generation) { planes_.SetGeneration(generation); }
  // Members are refused with kUnavailable while the coordinator is away, as that shard's link has it.
  void SetAway(ShardId shard, bool away) { planes_.SetAway(shard, away); }
  UnreadReplies& unread_answers() { return planes_.unread_answers(); }
  DataPlaneTraffic traffic() const { return planes_.traffic(); }
  DataPlaneTraffic traffic(ShardId shard) const { return planes_.traffic(shard); }

 private:
  class Service;

  DataPlanes planes_;
  LocalCalls local_calls_{&planes_};
  const std::unique_ptr<Service> service_;
};

}  // namespace tessera

#endif  // TESSERA_SERVER_RPC_PARAMETER_SERVICE_H_
