#include "worker/data/label_range.h"

#include "absl/strings/str_cat.h"

namespace tessera {

std::string LabelRange::Advice(int64_t classes) const {
  // MATLAB, R and many text files count from 1. The second rule is for support vector machines' signs.
  if (least_ == 1 && most_ == classes && classes > 1) {
    return absl::StrCat("; the labels go from 1 to ", classes,
                        ", so they seem to start at 1: subtract 1 from each");
  }
  if (least_ == -1 && most_ == 1 && classes == 2) {
    return "; the labels seem to be -1 and 1: write 0 and 1";
  }
  return "";
}

}  // namespace tessera
