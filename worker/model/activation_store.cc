#include "worker/model/activation_store.h"

#include <algorithm>

#include "common/base/check.h"

namespace tessera {

// What is left at the end and is smaller than a page is not used.
void ActivationStore::AddRoom(const Values& room) {
  for (int64_t at = 0; at + page_floats_ <= room.floats; at += page_floats_) {
    free_.push_back(room.address + at);
  }
}

// Values lie one behind the other across pages, so that a piece wastes part of one page at most.
int64_t ActivationStore::PagesOf(absl::Span<const Values> values) const {
  int64_t floats = 0;
  for (const Values& each : values) floats += each.floats;
  return (floats + page_floats_ - 1) / page_floats_;
}

template <typename Copy>
void ActivationStore::ForRuns(const Piece& piece, absl::Span<const Values> values,
                              const Copy& copy) const {
  int64_t at = 0;  // in all pages together
  for (const Values& each : values) {
    for (int64_t done = 0; done < each.floats;) {
      const int64_t in_page = at % page_floats_;
      const int64_t run = std::min(each.floats - done, page_floats_ - in_page);
      copy(each.address + done, piece.pages.at(at / page_floats_) + in_page, run);
      done += run;
      at += run;
    }
  }
}

bool ActivationStore::Put(int64_t piece, int pass, absl::Span<const Values> values) {
  Piece& own = pieces_[piece];
  // A piece that is put once more reuses its own pages: it takes no more from the others than it grows by.
  const size_t wanted = PagesOf(values);
  // What was kept of the piece behind an earlier pass stays, and spares the work up to there.
  if (wanted > free_.size() + own.pages.size()) return false;
  while (own.pages.size() > wanted) {
    free_.push_back(own.pages.back());
    own.pages.pop_back();
  }
  while (own.pages.size() < wanted) {
    own.pages.push_back(free_.back());
    free_.pop_back();
  }
  own.pass = pass;
  ForRuns(own, values, [this](const float* value, float* page, int64_t floats) {
    memory_.Copy(value, floats * static_cast<int64_t>(sizeof(float)), page);
  });
  return true;
}

void ActivationStore::Get(int64_t piece, absl::Span<const Values> values) const {
  TESSERA_CHECK(PagesOf(values) == static_cast<int64_t>(pieces_[piece].pages.size()));
  ForRuns(pieces_[piece], values, [this](float* value, const float* page, int64_t floats) {
    memory_.Copy(page, floats * static_cast<int64_t>(sizeof(float)), value);
  });
}

}  // namespace tessera
