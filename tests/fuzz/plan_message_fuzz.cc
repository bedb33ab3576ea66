// What a server does when a coordinator tells it anything: plans, proposals, orders and questions to the shard that it
// leads, over gRPC, and the roles of a host.
//
//   input = 0 job(1) begins_from(1) (message choices)*     a shard's link
//         | 1 (order choices)*                             a host's roles
#include <algorithm>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <grpcpp/grpcpp.h>

#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "absl/time/time.h"
#include "common/base/check.h"
#include "common/rpc/grpc_server.h"
#include "proto/coordinator.grpc.pb.h"
#include "proto/replication.pb.h"
#include "server/rpc/attach_link.h"
#include "server/rpc/host_roles.h"
#include "server/shard/shard_thread.h"
#include "tests/fuzz/fuzz_input.h"
#include "tests/fuzz/fuzz_job.h"

namespace tessera {
namespace {

// Longer is a server that has stopped listening.
constexpr absl::Duration kEndLimit = absl::Seconds(15);
constexpr int kMessagesMax = 12;
constexpr uint32_t kShards = 3;

// Says what it was told to, and then that the job has ended, to whoever comes; a later connection hears the end alone.
class Coordinator final : public v1::Coordinator::Service {
 public:
  Coordinator() {
    auto started = GrpcServer::Start({"127.0.0.1:0", {this}});
    TESSERA_CHECK(started.ok());
    server_ = *std::move(started);
  }
  ~Coordinator() override { server_->Shutdown(absl::ZeroDuration()); }
  const std::string& address() const { return server_->address(); }

  void Say(std::vector<v1::PlanMessage> script) {
    absl::MutexLock lock(&mutex_);
    script_ = std::move(script);
  }

  grpc::Status Attach(
      grpc::ServerContext*,
      grpc::ServerReaderWriter<v1::PlanMessage, v1::ShardMessage>* stream) override {
    v1::ShardMessage heard;
    if (!stream->Read(&heard) || !heard.has_hello()) return grpc::Status();
    std::vector<v1::PlanMessage> script;
    {
      absl::MutexLock lock(&mutex_);
      script.swap(script_);
    }
    for (const v1::PlanMessage& message : script) {
      if (!stream->Write(message)) return grpc::Status();
    }
    v1::PlanMessage end;
    // A server that has believed what it was told of terms believes those.
    end.mutable_word()->set_run(heard.hello().run());
    end.mutable_word()->set_term(heard.hello().term());
    end.mutable_word()->set_changes(heard.hello().changes());
    end.set_drain(true);
    if (!stream->Write(end)) return grpc::Status();
    while (stream->Read(&heard) && !heard.counters().closing()) {
    }
    return grpc::Status();
  }

 private:
  absl::Mutex mutex_;
  std::vector<v1::PlanMessage> script_ ABSL_GUARDED_BY(mutex_);
  std::unique_ptr<GrpcServer> server_;
};

Coordinator& TheCoordinator() {
  static auto* const coordinator = new Coordinator;
  return *coordinator;
}

class Messages {
 public:
  explicit Messages(FuzzInput* input) : in_(*input) {}

  std::vector<v1::PlanMessage> All() {
    std::vector<v1::PlanMessage> all;
    while (!in_.ended() && all.size() < kMessagesMax) all.push_back(One());
    return all;
  }

 private:
  uint64_t Exchange() { return in_.Count(); }

  v1::Plan MakePlan() {
    v1::Plan plan;
    plan.set_generation(in_.Count());
    const uint64_t members = in_.Below(4);
    for (uint64_t i = 0; i < members; ++i) {
      v1::Member& member = *plan.add_members();
      member.set_member(in_.Byte() < 224 ? i + 1 : in_.Count());
      member.set_rank(static_cast<uint32_t>(in_.Byte() < 224 ? i : in_.Count()));
      member.set_first_exchange(in_.Byte() < 224 ? 1 + in_.Below(4) : Exchange());
    }
    for (uint64_t left = in_.Below(8) / 6; left > 0; --left) {
      v1::DepartedSite& departed = *plan.add_departed_sites();
      departed.set_member(8 + in_.Below(3));
      departed.set_rank(static_cast<uint32_t>(in_.Count()));
      departed.set_first_exchange(1 + Exchange());
      departed.set_until_exchange(Exchange());
    }
    for (uint64_t left = in_.Below(8) / 6; left > 0; --left) {
      v1::PartShares& shares = *plan.add_shares();
      shares.set_first_exchange(Exchange());
      for (uint64_t i = in_.Below(4); i > 0; --i) {
        shares.add_members(i);
        shares.add_shares(static_cast<uint32_t>(in_.Count()));
      }
    }
    return plan;
  }

