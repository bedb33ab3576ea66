// What a worker asks of its way to those that train the other half of the layers.
#ifndef TESSERA_WORKER_LAYER_PARTNERS_H_
#define TESSERA_WORKER_LAYER_PARTNERS_H_

#include <functional>
#include <string>

#include "absl/time/time.h"
#include "common/base/ids.h"
#include "proto/peers.pb.h"

namespace tessera {

class ActivationReceiver;
class ActivationSender;

// Any thread.
class LayerPartners {
 public:
  // What belongs to one membership: a worker that joins again begins another one.
  struct Life {
    MemberId member;
    Rank rank;
    v1::WorkerList workers;
    // As ActivationClient::Options.
    absl::Duration retry_time = absl::Seconds(10);
    std::function<void()> on_trouble = [] {};
  };

  virtual ~LayerPartners() = default;

  // Where others reach this worker; empty: nowhere.
  virtual std::string address() const = 0;
  // One of the two is there between Begin and End, by rank.
  virtual void Begin(Life life) = 0;
  virtual ActivationSender* sender() const = 0;
  virtual ActivationReceiver* receiver() const = 0;
  // May be called at any time: a list that comes before Begin is not said again.
  virtual void SetWorkers(const v1::WorkerList& list) = 0;
  // Whether the coordinator, which says whom this worker may call, is away.
  virtual void SetAway(bool away) = 0;
  // This worker is to leave, in this membership or the next: it waits for none of a half that has nobody left.
  virtual void Leave() = 0;
  // Ends what waits in this membership.
  virtual void Cancel() = 0;
  virtual void End() = 0;
};

}  // namespace tessera

#endif  // TESSERA_WORKER_LAYER_PARTNERS_H_
