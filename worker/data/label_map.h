// Which class a label of a libsvm file is.
//
// Labels that are all in [0, classes) are the classes. Otherwise (-1 and +1, 1 to 10, years) the
// sorted distinct labels of the training files are classes 0, 1, 2 and so on. A worker with files of its
// own (data.partition local) knows no others' labels: there they are classes, or -1 and +1, and nothing else.
#ifndef TESSERA_WORKER_DATA_LABEL_MAP_H_
#define TESSERA_WORKER_DATA_LABEL_MAP_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "worker/data/table.h"

namespace tessera {

class LabelMap {
 public:
  // `distinct`: the labels of the training files, ascending, each once.
  //   kInvalidArgument  more labels than spec.classes; or, with spec.local_files, labels that
  //                     another worker's files might number otherwise (neither classes, nor -1 and 1)
  static absl::StatusOr<LabelMap> Create(std::vector<int64_t> distinct, const TableSpec& spec);

  // Creates the map of a model that was trained with other files: `labels` are those of its classes, ascending; none
  // where a label is its class.
  //   kInvalidArgument  more labels than spec.classes
  static absl::StatusOr<LabelMap> Of(std::vector<int64_t> labels, const TableSpec& spec);

  std::optional<int32_t> ClassOf(int64_t label) const;

  // The labels that have a class, for messages: "0 to 9", "one of -1, 1".
  std::string Wanted() const;

  // The labels of the classes, ascending; empty where a label is its class.
  const std::vector<int64_t>& labels() const { return labels_; }

 private:
  explicit LabelMap(int64_t classes) : classes_(classes) {}

  int64_t classes_;
  // Empty where a label is its class.
  std::vector<int64_t> labels_;
};

}  // namespace tessera

#endif  // TESSERA_WORKER_DATA_LABEL_MAP_H_
