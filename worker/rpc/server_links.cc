#include "worker/rpc/server_links.h"

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/limits.h"
#include "common/rpc/transport.h"

namespace tessera {
namespace {

// nullptr: nobody has the rank.
std::vector<const v1::ServerEntry*> ByRank(const v1::ServerList& list, size_t ranks_least) {
  std::vector<const v1::ServerEntry*> by_rank(ranks_least);
  for (const v1::ServerEntry& entry : list.servers()) {
    // A rank beyond the limit would be used as an index.
    if (entry.rank() >= kServersMax) continue;
    if (entry.rank() >= by_rank.size()) by_rank.resize(entry.rank() + 1);
    by_rank[entry.rank()] = &entry;
  }
  return by_rank;
}

uint64_t LifeOf(const v1::ServerEntry* entry) { return entry == nullptr ? 0 : entry->life(); }

}  // namespace

ServerLinks::ServerLinks(Options options)
    : options_(std::move(options)), servers_(options_.addresses.size()) {
  for (size_t s = 0; s < servers_.size(); ++s) {
    servers_[s].address = options_.addresses[s];
    Reconnect(s);
  }
}

void ServerLinks::Reconnect(size_t server) {
  Server& to = servers_[server];
  to.stubs.clear();
  to.memory.reset();
  const std::string name = absl::StrCat(server, " at ", to.address);
  to.stripes = std::make_unique<StripeConnections>(name, to.address);
  // A connection for each direction, where there are two, so that large pushes do not hold up pulls.
  for (int i = 0; i < options_.channels_per_server; ++i) {
    const std::shared_ptr<grpc::Channel> channel = OpenChannel(to.address);
    to.stubs.push_back(std::make_unique<grpc::GenericStub>(channel));
    if (i > 0 || !options_.shares_memory.has_value()) continue;
    v1::Caller caller = *options_.shares_memory;
    Name(server, &caller);
    to.memory = LinkedServer::Create(name, channel, caller);
  }
}

std::shared_ptr<LocalCaller> ServerLinks::memory(size_t server) {
  LinkedServer* const memory = servers_[server].memory.get();
  return memory == nullptr ? nullptr : memory->caller();
}

void ServerLinks::LeaveMemory(size_t server) {
  if (servers_[server].memory != nullptr) servers_[server].memory->Leave();
}

void ServerLinks::Name(size_t server, v1::Caller* caller) const {
  if (options_.has_standbys) caller->set_shard(static_cast<uint32_t>(server));
  // With replicated placement a server that was started anew has another number, and refuses calls for the one before.
  if (is_replicated()) caller->set_life(servers_[server].life);
}

bool ServerLinks::Set(const v1::ServerList& list) {
  {
    absl::MutexLock lock(&mutex_);
    // Lists may overtake each other on their way.
    if (list.generation() <= wanted_.generation()) return false;
    wanted_ = list;
  }
  changed_.store(true, std::memory_order_release);
  return true;
}

v1::ServerList ServerLinks::wanted() const {
  absl::MutexLock lock(&mutex_);
  return wanted_;
}

void ServerLinks::TakeUp() {
  // Only between exchanges: tasks are numbered by server.
  if (!is_replicated() || !changed_.exchange(false, std::memory_order_acquire)) return;
  const v1::ServerList list = wanted();
  const std::vector<const v1::ServerEntry*> by_rank = ByRank(list, servers_.size());
  servers_.resize(by_rank.size());
  for (size_t s = 0; s < servers_.size(); ++s) {
    Server& server = servers_[s];
    // The server is the same process as before.
    if (server.life == LifeOf(by_rank[s])) continue;
    server.life = LifeOf(by_rank[s]);
    server.stubs.clear();
    // Nobody has this rank now.
    if (server.life == 0) continue;
    server.address = by_rank[s]->address();
    Reconnect(s);
  }
}

std::vector<size_t> ServerLinks::Gone() {
  std::vector<size_t> gone;
  if (!is_replicated() || !changed_.load(std::memory_order_acquire)) return gone;
  const v1::ServerList list = wanted();
  const std::vector<const v1::ServerEntry*> by_rank = ByRank(list, servers_.size());
  // Their calls are given up. TakeUp goes on without them at the next exchange.
  for (size_t s = 0; s < servers_.size(); ++s) {
    if (servers_[s].life != LifeOf(by_rank[s])) gone.push_back(s);
  }
  return gone;
}

std::vector<size_t> ServerLinks::Move() {
  std::vector<size_t> moved;
  if (!options_.has_standbys || !changed_.exchange(false, std::memory_order_acquire)) return moved;
  const v1::ServerList list = wanted();
  for (const v1::ServerEntry& entry : list.servers()) {
    if (entry.rank() >= servers_.size()) continue;
    Server& server = servers_[entry.rank()];
    if (server.life == entry.life()) continue;
    // The first list names the servers that the job file named: nothing has moved.
    const bool is_other = server.life != 0 || server.address != entry.address();
    server.life = entry.life();
    if (!is_other) continue;
    server.address = entry.address();
    Reconnect(entry.rank());
    moved.push_back(entry.rank());
  }
  return moved;
}

}  // namespace tessera
