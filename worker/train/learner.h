// What a train loop asks of the model that it trains. A worker's is Replica; a simulation wraps one,
// or does without arithmetic. What evaluations and checkpoints ask of it are interfaces of their own.
#ifndef TESSERA_WORKER_TRAIN_LEARNER_H_
#define TESSERA_WORKER_TRAIN_LEARNER_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/keyset/key_set.h"
#include "common/keyset/subnet.h"
#include "worker/data/dataset.h"
#include "worker/exchange/exchange_keys.h"
#include "worker/exchange/parameter_client.h"
#include "worker/train/evaluated_model.h"
#include "worker/train/private_state.h"

namespace tessera {

// Told that a minibatch waits for another worker, and that it goes on.
class TrainWaits {
 public:
  virtual ~TrainWaits() = default;
  virtual void BeginWait() = 0;
  virtual void EndWait() = 0;
};

// Where one minibatch stands in the job.
struct TrainPoint {
  uint64_t step = 0;
  // What the learning rate of a local optimizer is multiplied by.
  float rate = 1;
  // FormUpdate follows, so that its work may begin with this minibatch's.
  bool last = false;
  // The rows of the minibatch after this one, where they are known: they may be made ready meanwhile.
  // Lives as long as the call.
  absl::Span<const uint32_t> next = {};
  // The learner trained the minibatch before, and nothing has been asked of it since but EndSteps: its
  // parameters are what that left.
  bool continues = false;
  // Where minibatches wait for other workers: told of it. nullptr: nobody.
  TrainWaits* waits = nullptr;
  // The newest that an exchange has brought (ExchangeResult::plan).
  Generation plan{};
  // The epoch of the rows, those of `next` included: augmentation draws anew in each.
  uint64_t epoch = 0;
};

// Mean losses of minibatches.
using Losses = std::vector<double>;

// One thread, the train loop's.
class Learner : public EvaluatedModel, public PrivateStateOwner {
 public:
  // Where pulled values are written, and from where the update is sent, each with its keys. One
  // array per exchanged parameter. Where keys are dense the arrays stay where they are; those of
  // subnets change with AdoptValues and Recut. Whose memory it is: worker/exchange/device_sides.h.
  virtual const ParameterArrays& values() const = 0;
  virtual const KeySet& value_keys() const = 0;
  virtual const ConstParameterArrays& update() const = 0;
  virtual const KeySet& update_keys() const = 0;
  // Examples that the last minibatch, which was of so many rows of the job's data, was computed from.
  virtual uint64_t examples(uint64_t rows) const { return rows; }
  // The updates that update() is the sum of; 0: update_keys() are none, as there is nothing to push.
  virtual uint64_t summed() const { return 1; }

  // Bytes of payloads that minibatches have brought from and to other workers.
  virtual int64_t exchanged_bytes() const { return 0; }

  // One minibatch: forward and backward, and the local optimizer where the method has one. Returns
  // the losses that are known by now and were not before, in the order of their minibatches: that of this
  // one, or, where a device is at work on it, of the one before.
  virtual absl::StatusOr<Losses> Train(const Dataset& data, absl::Span<const uint32_t> rows,
                                       const TrainPoint& point) = 0;
  // Waits for the losses that are not known yet. Before FormUpdate.
  virtual absl::StatusOr<Losses> EndSteps() { return Losses(); }
  // The last local step is done: makes update() what is to be sent.
  virtual absl::Status FormUpdate() = 0;
  // values() have just been replaced by the servers'.
  virtual absl::Status AdoptValues() = 0;
  // Where exchanges go on beside training (Recipe::overlaps), in this order from one to the next:
  //   FormUpdate           what was trained since the last exchange began is in update()
  //   AdoptEarlierValues   values() are those of that exchange: the replica becomes values() + update().
  //                        Not behind the first one, and not where AdoptValues followed it at once
  //   TrainOn              update() is on its way, and is left as it is until the next AdoptEarlierValues
  //                        or AdoptValues; the next FormUpdate's is of what is trained from here on
  // Where exchanges are of fragments (Recipe::fragments) values() are those of the fragment that TrainOn sent, and the
  // replica takes them up beside its own share.
  // Private state is then what it was at TrainOn: what was trained since goes with no exchange that a
  // checkpoint has.
  virtual absl::Status AdoptEarlierValues() { return CannotOverlap(); }
  virtual absl::Status TrainOn() { return CannotOverlap(); }
  // Whom an exchange tells of values() as they come; nullptr: AdoptValues is early enough. Between
  // exchanges the same for as long as value_keys() stay dense, or a subnet's.
  virtual ValueSink* value_sink() { return nullptr; }
  // The values to be pulled next are those of `place`, which is of the same round. Only where
  // value_keys() are a subnet's.
  //   kInvalidArgument    there is nothing to train at `place`
  //   kResourceExhausted  no memory
  virtual absl::Status Recut(const SubnetPlace& place) = 0;
  // The values to be pulled next, and exchanges from then on, are of the whole model: value_keys()
  // are dense from now on, update_keys() from AdoptValues on. At most once, and only where the
  // recipe has a tail.
  //   kResourceExhausted  no memory
  virtual absl::Status BeginTail() = 0;

  // Where exchanges move a core: what update_keys() and value_keys() follow from; nullptr elsewhere.
  virtual ExchangeKeys* exchange_keys() { return nullptr; }
  // Some of its values are its own, as exchanges have not moved them: an evaluation takes their place, and
  // EndEvaluation brings them back.
  virtual bool keeps_values() { return exchange_keys() != nullptr; }
  // values() have memory of their own, so that they may come while update() is being sent. Otherwise
  // they may be the same arrays, and are pulled when update() has gone and no evaluation is due.
  virtual bool pulls_apart() const = 0;

 private:
  static absl::Status CannotOverlap() {
    return absl::UnimplementedError(
        "learner: its exchanges cannot overlap with training; leave method.*.overlap out");
  }
};

}  // namespace tessera

#endif  // TESSERA_WORKER_TRAIN_LEARNER_H_
