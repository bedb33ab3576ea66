// The parameter client where servers change: replicas that come and go, and standbys that take over.
#include "worker/rpc/parameter_client_grpc.h"

#include <algorithm>

#include "common/base/limits.h"

namespace tessera {

void ParameterClientGrpc::SetServers(const v1::ServerList& list) {
  {
    absl::MutexLock lock(&mutex_);
    if (list.generation() <= wanted_servers_.generation()) return;
    wanted_servers_ = list;
  }
  servers_changed_.store(true, std::memory_order_release);
  board_.Notify();
  cores_.Notify();
}

void ParameterClientGrpc::FollowServers(bool between_exchanges) {
  if (!replicated() || !servers_changed_.load(std::memory_order_acquire)) return;
  v1::ServerList list;
  {
    absl::MutexLock lock(&mutex_);
    list = wanted_servers_;
    if (between_exchanges) servers_changed_.store(false, std::memory_order_relaxed);
  }
  std::vector<const v1::ServerEntry*> by_rank(servers_.size());
  for (const v1::ServerEntry& entry : list.servers()) {
    if (entry.rank() >= kServersMax) continue;
    if (entry.rank() >= by_rank.size()) by_rank.resize(entry.rank() + 1);
    by_rank[entry.rank()] = &entry;
  }
  if (between_exchanges) servers_.resize(by_rank.size());
  for (size_t s = 0; s < servers_.size(); ++s) {
    const uint64_t life = by_rank[s] == nullptr ? 0 : by_rank[s]->life();
    if (servers_[s].life == life) continue;
    for (Task& task : tasks_) task.given_up = task.given_up || task.server == s;
    if (!between_exchanges) continue;
    servers_[s].life = life;
    servers_[s].stubs.clear();
    if (life == 0) continue;
    servers_[s].address = by_rank[s]->address();
    Connect(&servers_[s]);
  }
}

void ParameterClientGrpc::FollowLeaders() {
  if (!options_.has_standbys || !servers_changed_.exchange(false, std::memory_order_acquire)) {
    return;
  }
  v1::ServerList list;
  {
    absl::MutexLock lock(&mutex_);
    list = wanted_servers_;
  }
  for (const v1::ServerEntry& entry : list.servers()) {
    if (entry.rank() >= servers_.size()) continue;
    Server& server = servers_[entry.rank()];
    if (server.life == entry.life()) continue;
    const bool is_other = server.life != 0 || server.address != entry.address();
    server.life = entry.life();
    if (!is_other) continue;
    server.address = entry.address();
    Connect(&server);
    const bool pushes = std::any_of(tasks_.begin(), tasks_.end(), [&](const Task& task) {
      return task.server == entry.rank() && task.is_push && !task.done;
    });
    for (Task& task : tasks_) {
      if (task.server != entry.rank()) continue;
      // What it answered while the push was open may have been lost with it.
      if (pushes && !task.is_push) task.done = false;
      if (task.done) continue;
      task.retry.Restart();
      if (task.call != nullptr) task.call->Cancel();
    }
    cores_.Repeat(entry.rank());
  }
}

}  // namespace tessera
