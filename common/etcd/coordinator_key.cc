#include "common/etcd/coordinator_key.h"

#include <chrono>
#include <optional>

#include <grpcpp/client_context.h>

#include "absl/strings/str_cat.h"
#include "common/base/steady_clock.h"
#include "common/rpc/control_channel.h"

namespace tessera {
namespace {

constexpr absl::Duration kAskInterval = absl::Milliseconds(200);
// Of a server that is asked where etcd does not answer.
constexpr std::chrono::milliseconds kServerTimeout{300};

}  // namespace

std::string EtcdPrefix(const std::string& job_digest) {
  return absl::StrCat("tessera/", job_digest);
}

CoordinatorFinder::CoordinatorFinder(EtcdClient* etcd, const std::string& job_digest,
                                     std::vector<std::string> servers)
    : etcd_(etcd), key_(EtcdPrefix(job_digest) + "/coordinator") {
  for (std::string& server : servers) servers_.push_back({std::move(server), nullptr});
}

std::string CoordinatorFinder::AskServers() {
  std::string heard;
  for (auto& [address, stub] : servers_) {
    if (stub == nullptr) stub = v1::Status::NewStub(OpenControlChannel(address, Role::kViewer));
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + kServerTimeout);
    v1::JobStatus status;
    if (!stub->Get(&context, v1::StatusRequest(), &status).ok()) continue;
    const v1::CoordinatorStatus& coordinator = status.coordinator();
    // It is the coordinator itself.
    if (!coordinator.store().empty()) return address;
    if (!coordinator.is_away() && !coordinator.address().empty()) heard = coordinator.address();
  }
  return heard;
}

std::string CoordinatorFinder::Find() {
  absl::MutexLock lock(&mutex_);
  if (SteadyNow() - asked_ < kAskInterval) return address_;
  const absl::StatusOr<std::optional<EtcdValue>> value = etcd_->Get(key_);
  if (!value.ok()) {
    address_ = AskServers();
  } else {
    address_ = value->has_value() ? (*value)->value : "";
  }
  asked_ = SteadyNow();
  return address_;
}

}  // namespace tessera
