#include "deploy/cli/import/name_match.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "common/base/printable.h"
#include "common/checkpoint/manifest.h"

namespace tessera {
namespace {

// What the names of all parameters of layers begin with.
constexpr char kLayers[] = "layers.";

std::string InBrackets(const std::vector<int64_t>& shape) {
  return absl::StrCat("[", absl::StrJoin(shape, ", "), "]");
}

std::string InQuotes(absl::string_view name) { return absl::StrCat("\"", ToPrintable(name), "\""); }

// The name up to the last dot, and what is behind it.
std::pair<absl::string_view, absl::string_view> Parted(absl::string_view name) {
  const size_t dot = name.rfind('.');
  if (dot == absl::string_view::npos) return {"", name};
  return {name.substr(0, dot), name.substr(dot + 1)};
}

// Whether PyTorch keeps a tensor of this name beside the parameters of a batch norm. It is a buffer of the module, and
// training does not learn it.
bool IsStatistic(absl::string_view last) {
  return last == "running_mean" || last == "running_var" || last == "num_batches_tracked";
}

// The names that the tensors have once they are renamed. A name that nothing renames is a parameter's already, as in an
// export, or is left over.
class Names {
 public:
  explicit Names(const std::vector<Renaming>& renamings)
      : renamings_(renamings), uses_(renamings.size()) {}

  // `prefix` is what stands before the layers' numbers in the model.
  explicit Names(std::string prefix) : prefix_(std::move(prefix)) {}

  // The name of the parameter that the tensor would be.
  std::string Of(absl::string_view name) {
    if (prefix_ && absl::ConsumePrefix(&name, *prefix_)) return absl::StrCat(kLayers, name);
    size_t best = renamings_.size();
    for (size_t i = 0; i < renamings_.size(); ++i) {
      const std::string& from = renamings_[i].from;
      if (name != from && !absl::StartsWith(name, absl::StrCat(from, "."))) continue;
      // A renaming that a longer one has outdone was of use all the same.
      ++uses_[i];
      if (best == renamings_.size() || from.size() > renamings_[best].from.size()) best = i;
    }
    if (best == renamings_.size()) return std::string(name);
    return absl::StrCat(renamings_[best].to, name.substr(renamings_[best].from.size()));
  }

  // Renamings that have fitted no name.
  std::vector<Renaming> unused() const {
    std::vector<Renaming> unused;
    for (size_t i = 0; i < renamings_.size(); ++i) {
      if (uses_[i] == 0) unused.push_back(renamings_[i]);
    }
    return unused;
  }

 private:
  std::optional<std::string> prefix_;
  std::vector<Renaming> renamings_;
  std::vector<int> uses_;
};

// What stands before the layers' numbers in the model, where it is one thing for all parameters. It is never guessed:
// two modules that both have all the layers, as a teacher and a student have, give none.
std::optional<std::string> PrefixOf(const std::vector<ParameterSpec>& parameters,
                                    const std::vector<TensorSpec>& tensors) {
  std::set<absl::string_view> names;
  for (const TensorSpec& tensor : tensors) names.insert(tensor.name);
  std::vector<std::string> found;
  absl::string_view first = parameters.front().name;
  if (!absl::ConsumePrefix(&first, kLayers)) return std::nullopt;
  for (absl::string_view prefix : names) {
    if (!absl::ConsumeSuffix(&prefix, first)) continue;
    // "net0.weight" is a module of its own, and no layer 0 in a module "net".
    if (!prefix.empty() && prefix.back() != '.') continue;
    const bool has_all =
        std::all_of(parameters.begin(), parameters.end(), [&](const ParameterSpec& spec) {
          absl::string_view rest = spec.name;
          return absl::ConsumePrefix(&rest, kLayers) && names.count(absl::StrCat(prefix, rest)) > 0;
        });
    if (has_all) found.emplace_back(prefix);
  }
  if (found.size() != 1) return std::nullopt;
  return found.front();
}

// What a module has: the last parts of its tensors' names, with their shapes.
using Content = std::set<std::string>;

void Describe(absl::string_view name, const std::vector<int64_t>& shape,
              std::map<std::string, Content>* modules) {
  const auto [module, last] = Parted(name);
  if (IsStatistic(last)) return;
  (*modules)[std::string(module)].insert(absl::StrCat(last, InBrackets(shape)));
}

// Lines that say which of the modules left over has what a layer wants.
std::vector<std::string> Suggestions(const std::vector<const ParameterSpec*>& missing,
                                     const std::vector<const TensorSpec*>& left) {
  std::map<std::string, Content> layers, modules;
  for (const ParameterSpec* spec : missing) Describe(spec->name, ExtentsOf(*spec), &layers);
  for (const TensorSpec* tensor : left) Describe(tensor->name, tensor->shape, &modules);
  std::vector<std::string> maps, lines;
  for (const auto& [layer, wanted] : layers) {
    std::vector<std::string> fitting;
    for (const auto& [module, content] : modules) {
      if (content == wanted && !module.empty()) fitting.push_back(module);
    }
    // Where two layers want the same the shapes cannot tell which module is which of them.
    const auto wanting = std::count_if(layers.begin(), layers.end(), [&wanted](const auto& other) {
      return other.second == wanted;
    });
    if (fitting.size() == 1 && wanting == 1) {
      maps.push_back(absl::StrCat("--map ", ToPrintable(fitting.front()), "=", layer));
    } else if (!fitting.empty()) {
      lines.push_back(absl::StrCat("of the shapes of ", InQuotes(layer), " are ",
                                   ToPrintable(absl::StrJoin(fitting, ", ")),
                                   "; say which it is with --map MODULE=", layer));
    }
  }
  if (!maps.empty()) {
    lines.push_back(absl::StrCat("by the shapes alone it would be ", absl::StrJoin(maps, " ")));
  }
  return lines;
}

}  // namespace

std::vector<int64_t> ExtentsOf(const ParameterSpec& spec) {
  return CheckpointParameter{spec.name, spec.rows,        spec.columns,  spec.is_vector,
                             1,         spec.columns_are, spec.is_scalar}
      .WholeShape();
}

absl::StatusOr<Renaming> ParseRenaming(absl::string_view text) {
  const std::vector<std::string> parts = absl::StrSplit(text, '=');
  if (parts.size() != 2 || parts[0].empty() || parts[1].empty()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--map: got ", InQuotes(text),
        ", want MODULE=LAYER, such as fc1=layers.0; `tessera check` prints the layers"));
  }
  return Renaming{parts[0], parts[1]};
}

