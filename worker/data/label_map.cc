#include "worker/data/label_map.h"

#include <algorithm>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace tessera {
namespace {

constexpr size_t kListedLabelsMax = 12;

std::string List(const std::vector<int64_t>& labels) {
  const size_t listed = std::min(labels.size(), kListedLabelsMax);
  return absl::StrCat(
      absl::StrJoin(labels.begin(), labels.begin() + listed, ", "),
      listed < labels.size() ? absl::StrCat(", ... (", labels.size(), " of them)") : "");
}

}  // namespace

absl::StatusOr<LabelMap> LabelMap::Create(std::vector<int64_t> distinct, const TableSpec& spec) {
  LabelMap map(spec.classes);
  // Labels that are classes already keep their numbers, so that models of the same classes agree.
  if (distinct.empty() || (distinct.front() >= 0 && distinct.back() < spec.classes)) return map;
  const auto count = static_cast<int64_t>(distinct.size());
  if (count > spec.classes) {
    return absl::InvalidArgumentError(absl::StrCat("labels are ", List(distinct), ", want at most ",
                                                   spec.classes,
                                                   " different ones (the model's classes)"));
  }
  // -1 and 1 mean the same to all workers, whatever rows they see.
  const bool signs =
      spec.classes >= 2 && std::all_of(distinct.begin(), distinct.end(),
                                       [](int64_t label) { return label == -1 || label == 1; });
  if (spec.local_files && !signs) {
    return absl::InvalidArgumentError(
        absl::StrCat("labels are ", List(distinct), ", want 0 to ", spec.classes - 1,
                     spec.classes >= 2 ? ", or -1 and 1" : "",
                     ": with data.partition local no worker sees the others' labels, and each "
                     "would number its own; number them in the files"));
  }
  map.labels_ = spec.local_files ? std::vector<int64_t>{-1, 1} : std::move(distinct);
  return map;
}

absl::StatusOr<LabelMap> LabelMap::Of(std::vector<int64_t> labels, const TableSpec& spec) {
  if (static_cast<int64_t>(labels.size()) > spec.classes) {
    return absl::InvalidArgumentError(absl::StrCat("labels that the model was trained with are ",
                                                   List(labels), ", want at most ", spec.classes,
                                                   " (the model's classes)"));
  }
  LabelMap map(spec.classes);
  map.labels_ = std::move(labels);
  return map;
}

std::optional<int32_t> LabelMap::ClassOf(int64_t label) const {
  if (labels_.empty()) {
    if (label < 0 || label >= classes_) return std::nullopt;
    return static_cast<int32_t>(label);
  }
  // Ascending labels: a label's class is its place among them.
  const auto found = std::lower_bound(labels_.begin(), labels_.end(), label);
  if (found == labels_.end() || *found != label) return std::nullopt;
  return static_cast<int32_t>(found - labels_.begin());
}

std::string LabelMap::Wanted() const {
  if (labels_.empty()) return absl::StrCat("0 to ", classes_ - 1);
  return absl::StrCat("one of ", List(labels_));
}

}  // namespace tessera
