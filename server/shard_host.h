// The shards that one server process answers for: its own, and where the job keeps standbys those that it
// follows and has taken over.
#ifndef TESSERA_SERVER_SHARD_HOST_H_
#define TESSERA_SERVER_SHARD_HOST_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include <grpcpp/channel.h>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/base/wakeup.h"
#include "proto/replication.pb.h"
#include "proto/status.pb.h"
#include "server/rpc/attach_link.h"
#include "server/rpc/followed_shards.h"
#include "server/rpc/host_link.h"
#include "server/rpc/host_roles.h"
#include "server/rpc/parameter_service.h"
#include "server/rpc/replica_copier.h"
#include "server/rpc/replicator.h"
#include "server/rpc/standby_host.h"
#include "server/server_checkpoints.h"
#include "server/shard/shard.h"
#include "server/shard/shard_thread.h"
#include "server/shard_loader.h"

namespace tessera {

// Any thread.
class ShardHost {
 public:
  struct Options {
    uint32_t rank = 0;
    // The number of the job's shards, and the job's digest.
    uint32_t shard_count = 1;
    std::string job_digest;
    // The text that the digest is of, for a coordinator that has another job.
    std::string job_text;
    uint64_t initial_sum = 0;  // JobFacts::initial_sum
    uint64_t layout_hash = 0;
    absl::Duration lease_timeout;
    // The limits that ParameterService is given.
    int64_t half_open_pushes_per_host = 0;
    int64_t unread_bytes_per_host = 0;
    // Payloads go by memory to and from workers of this machine and user, where the system lets them.
    bool shares_memory = false;
    // If set, every server holds the whole model, and copies another one where it joins late.
    bool is_replica = false;
    // If set, the coordinator says what is led and what is followed (proto/replication.proto). Otherwise the
    // server's own shard is led from the start.
    bool keeps_standbys = false;
    // What a shard is made of, by the rank whose it is. Any thread.
    std::function<Shard::Options(uint32_t rank)> shard_options;
    // The server's checkpoints, which outlive this.
    ServerCheckpoints* checkpoints = nullptr;
    // Passed on to AttachLink; empty: the coordinator stays where it is.
    std::function<absl::StatusOr<std::string>()> find_coordinator;
    // Passed on to AttachLink.
    std::function<std::shared_ptr<grpc::Channel>(const std::string& at)> open_coordinator;
    // Called once, by any thread, when the job has ended for this process, or it cannot go on: as
    // AttachLink's on_end.
    std::function<void(absl::Status)> on_end;
  };

  explicit ShardHost(Options options);
  // Called after the gRPC server's end.
  ~ShardHost();

  // The services, which are given to GrpcServer and outlive it.
  std::vector<grpc::Service*> services();
  // Behind the end of the gRPC server that has them.
  void EndLocalCalls() { service_->EndLocalCalls(); }
  // Begins: the server is reached at `address` from now on.
  void Start(const std::string& coordinator, const std::string& address);
  // Ends all links: nothing is said or heard afterwards; calls are still answered, but for what a standby has yet
  // to get.
  void Disconnect();

  // Tells the coordinator that the process wants to end while the job goes on. What it waits for is in the log;
  // on_end follows, with OK, when it may end, or when the job has ended.
  void Leave();
  // Whether the process ends and the job does not.
  bool has_left() const {
    absl::MutexLock lock(&mutex_);
    return has_left_;
  }
  v1::JobStatus OwnStatus() const;
  // Where the coordinator was heard last, and of which run of the job: 0 where it was not.
  std::string coordinator() const;
  uint64_t run() const;

 private:
  // Rings while there is a link.
  struct Bell {
    absl::Mutex mutex;
    HostLink* link ABSL_GUARDED_BY(mutex) = nullptr;
  };
  // One shard that is led.
  struct Led {
    uint64_t lead_term = 0;
    std::unique_ptr<ServerCheckpoints> own_checkpoints;
    ServerCheckpoints* checkpoints = nullptr;
    std::unique_ptr<ShardThread> shard;
    std::unique_ptr<ShardLoader> loader;    // until Disconnect
    std::unique_ptr<ReplicaCopier> copier;  // where servers are replicas
    std::shared_ptr<Replicator> replicator;
    // Bytes of values that all its replicators have sent.
    std::shared_ptr<std::atomic<uint64_t>> replicated = std::make_shared<std::atomic<uint64_t>>(0);
    std::unique_ptr<AttachLink> link;
    bool ended = false;
  };

  // Makes a shard, which may take longer than a lease where it is large: call this without the mutex, and not on a
  // thread that others wait for. `awaits_load`: as Shard::Options has it.
  std::unique_ptr<Shard> MakeShard(uint32_t rank, bool awaits_load = false) const;
  // nullptr: the shard is made while the coordinator hears of its server already.
  void Lead(uint32_t rank, std::unique_ptr<Shard> shard, uint64_t lead_term)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  AttachLink::Options LinkOptions(uint32_t rank, Led* led) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  const AttachLink* AnyLink() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // The number by which the run's servers know each other was heard.
  void SetServerKey(uint64_t key);
  void OnOrder(const v1::HostOrder& order);
  void Obey(const RoleChanges& changes) ABSL_LOCKS_EXCLUDED(mutex_);
  // Runs in the thread that makes what standbys begin with.
  void PrepareStandbys();
  void SaySoon();
  void Feed(const RoleChanges::Feed& feed) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  v1::HostMessage Message();
  void OnLinkEnded(uint32_t rank, absl::Status status);
  // Called with what the coordinator answers to Leave.
  void OnLeave(const v1::LeaveAnswer& answer);
  void End(absl::Status status);

  const Options options_;
  std::string coordinator_;
  std::string address_;
  uint64_t life_ = 0;  // as replica
  // This stands before the shards, whose threads ask it for its traffic until they have ended.
  std::unique_ptr<ParameterService> service_;
  mutable absl::Mutex mutex_;
  std::map<uint32_t, Led> led_ ABSL_GUARDED_BY(mutex_);
  bool disconnected_ ABSL_GUARDED_BY(mutex_) = false;
  bool ended_ ABSL_GUARDED_BY(mutex_) = false;
  bool leaving_ ABSL_GUARDED_BY(mutex_) = false;
  bool has_left_ ABSL_GUARDED_BY(mutex_) = false;
  std::string leave_told_ ABSL_GUARDED_BY(mutex_);  // for whom it waits, as the log has it
  // Set where the job keeps standbys.
  std::unique_ptr<FollowedShards> followed_;
  std::unique_ptr<StandbyHost> standbys_;
  const std::shared_ptr<Bell> bell_ = std::make_shared<Bell>();
  std::unique_ptr<HostLink> host_link_;
  HostRoles roles_;  // its thread's
  Wakeup prepare_;   // there may be a standby to make, or this is the end
  std::thread preparer_;
};

}  // namespace tessera

#endif  // TESSERA_SERVER_SHARD_HOST_H_
