// All that a shard has of cores at a moment when no update is half collected, for a standby that begins with it.
//
// Arrays lie in a payload, in this order, each of the shard's size in f32:
//   gradient                what pushes of all entries have changed since the last selection, where any came
//   selection's values      what a core is being selected from, where the shard's own have changed since
//   selection's gradient    so, where there is one
// and behind them the keys of each known core, as they are written (common/keyset/entry_keys.h).
#ifndef TESSERA_SERVER_SHARD_FORMS_CORES_IMAGE_H_
#define TESSERA_SERVER_SHARD_FORMS_CORES_IMAGE_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "common/base/ids.h"
#include "common/keyset/significance.h"
#include "common/keyset/sparse_keys.h"
#include "server/core/core_words.h"

namespace tessera {

// A selection of a core under way.
struct SelectionImage {
  uint64_t core = 0;
  // Sums over what it is selected from.
  MagnitudeSums sums;
  bool has_values = false;
  bool has_gradient = false;
  // The questions that were asked so far, and are answered or being answered.
  std::vector<CoreQuestion> questions;
};

struct CoresImage {
  struct Known {
    CoreName name;
    int key_form = 0;
    int64_t keys_bytes = 0;
  };

  // The cores that are known, in the order in which they became so.
  std::vector<Known> known;
  std::vector<MemberId> pushed_all;
  bool has_gradient = false;
  MagnitudeSums magnitudes;
  bool moved_since = false;
  std::optional<SelectionImage> selection;

  int64_t arrays() const {
    const bool has_values = selection.has_value() && selection->has_values;
    const bool is_by_gradient = selection.has_value() && selection->has_gradient;
    return (has_gradient ? 1 : 0) + (has_values ? 1 : 0) + (is_by_gradient ? 1 : 0);
  }
};

}  // namespace tessera

#endif  // TESSERA_SERVER_SHARD_FORMS_CORES_IMAGE_H_
