#include "server/rpc/coordinator_clients.h"

#include <utility>

namespace tessera {
namespace {

// A client that connects again has lost its earlier connection without the coordinator noticing: that one is ended
// first.
template <typename Ends, typename Rank, typename Send>
void Replace(Ends* ends, Rank rank, const void* connection, Send send) {
  auto& end = (*ends)[rank];
  if (end.send != nullptr && end.connection != connection) end.send(nullptr);
  end = {connection, std::move(send)};
}

template <typename Ends, typename Rank>
bool Has(const Ends& ends, Rank rank, const void* connection) {
  const auto end = ends.find(rank);
  return end != ends.end() && end->second.connection == connection;
}

}  // namespace

void CoordinatorClients::Connect(ShardId server, const void* connection, PlanSink sink) {
  Replace(&servers_, server, connection, std::move(sink));
}

void CoordinatorClients::ConnectHost(uint32_t host, const void* connection, HostSink sink) {
  Replace(&hosts_, host, connection, std::move(sink));
}

bool CoordinatorClients::IsConnected(ShardId server, const void* connection) const {
  return Has(servers_, server, connection);
}

bool CoordinatorClients::IsHostConnected(uint32_t host, const void* connection) const {
  return Has(hosts_, host, connection);
}

// A connection that was replaced ends later, and must not take the new one with it.
void CoordinatorClients::Disconnect(ShardId server, const void* connection) {
  if (IsConnected(server, connection)) servers_.erase(server);
}

void CoordinatorClients::DisconnectHost(uint32_t host, const void* connection) {
  if (IsHostConnected(host, connection)) hosts_.erase(host);
}

void CoordinatorClients::AddWaiter(MemberId member, const void* call, uint64_t after_event,
                                   EvaluateDone done, CoordinatorAnswers* answers) {
  // Only one stage of a member's evaluation is asked for at a time: the earlier call was given up by its worker.
  RefuseWaiter(member, absl::AbortedError("evaluate: a later call of this member replaced it"),
               answers);
  waiters_[member] = {call, after_event, std::move(done)};
}

void CoordinatorClients::RefuseWaiter(MemberId member, const absl::Status& status,
                                      CoordinatorAnswers* answers) {
  const auto waiter = waiters_.find(member);
  if (waiter == waiters_.end()) return;
  // Answers are collected and given without the lock, as a caller may call again at once.
  answers->push_back([done = std::move(waiter->second.done), status] { done(status); });
  waiters_.erase(waiter);
}

bool CoordinatorClients::ForgetWaiter(MemberId member, const void* call) {
  const auto waiter = waiters_.find(member);
  if (waiter == waiters_.end() || waiter->second.call != call) return false;
  waiters_.erase(waiter);
  return true;
}

void CoordinatorClients::Tell(ShardId server, const v1::PlanMessage& message) {
  const auto end = servers_.find(server);
  if (end != servers_.end()) end->second.send(&message);
}

void CoordinatorClients::TellAllServers(const v1::PlanMessage& message) {
  for (auto& [server, end] : servers_) end.send(&message);
}

void CoordinatorClients::Send(KeptCoordinator::Batch* batch, const v1::CoordinatorWord& word,
                              CoordinatorAnswers* answers) {
  for (const Outgoing& outgoing : batch->outbox) Tell(outgoing.server, outgoing.message);
  for (HostOutgoing& outgoing : batch->host_outbox) {
    const auto host = hosts_.find(outgoing.host);
    if (host == hosts_.end()) continue;
    *outgoing.order.mutable_word() = word;
    host->second.send(&outgoing.order);
  }
  for (Coordinator::EvaluateAnswer& answer : batch->replies) {
    const auto waiter = waiters_.find(answer.member);
    // Nobody waits: the connection broke, and the worker will ask again, or has, and perhaps for what is next.
    // An answer goes to a call that came before the event which made it: a later call asks for something else.
    if (waiter == waiters_.end() || waiter->second.after_event >= batch->event) continue;
    answers->push_back(
        [done = std::move(waiter->second.done), reply = std::move(answer.reply)] { done(reply); });
    waiters_.erase(waiter);
  }
}

void CoordinatorClients::EndAll(CoordinatorAnswers* answers) {
  for (auto& [server, end] : servers_) end.send(nullptr);
  servers_.clear();
  for (auto& [host, end] : hosts_) end.send(nullptr);
  hosts_.clear();
  for (auto& [member, waiter] : waiters_) {
    answers->push_back([done = std::move(waiter.done)] {
      done(absl::UnavailableError("the coordinator is gone"));
    });
  }
  waiters_.clear();
}

}  // namespace tessera
