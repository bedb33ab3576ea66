#include "common/layout/tensor_groups.h"

#include <algorithm>
#include <limits>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"

namespace tessera {
namespace {

// Subnets number rows and columns, and the units of groups, by 32-bit integers.
constexpr int64_t kUnitsMax = std::numeric_limits<int32_t>::max();

// Reads the groups of one model, and collects what is wrong with them.
class GroupReader {
 public:
  GroupReader(const v1::Model& model, const std::vector<ParameterSpec>& parameters)
      : model_(model), parameters_(parameters) {}

  void Read() {
    for (const v1::TensorGroup& group : model_.groups()) {
      TensorGroup read;
      read.name = group.name();
      name_ = group.name();
      named_here_.clear();
      if (group.dimensions().empty()) {
        Fail(-1, "got no dimensions, want at least one: [tensor, dimension]");
      }
      for (int place = 0; place < group.dimensions_size(); ++place) {
        Add(group.dimensions(place), place, &read);
      }
      CheckExtents(&read);
      groups_.push_back(std::move(read));
    }
    // Whole dimensions are numbered as those that are cut are.
    for (const ParameterSpec& spec : parameters_) {
      if (groups_.empty() || (spec.rows <= kUnitsMax && spec.columns <= kUnitsMax)) continue;
      name_ = "";
      Fail(-1,
           absl::StrCat("got tensor \"", spec.name, "\" of ", spec.rows, " rows and ", spec.columns,
                        " columns beside them, want at most ", kUnitsMax, " of each"));
      break;
    }
  }

  std::vector<TensorGroupFault> TakeFaults() { return std::move(faults_); }
  std::vector<TensorGroup> TakeGroups() { return std::move(groups_); }

 private:
  void Fail(int place, absl::string_view message) {
    faults_.push_back({name_, place, std::string(message)});
  }

  // The tensor's parameter; -1: there is none of that name.
  int Find(const std::string& name) const {
    const auto found = std::lower_bound(
        parameters_.begin(), parameters_.end(), name,
        [](const ParameterSpec& spec, const std::string& wanted) { return spec.name < wanted; });
    const bool is_there = found != parameters_.end() && found->name == name;
    return is_there ? static_cast<int>(found - parameters_.begin()) : -1;
  }

  void Add(const v1::TensorDimension& dimension, int place, TensorGroup* group) {
    const std::string got =
        absl::StrCat("got [", dimension.tensor(), ", ", dimension.dimension(), "], ");
    const int parameter = Find(dimension.tensor());
    if (parameter < 0) {
      return Fail(place, absl::StrCat(got, "want a tensor of model.tensors"));
    }
    const v1::Tensor& tensor = model_.tensor_layout().tensors(parameter);
    const std::string shape = absl::StrCat("[", absl::StrJoin(tensor.dims(), ", "), "]");
    if (dimension.dimension() < 0 || dimension.dimension() >= tensor.dims_size()) {
      return Fail(place, absl::StrCat(got, "want a dimension of the tensor, which is ", shape));
    }
    if (dimension.dimension() > 1) {
      return Fail(place, absl::StrCat(got, "want dimension 0 or 1 of ", shape,
                                      ": subnets cut rows, which dimension 0 counts, and columns, "
                                      "which dimension 1 cuts into blocks"));
    }
    const auto [earlier, is_new] =
        named_.emplace(std::pair(parameter, dimension.dimension()), name_);
    if (!is_new) {
      return Fail(place, absl::StrCat(got, "want each dimension once; it is in group ",
                                      earlier->second, " already"));
    }
    named_here_.push_back({place,
                           absl::StrCat("[", dimension.tensor(), ", ", dimension.dimension(), "]"),
                           tensor.dims(static_cast<int>(dimension.dimension()))});
    (dimension.dimension() == 0 ? group->rows : group->columns).push_back(parameter);
  }

  // The units are as many as the least extent says. A larger one that is a multiple has several indices of each unit,
  // as a linear layer has that reads channels behind a flatten; any other one is a mistake.
  void CheckExtents(TensorGroup* group) {
    if (named_here_.empty()) return;
    const Named& least =
        *std::min_element(named_here_.begin(), named_here_.end(),
                          [](const Named& a, const Named& b) { return a.extent < b.extent; });
    group->units = least.extent;
    for (const Named& each : named_here_) {
      if (each.extent % least.extent == 0) continue;
      Fail(
          each.place,
          absl::StrCat("got ", each.text, ", of extent ", each.extent, ", want ", least.extent,
                       ", the extent of ", least.text,
                       ", or a multiple of it: a dimension of a group has its units as indices, or "
                       "as many indices side by side for each of them"));
    }
  }

  const v1::Model& model_;
  const std::vector<ParameterSpec>& parameters_;
  std::vector<TensorGroup> groups_;
  std::vector<TensorGroupFault> faults_;
  // Which group has a dimension of a parameter.
  std::map<std::pair<int, int64_t>, std::string> named_;
  // The group that is being read, and those of its dimensions that are there.
  struct Named {
    int place = 0;
    std::string text;
    int64_t extent = 0;
  };
  std::string name_;
  std::vector<Named> named_here_;
};

}  // namespace

std::vector<TensorGroupFault> FaultsOfGroups(const v1::Model& model,
                                             const std::vector<ParameterSpec>& parameters) {
  GroupReader reader(model, parameters);
  reader.Read();
  return reader.TakeFaults();
}

absl::StatusOr<std::vector<TensorGroup>> TensorGroupsOf(
    const v1::Model& model, const std::vector<ParameterSpec>& parameters) {
  GroupReader reader(model, parameters);
  reader.Read();
  for (const TensorGroupFault& fault : reader.TakeFaults()) {
    return absl::InvalidArgumentError(absl::StrCat("model.groups", fault.group.empty() ? "" : ".",
                                                   fault.group, ": ", fault.message));
  }
  return reader.TakeGroups();
}

}  // namespace tessera
