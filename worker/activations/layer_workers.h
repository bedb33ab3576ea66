// Who computes which half of the layers, and who sends its activations to whom: a function of the members that
// the servers count, and of the step.
//
// Of the job's n workers with data the i-th sends to the (i m / n)-th of m linear ones, its home, so that each has
// as many, but for one. Where that one is gone it sends to the next one that is left, in a ring: within a step nobody
// comes back, so that it never returns to one that it has left, although workers hear of losses at different times.
// Whoever joins takes part from its first step on, which all know before they begin it.
#ifndef TESSERA_WORKER_ACTIVATIONS_LAYER_WORKERS_H_
#define TESSERA_WORKER_ACTIVATIONS_LAYER_WORKERS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/base/ids.h"
#include "common/method/recipe.h"
#include "proto/peers.pb.h"

namespace tessera {

struct LayerWorker {
  MemberId member;
  Rank rank;
  // host:port; of a linear worker.
  std::string address;
  uint64_t first_step = 0;
};

// Constant after construction; any thread.
class LayerWorkers {
 public:
  LayerWorkers() = default;
  LayerWorkers(const v1::WorkerList& list, const LayerSplit& split);

  Generation generation() const { return generation_; }
  bool Has(MemberId member) const;
  // nullopt: no such member has data.
  std::optional<Rank> RankOfFront(MemberId member) const;
  // Somebody has data, in that step or later.
  bool has_front() const { return !front_.empty(); }
  // To whom a worker that has data sends its batch of `step`; nullopt: it is none, or nobody is left.
  std::optional<LayerWorker> LinearOf(MemberId front, uint64_t step) const;
  // Nobody has the linear layers in `step`, but somebody will in a later one.
  bool LinearComesLater(uint64_t step) const;
  // The workers whose home this linear worker is, by rank, and that take part in `step`.
  std::vector<LayerWorker> AtHomeWith(MemberId linear, uint64_t step) const;
  // `front` sent to `linear` at step `since`: the first step after it, up to `step`, from which on somebody who has
  // joined comes before that one. nullopt: it has no reason to send elsewhere.
  std::optional<uint64_t> LeftAt(MemberId front, MemberId linear, uint64_t since,
                                 uint64_t step) const;

 private:
  Rank HomeOf(const LayerWorker& front) const;
  // The number of steps along the ring of linear workers from a home.
  uint64_t Distance(Rank home, Rank linear) const;

  LayerSplit split_;
  Generation generation_;
  std::vector<LayerWorker> front_, linear_;
  // Linear ones that have joined and are gone.
  std::vector<LayerWorker> former_;
};

}  // namespace tessera

#endif  // TESSERA_WORKER_ACTIVATIONS_LAYER_WORKERS_H_