  v1::PlanMessage One() {
    v1::PlanMessage message;
    switch (in_.Below(10)) {
      case 0:
      case 1:
      case 2:
        *message.mutable_plan() = MakePlan();
        break;
      case 3:
      case 4:
        message.mutable_propose()->set_proposal(in_.Count());
        if (in_.Bit()) message.mutable_propose()->mutable_member()->set_member(in_.Count());
        message.mutable_propose()->mutable_member()->set_first_exchange(Exchange());
        break;
      case 5:
        message.set_withdraw(in_.Count());
        break;
      case 6:
        message.mutable_checkpoint()->mutable_mark()->set_number(in_.Count());
        message.mutable_checkpoint()->mutable_mark()->set_folder_step(in_.Count());
        message.mutable_checkpoint()->set_after_exchange(Exchange());
        break;
      case 7: {
        v1::CoreQuestion& question = *message.mutable_core_question();
        question.set_core(in_.Count());
        question.set_stage(static_cast<uint32_t>(in_.Count()));
        question.set_bucket_first(static_cast<uint32_t>(in_.Count()));
        question.set_bucket_last(static_cast<uint32_t>(in_.Count()));
        question.set_fine(static_cast<uint32_t>(in_.Count()));
        question.set_all_ties(in_.Bit());
        for (uint64_t left = in_.Below(4); left > 0; --left) question.add_ties(in_.Count());
        break;
      }
      case 8:
        message.mutable_restore()->set_generation(in_.Count());
        message.mutable_restore()->set_step(in_.Count());
        break;
      case 9:
        if (in_.Bit()) message.set_copy_from("127.0.0.1:1");
        if (in_.Byte() >= 224) message.set_refuse("not this one");
        if (in_.Byte() >= 224) message.mutable_word()->set_term(in_.Count());
        if (in_.Byte() >= 224) message.mutable_word()->set_run(in_.Count());
        break;
    }
    if (in_.Byte() < 240) return message;
    v1::PlanMessage more;
    const absl::string_view piece = in_.Piece();
    if (more.ParseFromArray(piece.data(), static_cast<int>(piece.size()))) message.MergeFrom(more);
    return message;
  }

  FuzzInput& in_;
};

ShardThread::View ViewOf(ShardThread* shard) {
  absl::Notification done;
  ShardThread::View view;
  shard->Inspect(true, [&](ShardThread::View seen) {
    view = std::move(seen);
    done.Notify();
  });
  TESSERA_CHECK(done.WaitForNotificationWithTimeout(kEndLimit));
  return view;
}

// No message but a restore's touches a parameter, and after all of them the shard still answers.
void TalkToShard(const FuzzJob& job, FuzzInput* input) {
  ShardThread shard(job.MakeShard());
  const uint64_t before = ViewOf(&shard).parameters_hash;
  absl::Notification ended;
  absl::Status end;
  AttachLink::Options options;
  options.coordinator = TheCoordinator().address();
  options.address = "server:0";
  options.job_digest = job.digest;
  options.lease_timeout = absl::Seconds(60);
  options.shard = &shard;
  if (input->Byte() >= 240) options.begins_from = "there";
  options.save = [](const v1::CheckpointOrder& order,
                    const std::function<void(v1::CheckpointPart)>& done) {
    v1::CheckpointPart part;
    part.set_number(order.mark().number());
    done(std::move(part));
  };
  options.restore = [](const v1::RestoreOrder& order,
                       const std::function<void(absl::Status)>& done) {
    done(order.step() % 2 == 0 ? absl::OkStatus() : absl::NotFoundError("there is none"));
  };
  options.on_end = [&](absl::Status status) {
    end = std::move(status);
    ended.Notify();
  };
  TheCoordinator().Say(Messages(input).All());
  const AttachLink link(std::move(options));
  TESSERA_CHECK(ended.WaitForNotificationWithTimeout(kEndLimit));
  TESSERA_CHECK(end.ok() || !end.message().empty());
  TESSERA_CHECK(end.ok() || absl::IsFailedPrecondition(end) || absl::IsAborted(end));
  const ShardThread::View after = ViewOf(&shard);
  TESSERA_CHECK(after.parameters_hash == before && after.counters.pushes == 0);
}

v1::HostOrder MakeOrder(FuzzInput* input) {
  v1::HostOrder order;
  for (uint64_t left = input->Below(4); left > 0; --left) {
    v1::ShardOrder& shard = *order.add_shards();
    shard.set_shard(
        static_cast<uint32_t>(input->Byte() < 224 ? input->Below(kShards) : input->Count()));
    shard.set_role(static_cast<v1::ShardRole>(input->Byte() < 224 ? 1 + input->Below(2)
                                                                  : input->Count() & 0xff));
    shard.set_term(input->Below(4));
    shard.set_lead_term(input->Below(2));
    if (input->Bit()) shard.set_standby("there:1");
  }
  return order;
}

// Whoever follows a shard does not lead it, and what is refused leaves the roles as they were.
void TellRoles(FuzzInput* input) {
  HostRoles roles(kShards);
  v1::HostOrder last;
  std::set<ShardId> leads;
  for (int orders = 0; !input->ended() && orders < 100; ++orders) {
    const v1::HostOrder order = MakeOrder(input);
    const absl::StatusOr<RoleChanges> changes = roles.Take(order);
    if (absl::IsFailedPrecondition(changes.status())) return;  // The process ends.
    if (!changes.ok()) {
      TESSERA_CHECK(absl::IsInvalidArgument(changes.status()));
      TESSERA_CHECK(orders == 0 || last.shards_size() == 0 || roles.Take(last)->is_same);
      continue;
    }
    last = order;
    if (changes->is_same) continue;
    for (const auto& [shard, term] : changes->lead) TESSERA_CHECK(leads.insert(shard).second);
    std::set<ShardId> fed;
    for (const RoleChanges::Feed& feed : changes->feed) {
      TESSERA_CHECK(leads.count(feed.shard) > 0 && fed.insert(feed.shard).second);
    }
    for (const ShardId shard : changes->followed) {
      TESSERA_CHECK(shard < ShardId(kShards) && leads.count(shard) == 0);
      TESSERA_CHECK(changes->follow.count(shard) > 0);
    }
  }
}

}  // namespace
}  // namespace tessera

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tessera;
  FuzzInput input(data, size);
  if (input.Bit()) {
    TellRoles(&input);
    return 0;
  }
  const std::vector<FuzzJob>& jobs = FuzzJobs();
  TalkToShard(jobs[input.Below(jobs.size())], &input);
  return 0;
}
