#include "worker/layer_door.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/host_port.h"
#include "common/base/log.h"
#include "common/rpc/own_name.h"
#include "common/rpc/security.h"
#include "worker/rpc/layer_exchange.h"

namespace tessera {
namespace {

absl::StatusOr<std::string> AddressOf(const WorkerOptions& options, const PreparedWorker& worker) {
  const auto& servers = worker.job.cluster().servers().addresses();
  const bool is_spread =
      std::any_of(servers.begin(), servers.end(),
                  [](const std::string& address) { return !IsLoopback(address); });
  std::string listen = options.listen;
  if (listen.empty() && is_spread) {
    return absl::InvalidArgumentError(
        absl::StrCat("--listen: not given, and ranks from ", worker.recipe.split->front_workers,
                     " on train the linear layers (method ", worker.recipe.name,
                     "); want a host:port of this machine at which the other workers reach it"));
  }
  if (listen.empty()) listen = "127.0.0.1:0";
  if (IsAnyAddress(listen) || (is_spread && IsLoopback(listen))) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--listen: got \"", listen, "\", want an address that the other machines can call"));
  }
  TESSERA_RETURN_IF_ERROR(CheckListen(listen, worker.job.security()));
  TESSERA_RETURN_IF_ERROR(
      AwaitOwnName({"worker", listen, "name an IP address of this machine in --listen"}));
  return listen;
}

}  // namespace

absl::StatusOr<std::unique_ptr<LayerPartners>> OpenLayerDoor(const WorkerOptions& options,
                                                             const PreparedWorker& worker) {
  if (!worker.recipe.split) {
    if (!options.listen.empty()) {
      Log(LogLevel::kWarning,
          absl::StrCat("worker: --listen ", options.listen, " has no use: with method ",
                       worker.recipe.name, " no other worker calls this one"));
    }
    return nullptr;
  }
  const LayerSplit& split = *worker.recipe.split;
  LayerExchange::Options layers;
  layers.job_digest = worker.digest;
  layers.split = split;
  layers.rows_max = worker.job.train().batch_size();
  layers.features = worker.shape.widths[static_cast<size_t>(split.cut.layer)];
  layers.outputs = worker.shape.outputs();
  layers.has_classes = worker.data->train.has_classes();
  const bool may_be_linear =
      options.rank < 0 || split.is_linear(Rank(static_cast<uint64_t>(options.rank)));
  if (may_be_linear) {
    TESSERA_ASSIGN_OR_RETURN(layers.listen, AddressOf(options, worker));
  }
  return LayerExchange::Open(std::move(layers));
}

}  // namespace tessera
