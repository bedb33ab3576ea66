// Activations of a sample's pieces, kept from one pass over the sample to the next, as far as there is room.
#ifndef TESSERA_WORKER_MODEL_ACTIVATION_STORE_H_
#define TESSERA_WORKER_MODEL_ACTIVATION_STORE_H_

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "kernels/memory.h"

namespace tessera {

// Device memory, cut into pages of one size, so that what pieces keep may grow and shrink, and lie anywhere. Copies are
// queued behind the kernels before them.
class ActivationStore {
 public:
  struct Values {
    float* address = nullptr;
    int64_t floats = 0;
  };

  // `memory` outlives it. `pieces`: how many there are, of which it has nothing.
  ActivationStore(int64_t page_floats, int64_t pieces, Memory* memory)
      : page_floats_(page_floats), memory_(*memory), pieces_(pieces) {}

  // Adds memory, which outlives the store: as many pages as there are in it.
  void AddRoom(const Values& room);

  // Keeps copies of the values, in place of what was kept of the piece. False: there is no room, and that stays.
  bool Put(int64_t piece, int pass, absl::Span<const Values> values);
  // The pass behind which the piece was kept last; -1: never.
  int pass(int64_t piece) const { return pieces_[piece].pass; }
  // Copies what is kept to the values' addresses, which are as many and as large as they were.
  void Get(int64_t piece, absl::Span<const Values> values) const;

 private:
  struct Piece {
    int pass = -1;
    std::vector<float*> pages;
  };
  int64_t PagesOf(absl::Span<const Values> values) const;
  // Calls copy(value's address, page's address, floats) for all that lies together.
  template <typename Copy>
  void ForRuns(const Piece& piece, absl::Span<const Values> values, const Copy& copy) const;

  const int64_t page_floats_;
  Memory& memory_;
  std::vector<float*> free_;
  std::vector<Piece> pieces_;
};

}  // namespace tessera

#endif  // TESSERA_WORKER_MODEL_ACTIVATION_STORE_H_
