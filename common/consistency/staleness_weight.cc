#include "common/consistency/staleness_weight.h"

#include <algorithm>
#include <cmath>

namespace tessera {

float StalenessWeight::operator()(uint64_t tau) const {
  // A push whose base is the present version counts like one that is one version late: 1 / 0 is no weight.
  const double late = static_cast<double>(std::max<uint64_t>(1, tau));
  switch (kind) {
    case Kind::kConstant:
      return scale;
    case Kind::kInverse:
      return static_cast<float>(scale / late);
    case Kind::kPower:
      return static_cast<float>(scale / std::pow(late, shape));
    case Kind::kExponential:
      return static_cast<float>(scale * std::pow(shape, static_cast<double>(tau)));
  }
  return scale;
}

}  // namespace tessera
