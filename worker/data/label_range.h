// From where to where the labels of a file go, which tells why one of them is no class.
#ifndef TESSERA_WORKER_DATA_LABEL_RANGE_H_
#define TESSERA_WORKER_DATA_LABEL_RANGE_H_

#include <algorithm>
#include <cstdint>
#include <limits>
#include <string>

namespace tessera {

class LabelRange {
 public:
  void Add(int64_t label) {
    least_ = std::min(least_, label);
    most_ = std::max(most_, label);
  }

  // A label that is none of `classes` may come of labels that count from 1, or are -1 and 1: then the labels behind
  // it are worth reading, for Advice().
  bool MayExplain(int64_t label, int64_t classes) const {
    return (label == classes && least_ >= 1) || (label == -1 && classes == 2);
  }

  // What to add to the message about a label that is no class, once all labels were added. Begins with "; ", or is
  // empty.
  std::string Advice(int64_t classes) const;

 private:
  int64_t least_ = std::numeric_limits<int64_t>::max();
  int64_t most_ = std::numeric_limits<int64_t>::min();
};

}  // namespace tessera

#endif  // TESSERA_WORKER_DATA_LABEL_RANGE_H_
