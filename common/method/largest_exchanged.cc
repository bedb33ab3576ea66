#include "common/method/largest_exchanged.h"

#include <algorithm>

#include "common/base/check.h"
#include "common/keyset/core_share.h"

namespace tessera {

absl::StatusOr<int64_t> LargestExchanged(const v1::Model& model, const Recipe& recipe) {
  TESSERA_ASSIGN_OR_RETURN(const ModelShape shape, ExchangedShape(model, recipe));
  int64_t largest = 0;
  for (const ParameterSpec& parameter : shape.parameters) {
    largest = std::max(largest, parameter.size());
  }
  // A core and its explorer travel as one vector of so many entries, whatever parameters they are of.
  if (recipe.core) largest = std::max(largest, EntriesOf(recipe.core->alpha, shape.size));
  return largest;
}

}  // namespace tessera
