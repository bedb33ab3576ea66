// Whoever the coordinator here has something to tell: servers and hosts by their connections, workers that wait for an
// evaluation.
#ifndef TESSERA_SERVER_RPC_COORDINATOR_CLIENTS_H_
#define TESSERA_SERVER_RPC_COORDINATOR_CLIENTS_H_

#include <cstdint>
#include <functional>
#include <map>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/base/ids.h"
#include "proto/coordinator.pb.h"
#include "proto/replication.pb.h"
#include "server/control/kept_coordinator.h"

namespace tessera {

// Answers to be given by whoever holds the coordinator's mutex, once it is free.
using CoordinatorAnswers = std::vector<std::function<void()>>;

// One thread at a time: LiveCoordinator's mutex is held.
class CoordinatorClients {
 public:
  // Takes a message to a server, or an order to a host, in order: it must queue and return. nullptr: there will be no
  // more, the connection is to end.
  using PlanSink = std::function<void(const v1::PlanMessage*)>;
  using HostSink = std::function<void(const v1::HostOrder*)>;
  using EvaluateDone = std::function<void(absl::StatusOr<v1::EvaluateReply>)>;

  // --- connections; `connection` names one. Another one of the same rank that is there is ended: should that be the
  // later one, which was overtaken, its process connects anew ---
  void Connect(ShardId server, const void* connection, PlanSink sink);
  void ConnectHost(uint32_t host, const void* connection, HostSink sink);
  bool IsConnected(ShardId server, const void* connection) const;
  bool IsHostConnected(uint32_t host, const void* connection) const;
  // No effect on one that has connected anew.
  void Disconnect(ShardId server, const void* connection);
  void DisconnectHost(uint32_t host, const void* connection);

  // --- workers' evaluations; `call` names one ---
  // The member waits for an answer to a call that came when so many events had been collected. An earlier call of the
  // member is answered that this one has replaced it.
  void AddWaiter(MemberId member, const void* call, uint64_t after_event, EvaluateDone done,
                 CoordinatorAnswers* answers);
  // The member's call is answered with `status`.
  void RefuseWaiter(MemberId member, const absl::Status& status, CoordinatorAnswers* answers);
  // The caller has gone. False: it was answered, or will be.
  bool ForgetWaiter(MemberId member, const void* call);

  void Tell(ShardId server, const v1::PlanMessage& message);
  void TellAllServers(const v1::PlanMessage& message);
  // Sends the messages and orders of a batch, the orders with `word`, and adds answers to waiting calls.
  void Send(KeptCoordinator::Batch* batch, const v1::CoordinatorWord& word,
            CoordinatorAnswers* answers);
  // The coordinator is gone: ends all connections, and answers all calls so.
  void EndAll(CoordinatorAnswers* answers);

 private:
  template <typename Send>
  struct End {
    const void* connection = nullptr;
    Send send;
  };
  struct Waiter {
    const void* call = nullptr;
    uint64_t after_event = 0;  // it came
    EvaluateDone done;
  };

  std::map<ShardId, End<PlanSink>> servers_;
  std::map<uint32_t, End<HostSink>> hosts_;
  std::map<MemberId, Waiter> waiters_;
};

}  // namespace tessera

#endif  // TESSERA_SERVER_RPC_COORDINATOR_CLIENTS_H_
