// What the train loop knows of the servers: values come, updates go, and each call says what it
// cost.
//
// The memory is the replica's own: pulled values are written straight into it, and updates are sent
// straight from it.
#ifndef TESSERA_WORKER_EXCHANGE_PARAMETER_CLIENT_H_
#define TESSERA_WORKER_EXCHANGE_PARAMETER_CLIENT_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/base/ids.h"
#include "common/keyset/key_set.h"
#include "common/keyset/subnet.h"
#include "common/method/recipe.h"
#include "worker/exchange/row_source.h"
#include "worker/exchange/traffic.h"

namespace tessera {

// One array per parameter, whole, in the order of ModelShape.parameters. For the keys of a subnet:
// the subnet's own parameters. For the keys of layers those of other layers may be empty. In the host's
// memory, but for the values and updates of exchanges where DeviceSides (device_sides.h) says otherwise;
// Read's are the host's always.
using ParameterArrays = std::vector<absl::Span<float>>;
using ConstParameterArrays = std::vector<absl::Span<const float>>;

// Told of pulled values as they come, so that they may go on while others are on their way.
class ValueSink {
 public:
  virtual ~ValueSink() = default;
  // All of values[parameter] is there. Parameters come in their order, on the thread that pulls. Where a
  // server has to be asked again they come again, from the first on: what is there then counts.
  virtual void Take(size_t parameter) = 0;
};

// One push, beside its values.
struct OutgoingPush {
  Exchange exchange;
  // Rows that the update was computed from.
  uint64_t examples = 0;
  // An evaluation or the end is due after it, and nobody need wait for this worker meanwhile.
  IdleNotice rest = {};
  // nullopt: that of the job's method.
  std::optional<PayloadKind> kind = std::nullopt;
  // In a subnet's push: this worker's next exchange is of the whole model.
  bool whole_next = false;
  // It brings all that the codec has held back, as f32.
  bool flush = false;
  // Told of the values that are pulled behind it; it need not be told of all. nullptr: nobody.
  ValueSink* sink = nullptr;
  // In a push of layers: it is the sum of this many updates, which all count in the mean.
  uint64_t summed = 1;
};

// What an exchange brought beside the values, and where its time went for the thread that called.
struct ExchangeResult {
  // Rows that the updates in the values were computed from, over the whole job.
  uint64_t job_examples = 0;
  // The newest plan that a server counted by when it answered: whoever takes part in the next exchange is in it
  // where that is fixed before the exchange begins (of subnets, and of halves of the layers).
  Generation plan;
  double push_seconds = 0;  // until every server had acknowledged the push
  double wait_seconds = 0;  // until the first value came: others had to push first
  double pull_seconds = 0;  // from then until the last value was in place
  // The answer to a pull of a subnet where the round is cut otherwise, and for this worker thus. What had been pushed
  // is done, but the values are undefined: pull again, with the keys of this place.
  std::optional<SubnetPlace> recut;
  // The answer to a pull of a subnet where exchanges are of the whole model by now. What had been pushed is done, but
  // the values are undefined: pull the whole model.
  bool is_whole = false;
  // Where exchanges move a core: those that have been selected so far, by the server that has most.
  uint64_t cores = 0;
  // The answer to a pull of a core's entries where a server does not know that core. What had been pushed is done, but
  // the values are undefined: pull all entries.
  bool needs_all = false;
  // The values after the caller's exchange are in this checkpoint (worker_state.h); 0: none.
  uint64_t checkpoint_number = 0;
  uint64_t checkpoint_step = 0;
};

// By server, its part of a core.
using Cores = std::vector<std::shared_ptr<const Core>>;

// Speaks to all servers at once. One thread, the train loop's. Keys and arrays are borrowed for the
// length of a call.
//
// ReadRows, of RowSource, asks the servers that own some of the rows, and counts as a read outside the
// exchange. Its versions are the base of no push. Errors as of Pull.
class ParameterClient : public RowSource {
 public:
  // Overwrites `values` with the servers' values of `keys` and remembers their versions as the base
  // of the next push. Waits until the job's consistency policy lets a worker read that has finished
  // exchange `after`; a subnet's round is the one after that.
  //   kFailedPrecondition  no member any more; the message says why
  //   kUnavailable         a server could not be reached within the retry time
  // On error `values` are undefined.
  virtual absl::StatusOr<ExchangeResult> Pull(Exchange after, const KeySet& keys,
                                              const ParameterArrays& values) = 0;

