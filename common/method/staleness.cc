#include "common/method/staleness.h"

#include "absl/strings/str_cat.h"

namespace tessera {

StalenessWeight WeightOf(const v1::StalenessWeight& keys) {
  using Kind = StalenessWeight::Kind;
  const auto weight = [](Kind kind, double scale, double shape) {
    return StalenessWeight{kind, static_cast<float>(scale), static_cast<float>(shape)};
  };
  switch (keys.kind_case()) {
    case v1::StalenessWeight::kConstant:
      return weight(Kind::kConstant, keys.constant().scale(), 1);
    case v1::StalenessWeight::kInverse:
      return weight(Kind::kInverse, keys.inverse().scale(), 1);
    case v1::StalenessWeight::kPower:
      return weight(Kind::kPower, keys.power().scale(), keys.power().exponent());
    case v1::StalenessWeight::kExponential:
      return weight(Kind::kExponential, keys.exponential().scale(), keys.exponential().base());
    case v1::StalenessWeight::KIND_NOT_SET:
      break;
  }
  return StalenessWeight();
}

std::string WeightInWords(const StalenessWeight& weight) {
  const std::string scale = absl::StrCat("weight ", weight.scale);
  switch (weight.kind) {
    case StalenessWeight::Kind::kConstant:
      return scale;
    case StalenessWeight::Kind::kInverse:
      return absl::StrCat(scale, " / max(1, tau) when tau updates late");
    case StalenessWeight::Kind::kPower:
      return absl::StrCat(scale, " / max(1, tau)^", weight.shape, " when tau updates late");
    case StalenessWeight::Kind::kExponential:
      return absl::StrCat(scale, " * ", weight.shape, "^tau when tau updates late");
  }
  return scale;
}

}  // namespace tessera
