// Who computes which half of the layers, and who sends its activations to whom: a function of the members that
// the servers count.
//
// Of the job's n workers with data the i-th sends to the (i m / n)-th of m linear ones, its home, so that each has
// as many, but for one. Where that one is gone it sends to the next one that is left, in a ring: as nobody comes
// back, it never returns to one that it has left, although workers hear of losses at different times.
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
};

// Constant after construction; any thread.
class LayerWorkers {
 public:
  LayerWorkers() = default;
  LayerWorkers(const v1::WorkerList& list, const LayerSplit& split);

  uint64_t generation() const { return generation_; }
  // nullopt: no such member has data.
  std::optional<Rank> RankOfFront(MemberId member) const;
  bool has_front() const { return !front_.empty(); }
  // To whom a worker that has data sends; nullopt: it is none, or nobody is left.
  std::optional<LayerWorker> LinearOf(MemberId front) const;
  // Those whose home this linear worker is, by rank.
  std::vector<LayerWorker> AtHomeWith(MemberId linear) const;

 private:
  Rank HomeOf(const LayerWorker& front) const;

  LayerSplit split_;
  uint64_t generation_ = 0;
  std::vector<LayerWorker> front_, linear_;
};

}  // namespace tessera

#endif  // TESSERA_WORKER_ACTIVATIONS_LAYER_WORKERS_H_
