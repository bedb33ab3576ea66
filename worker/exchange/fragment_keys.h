// Which entries a worker's exchanges move where these are of fragments of the model, one after the other, and what
// becomes of its own values there (Recipe::fragments).
#ifndef TESSERA_WORKER_EXCHANGE_FRAGMENT_KEYS_H_
#define TESSERA_WORKER_EXCHANGE_FRAGMENT_KEYS_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "common/base/ids.h"
#include "common/keyset/key_set.h"
#include "common/layout/parameters.h"
#include "common/method/recipe.h"
#include "kernels/memory.h"
#include "kernels/vector.h"

namespace tessera {

// One thread, the train loop's.
class FragmentKeys {
 public:
  // Entries [offset, offset + size) of a parameter.
  struct Run {
    size_t parameter = 0;
    int64_t offset = 0;
    int64_t size = 0;
  };

  // `first`: the worker's first exchange.
  FragmentKeys(const ModelShape& shape, int servers, const FragmentTurns& turns, Exchange first);

  // The keys of the next exchange. Values are those of all entries until some have come for the first time.
  const KeySet& value_keys() const { return has_values_ ? next().keys : dense_; }
  const KeySet& update_keys() const { return next().keys; }
  // What the next exchange pushes, by parameter.
  absl::Span<const Run> pushed() const { return next().runs; }
  absl::Span<const Run> PushedOf(size_t parameter) const;

  // The exchange's push is on its way, and the next one is of the next fragment.
  void Begin();
  // What Begin sent has come back. Returns of which entries.
  absl::Span<const Run> EndBegun() const { return fragments_[begun_].runs; }
  // An exchange was made without Begin. Returns of which entries.
  absl::Span<const Run> End();
  // Whether values have come; TakeAll says that all have.
  bool has_values() const { return has_values_; }
  void TakeAll() { has_values_ = true; }

  // now = alpha now + (1 - alpha) incoming, and base = incoming, of so many entries each.
  void TakeUp(int64_t count, const float* incoming, float* now, float* base, Memory* memory,
              VectorKernel* vector) const;

 private:
  struct Part {
    KeySet keys;
    std::vector<Run> runs;  // by parameter and offset
  };
  const Part& next() const { return fragments_[next_]; }
  void Advance() { next_ = (next_ + 1) % fragments_.size(); }

  const float alpha_;
  const KeySet dense_;
  std::vector<Part> fragments_;
  size_t next_;
  size_t begun_ = 0;
  bool has_values_ = false;
};

}  // namespace tessera

#endif  // TESSERA_WORKER_EXCHANGE_FRAGMENT_KEYS_H_