absl::StatusOr<NameMatch> MatchNames(const std::vector<ParameterSpec>& parameters,
                                     const std::vector<std::string>& norms,
                                     const std::vector<TensorSpec>& tensors,
                                     const std::vector<Renaming>& renamings) {
  const std::optional<std::string> prefix =
      renamings.empty() && !parameters.empty() ? PrefixOf(parameters, tensors) : std::nullopt;
  Names names = prefix ? Names(*prefix) : Names(renamings);
  std::map<std::string, size_t> wanted;
  for (size_t p = 0; p < parameters.size(); ++p) wanted[parameters[p].name] = p;
  const std::set<std::string> norm_names(norms.begin(), norms.end());

  // All tensors are looked at before anything is refused, so that one run tells all that is to be done.
  NameMatch match;
  match.tensors.assign(parameters.size(), tensors.size());
  std::vector<std::string> wrong;
  std::vector<const TensorSpec*> left;
  for (size_t t = 0; t < tensors.size(); ++t) {
    const TensorSpec& tensor = tensors[t];
    const std::string name = names.Of(tensor.name);
    const auto found = wanted.find(name);
    if (found == wanted.end()) {
      // A tensor called running_mean that belongs to no batch norm of the job is a sign of another network.
      const auto [module, last] = Parted(name);
      if (IsStatistic(last) && norm_names.count(std::string(module)) > 0) {
        match.passed_over.push_back(tensor.name);
      } else {
        left.push_back(&tensor);
      }
      continue;
    }
    size_t& place = match.tensors[found->second];
    if (place != tensors.size()) {
      wrong.push_back(absl::StrCat("tensors ", InQuotes(tensors[place].name), " and ",
                                   InQuotes(tensor.name), " are both ", InQuotes(name),
                                   ", want one"));
      continue;
    }
    place = t;
    const std::vector<int64_t> shape = ExtentsOf(parameters[found->second]);
    const std::string as = name == tensor.name ? "" : absl::StrCat(" as ", InQuotes(name));
    if (tensor.shape != shape) {
      wrong.push_back(absl::StrCat("tensor ", InQuotes(tensor.name), " is ",
                                   InBrackets(tensor.shape), ", want ", InBrackets(shape), as));
    } else if (tensor.dtype != "F32" && tensor.dtype != "F16" && tensor.dtype != "BF16") {
      wrong.push_back(absl::StrCat("tensor ", InQuotes(tensor.name), " is of ", tensor.dtype,
                                   ", want F32, F16 or BF16", as));
    }
  }

  std::vector<const ParameterSpec*> missing;
  for (size_t p = 0; p < parameters.size(); ++p) {
    if (match.tensors[p] != tensors.size()) continue;
    missing.push_back(&parameters[p]);
    wrong.push_back(absl::StrCat("tensor ", InQuotes(parameters[p].name), " is missing, want ",
                                 InBrackets(ExtentsOf(parameters[p]))));
  }
  for (const TensorSpec* tensor : left) {
    wrong.push_back(absl::StrCat("tensor ", InQuotes(tensor->name), " ", InBrackets(tensor->shape),
                                 " is no parameter of the job's layers",
                                 missing.empty() ? "; leave it out of the file" : ""));
  }
  for (const Renaming& renaming : names.unused()) {
    wrong.push_back(absl::StrCat("--map ", ToPrintable(renaming.from), "=",
                                 ToPrintable(renaming.to), ": no tensor is called so, or is in ",
                                 "such a module"));
  }
  if (wrong.empty()) return match;
  for (std::string& line : Suggestions(missing, left)) wrong.push_back(std::move(line));
  return absl::InvalidArgumentError(absl::StrJoin(wrong, "\n"));
}

}  // namespace tessera
