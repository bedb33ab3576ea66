// What somebody meant who wrote a name that does not exist.
#ifndef TESSERA_COMMON_CONFIG_NEAREST_NAME_H_
#define TESSERA_COMMON_CONFIG_NEAREST_NAME_H_

#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace tessera {

// The name that takes the fewest edits (insert, delete, replace, swap of neighbours) from `got`,
// case and dashes aside. Leaving out a name's end costs little, so that "evry" is nearer to
// "every_steps" than to
// "keep". Nothing when no name is near: more than a third of `got` would change.
std::optional<std::string> NearestName(absl::string_view got,
                                       const std::vector<std::string>& names);

// `; did you mean "every_steps"?`, or `` when nothing is near.
std::string DidYouMean(absl::string_view got, const std::vector<std::string>& names);

}  // namespace tessera

#endif  // TESSERA_COMMON_CONFIG_NEAREST_NAME_H_