  // Pushes `update`, which has the entries of `update_keys`, then pulls those of `value_keys` as
  // above, with `after` = push.exchange. The pull is asked for at once, so an exchange takes one
  // round trip. `update` and `values` do not overlap. Of subnets, the one that is pushed is of round
  // push.exchange. Of layers, both are of the same ones, but that a push may be of none: nothing is sent then, and
  // all servers are told so.
  virtual absl::StatusOr<ExchangeResult> PushPull(const OutgoingPush& push,
                                                  const KeySet& update_keys,
                                                  const ConstParameterArrays& update,
                                                  const KeySet& value_keys,
                                                  const ParameterArrays& values) = 0;

  // Pushes and pulls in two calls, between which none but traffic is made: the exchange is on its way when
  // BeginPushPull returns, and goes on beside what the caller does then. `update` and what keys and values refer to are
  // in use until the other call has returned; a `sink` is told in that one. Times are those that the second call took.
  // The default is for a client that does one thing at a time: it exchanges in the second call.
  virtual absl::Status BeginPushPull(const OutgoingPush& push, const KeySet& update_keys,
                                     const ConstParameterArrays& update, const KeySet& value_keys,
                                     const ParameterArrays& values) {
    begun_ = {push, &update_keys, &update, &value_keys, &values};
    return absl::OkStatus();
  }
  virtual absl::StatusOr<ExchangeResult> EndPushPull() {
    return PushPull(begun_.push, *begun_.update_keys, *begun_.update, *begun_.value_keys,
                    *begun_.values);
  }
  // To be called in place of EndPushPull: what has not gone does not go, and nothing is in use any more.
  virtual void DropPushPull() {}

  // Reads all committed values, outside any exchange, for a worker that has finished exchange `after`; answered at
  // once. Their versions become the base of the next push. `word`: others need not wait for this worker from now on, or
  // have to again.
  virtual absl::StatusOr<ExchangeResult> Read(Exchange after, IdleNotice word,
                                              const ParameterArrays& values) = 0;

  // Where exchanges move a core: asks all servers for the keys of this one, or of a later one where it
  // is not the last, and returns at once; TakeCores returns them once all have selected it. They come
  // while something else is done, but nothing else is asked for meanwhile than exchanges. Errors as of
  // Pull, and of TakeCores alone. A client that is never used there need not have them.
  virtual void AskCores(uint64_t number) {}
  virtual absl::StatusOr<Cores> TakeCores() {
    return absl::UnimplementedError("parameter client: exchanges move no core");
  }

  virtual Traffic traffic() const = 0;

  // Between calls: views of what a codec holds back of each exchanged parameter, which may be written, and empty ones
  // of parameters that this worker does not exchange;
  // AdoptHeldBack goes on from there. Most hold back nothing. An error is a device's.
  virtual absl::StatusOr<std::vector<absl::Span<float>>> held_back() {
    return std::vector<absl::Span<float>>();
  }
  virtual absl::Status AdoptHeldBack() { return absl::OkStatus(); }
  // Between calls: what a codec has learned of updates and goes by, which may be written. Most learn nothing.
  virtual absl::Span<float> learned() { return {}; }

 private:
  struct Begun {
    OutgoingPush push;
    const KeySet* update_keys = nullptr;
    const ConstParameterArrays* update = nullptr;
    const KeySet* value_keys = nullptr;
    const ParameterArrays* values = nullptr;
  };
  Begun begun_;
};

}  // namespace tessera

#endif  // TESSERA_WORKER_EXCHANGE_PARAMETER_CLIENT_H_
