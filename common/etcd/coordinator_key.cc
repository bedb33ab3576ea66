#include "common/etcd/coordinator_key.h"

#include <chrono>
#include <optional>

#include <grpcpp/client_context.h>

#include "absl/strings/str_cat.h"
#include "common/base/host_port.h"
#include "common/base/printable.h"
#include "common/base/steady_clock.h"
#include "common/rpc/control_channel.h"

namespace tessera {
namespace {

// All calls of a process share what one look found for this long, so that a lost coordinator does not flood etcd.
constexpr absl::Duration kAskInterval = absl::Milliseconds(200);
// How long one server is asked where etcd does not answer, and how long all that are asked in one look.
constexpr std::chrono::milliseconds kServerTimeout{300};
constexpr absl::Duration kServersTime = absl::Milliseconds(700);

}  // namespace

std::string EtcdPrefix(const std::string& job_digest) {
  return absl::StrCat("tessera/", job_digest);
}

absl::StatusOr<std::string> CoordinatorAddressIn(absl::string_view key, absl::string_view value) {
  if (IsHostPort(value)) return std::string(value);
  constexpr size_t kQuoted = 64;
  return absl::UnavailableError(
      absl::StrCat("etcd's key ", key, " is \"", ToPrintable(value.substr(0, kQuoted)),
                   "\", want HOST:PORT of the coordinator; others write to this etcd"));
}

CoordinatorFinder::CoordinatorFinder(EtcdClient* etcd, const std::string& job_digest,
                                     std::vector<std::string> servers)
    : etcd_(etcd),
      key_(EtcdPrefix(job_digest) + "/coordinator"),
      found_(absl::UnavailableError("the coordinator is still looked for")) {
  for (std::string& server : servers) servers_.push_back({std::move(server), nullptr});
}

std::string CoordinatorFinder::AskServers() {
  // Servers hear from the coordinator and go on knowing its address while etcd has no quorum.
  std::string heard;
  const absl::Time end = SteadyNow() + kServersTime;
  for (size_t asked = 0; asked < servers_.size() && SteadyNow() < end; ++asked) {
    auto& [address, stub] = servers_[next_];
    // The next look begins behind the last server asked, so that one that hangs does not take the whole time each time.
    next_ = (next_ + 1) % servers_.size();
    if (stub == nullptr) stub = v1::Status::NewStub(OpenControlChannel(address, Role::kViewer));
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + kServerTimeout);
    v1::JobStatus status;
    v1::StatusRequest request;
    request.set_recent_history(true);
    if (!stub->Get(&context, request, &status).ok()) continue;
    const v1::CoordinatorStatus& coordinator = status.coordinator();
    // A server that knows where the state is kept is the coordinator itself.
    if (!coordinator.store().empty()) return address;
    if (!coordinator.is_away() && !coordinator.address().empty()) heard = coordinator.address();
  }
  return heard;
}

absl::StatusOr<std::string> CoordinatorFinder::Look() {
  const absl::StatusOr<std::optional<EtcdValue>> value = etcd_->Get(key_);
  if (value.ok() && value->has_value() && !(*value)->value.empty()) {
    return CoordinatorAddressIn(key_, (*value)->value);
  }
  // etcd answers and has no key: between two coordinators there is none, and servers would tell of the old one.
  if (value.ok()) return absl::UnavailableError("etcd names no coordinator of this job");
  std::string heard = AskServers();
  if (!heard.empty()) return heard;
  return absl::UnavailableError(
      absl::StrCat("nobody says who has been elected coordinator: ", value.status().message()));
}

absl::StatusOr<std::string> CoordinatorFinder::Find() {
  {
    // One thread looks and all others take its last answer, as a look may take a second.
    absl::MutexLock lock(&mutex_);
    if (is_looking_ || SteadyNow() - asked_ < kAskInterval) return found_;
    is_looking_ = true;
  }
  const absl::StatusOr<std::string> found = Look();
  absl::MutexLock lock(&mutex_);
  is_looking_ = false;
  found_ = found;
  asked_ = SteadyNow();
  return found_;
}

}  // namespace tessera
