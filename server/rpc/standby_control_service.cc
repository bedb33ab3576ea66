#include "server/rpc/standby_control_service.h"

#include <deque>
#include <utility>

#include "server/rpc/standing_call.h"

namespace tessera {
namespace {

struct HostPeer {
  using Incoming = v1::HostMessage;
  using Outgoing = v1::HostOrder;
  using Hello = v1::HostHello;
  static constexpr char kWho[] = "standby: host";

  static void Attach(LiveCoordinator* live, const Incoming& first, const void* connection,
                     LiveCoordinator::HostSink sink, LiveCoordinator::StatusDone done) {
    live->AttachHost(first.hello(), connection, std::move(sink), std::move(done));
  }
  static void OnMessage(LiveCoordinator* live, const Hello& hello, const void* connection,
                        const Incoming& message) {
    live->OnHostMessage(hello, connection, message);
  }
  static void Detach(LiveCoordinator* live, const Hello& hello, const void* connection) {
    live->DetachHost(hello, connection);
  }
  // An order has all roles: a later one says all that an earlier one did, but after a refusal nothing counts.
  static bool Queue(const Outgoing& order, std::deque<Outgoing>* queue) {
    if (queue->size() < 2) {
      queue->push_back(order);
    } else if (queue->back().refuse().empty()) {
      queue->back() = order;
    }
    return true;
  }
};

}  // namespace

grpc::ServerBidiReactor<v1::HostMessage, v1::HostOrder>* StandbyControlService::Attach(
    grpc::CallbackServerContext* context) {
  return new StandingCall<HostPeer>(live_, context, &refused_);
}

}  // namespace tessera
