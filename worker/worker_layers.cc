// WorkerProcess where workers train different layers: its door, and who is behind the others'.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/host_port.h"
#include "common/rpc/own_name.h"
#include "common/rpc/security.h"
#include "worker/worker_life.h"

namespace tessera {

absl::Status WorkerProcess::Listen() {
  const LayerSplit& split = *recipe_.split;
  LayerExchange::Options layers;
  layers.job_digest = digest_;
  layers.split = split;
  layers.rows_max = job_.train().batch_size();
  layers.features = shape_.widths[static_cast<size_t>(split.cut.layer)];
  layers.outputs = shape_.outputs();
  layers.has_classes = data_->train.has_classes();
  const bool may_be_linear =
      options_.rank < 0 || split.is_linear(Rank(static_cast<uint64_t>(options_.rank)));
  if (may_be_linear) TESSERA_RETURN_IF_ERROR(CheckListen(&layers.listen));
  TESSERA_ASSIGN_OR_RETURN(layers_, LayerExchange::Open(std::move(layers)));
  return absl::OkStatus();
}

absl::Status WorkerProcess::CheckListen(std::string* listen) const {
  const auto& servers = job_.cluster().servers().addresses();
  const bool is_spread =
      std::any_of(servers.begin(), servers.end(),
                  [](const std::string& address) { return !IsLoopback(address); });
  *listen = options_.listen;
  if (listen->empty() && is_spread) {
    return absl::InvalidArgumentError(
        absl::StrCat("--listen: not given, and ranks from ", recipe_.split->front_workers,
                     " on train the linear layers (method ", recipe_.name,
                     "); want a host:port of this machine at which the other workers reach it"));
  }
  if (listen->empty()) *listen = "127.0.0.1:0";
  if (IsAnyAddress(*listen) || (is_spread && IsLoopback(*listen))) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--listen: got \"", *listen, "\", want an address that the other machines can call"));
  }
  TESSERA_RETURN_IF_ERROR(tessera::CheckListen(*listen, job_.security()));
  return AwaitOwnName({"worker", *listen, "name an IP address of this machine in --listen"});
}

void WorkerProcess::BeginLayers() {
  LayerExchange::Life life;
  life.member = MemberId(admission_.member());
  life.rank = Rank(admission_.rank());
  life.workers = admission_.worker_list();
  // One that dies is out of the list after its lease, which may begin a little later.
  life.retry_time = 3 * absl::Nanoseconds(admission_.lease_timeout_ns());
  life.on_trouble = [client = coordinator_.get()] { client->RenewSoon(); };
  layers_->Begin(std::move(life));
}

void WorkerProcess::OnWorkers(const v1::WorkerList& list) {
  if (layers_ != nullptr) layers_->SetWorkers(list);
}

}  // namespace tessera
