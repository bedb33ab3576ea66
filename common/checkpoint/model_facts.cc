#include "common/checkpoint/model_facts.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <functional>
#include <set>
#include <system_error>
#include <utility>

#include <xxhash.h>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/utf8.h"
#include "common/checkpoint/manifest.h"
#include "common/checkpoint/strict_json.h"

namespace tessera {
namespace {

constexpr char kLabels[] = "labels";
constexpr char kCharacters[] = "characters";
constexpr char kMean[] = "normalization.mean";
constexpr char kStddev[] = "normalization.stddev";
constexpr char kConstants[] = "norm.constants";
constexpr char kTrainSum[] = "train_sum";
constexpr char kFactsSum[] = "facts_xxh3";
constexpr char kValues[] = "values";
constexpr char kBytes[] = "bytes";
constexpr char kNumbers[] = "numbers";
// More than any model's inputs, classes or channels are.
constexpr int64_t kFactEntriesMax = int64_t{1} << 26;

// Visits what FactTensors lists, in that order: (name, dtype, vector). Characters are last, as they are younger than
// the others.
template <typename Facts, typename Visit>
void ForEachArray(Facts& facts, Visit&& visit) {
  visit(kLabels, "I64", facts.labels);
  visit(kMean, "F64", facts.mean);
  visit(kStddev, "F64", facts.stddev);
  visit(kConstants, "F32", facts.norm_constants);
  visit(kCharacters, "I32", facts.characters);
}

template <typename T>
int64_t BytesOf(const std::vector<T>& values) {
  return static_cast<int64_t>(values.size() * sizeof(T));
}

// The sum of all arrays, in their order, each seeded with the sum of those before it. Files without characters have the
// sum that they had before there were any.
uint64_t SumOf(const ModelFacts& facts) {
  uint64_t sum = 0;
  ForEachArray(facts, [&sum](const char* name, const char*, const auto& values) {
    if (absl::string_view(name) == kCharacters && values.empty()) return;
    sum = XXH3_64bits_withSeed(values.data(), static_cast<size_t>(BytesOf(values)), sum);
  });
  return sum;
}

absl::Status Wrong(const SafetensorsReader& file, absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat("\"", file.path(), "\": ", what));
}

// Reads a sum of the metadata; a file with facts has all of them.
absl::Status ReadSum(const SafetensorsReader& file, const char* key, uint64_t* sum) {
  const auto found = file.metadata().find(key);
  const std::string text = found == file.metadata().end() ? "" : found->second;
  if (ParseHex64(text, sum)) return absl::OkStatus();
  return Wrong(file, absl::StrCat(key, " is \"", text, "\", want 16 hexadecimal digits"));
}

// Reads whether the training rows' values were bytes or numbers; another word is refused, as it would change what
// inputs mean.
absl::Status ReadKind(const SafetensorsReader& file, bool* bytes) {
  const auto found = file.metadata().find(kValues);
  const std::string text = found == file.metadata().end() ? "" : found->second;
  *bytes = text == kBytes;
  if (*bytes || text == kNumbers) return absl::OkStatus();
  return Wrong(file, absl::StrCat(kValues, " is \"", text, "\", want ", kBytes, " or ", kNumbers));
}

// An absent tensor leaves `values` empty: none that is there may be.
template <typename T>
absl::Status ReadArray(const SafetensorsReader& file, const char* name, const char* dtype,
                       std::vector<T>* values) {
  const TensorSpec* const found = file.Find(name);
  if (found == nullptr) return absl::OkStatus();
  // The length comes from the file and is bounded before anything is allocated for it.
  if (found->dtype != dtype || found->shape.size() != 1 || found->shape[0] < 1 ||
      found->shape[0] > kFactEntriesMax) {
    return Wrong(file, absl::StrCat("tensor \"", name, "\" is no list of 1 to ", kFactEntriesMax,
                                    " numbers as ", dtype));
  }
  values->resize(static_cast<size_t>(found->shape[0]));
  return file.Read(*found, 0, BytesOf(*values), values->data());
}

// Whether each number is above the one before it.
template <typename T>
bool Ascend(const std::vector<T>& values) {
  return std::adjacent_find(values.begin(), values.end(), std::greater_equal<>()) == values.end();
}

// Refuses facts that contradict each other: a reader would otherwise normalise by another feature's constants.
absl::Status Check(const SafetensorsReader& file, const ModelFacts& facts) {
  // A mean and its deviation are made together, one of each per input.
  if (facts.mean.empty() || facts.mean.size() != facts.stddev.size()) {
    return Wrong(file, absl::StrCat(kMean, " has ", facts.mean.size(), " entries and ", kStddev,
                                    " ", facts.stddev.size(), ", want as many, and at least one"));
  }
  for (size_t j = 0; j < facts.mean.size(); ++j) {
    // Rows are multiplied by 1 / stddev in f32, which must not overflow.
    const auto inverse = static_cast<float>(1 / facts.stddev[j]);
    if (std::isfinite(facts.mean[j]) && facts.stddev[j] > 0 && std::isfinite(inverse)) continue;
    return Wrong(file,
                 absl::StrCat("normalisation of input ", j, " is ", facts.mean[j], " and ",
                              facts.stddev[j], ", want finite numbers and a positive stddev"));
  }
  if (!Ascend(facts.labels)) return Wrong(file, "labels do not ascend");
  const std::vector<int32_t>& characters = facts.characters;
  if (!Ascend(characters)) return Wrong(file, "characters do not ascend");
  if (!characters.empty() && (characters.front() < 0 || characters.back() >= kCodePointEnd)) {
    return Wrong(file,
                 absl::StrCat("characters are from ", characters.front(), " to ", characters.back(),
                              ", want code points, 0 to ", kCodePointEnd - 1));
  }
  return absl::OkStatus();
}

}  // namespace

std::vector<TensorSpec> FactTensors(const ModelFacts& facts) {
  std::vector<TensorSpec> tensors;
  if (facts.empty()) return tensors;
  ForEachArray(facts, [&tensors](const char* name, const char* dtype, const auto& values) {
    if (values.empty()) return;
    TensorSpec& tensor = tensors.emplace_back();
    tensor.name = name;
    tensor.dtype = dtype;
    tensor.shape = {static_cast<int64_t>(values.size())};
  });
  return tensors;
}

TensorMetadata FactMetadata(const ModelFacts& facts) {
  if (facts.empty()) return {};
  return {{kTrainSum, Hex64(facts.train_sum)},
          {kFactsSum, Hex64(SumOf(facts))},
          {kValues, facts.bytes ? kBytes : kNumbers}};
}

absl::Status AppendFacts(const ModelFacts& facts, SafetensorsWriter* out) {
  absl::Status status;
  if (facts.empty()) return status;
  ForEachArray(facts, [&status, out](const char*, const char*, const auto& values) {
    if (status.ok()) status = out->Append(values.data(), BytesOf(values));
  });
  return status;
}

absl::StatusOr<std::optional<ModelFacts>> ReadFacts(const SafetensorsReader& file) {
  // A file without the sum was written by a worker that had no facts, or before there were any, and is no error.
  if (file.metadata().count(kFactsSum) == 0) return std::optional<ModelFacts>();
  ModelFacts facts;
  uint64_t sum = 0;
  TESSERA_RETURN_IF_ERROR(ReadSum(file, kTrainSum, &facts.train_sum));
  TESSERA_RETURN_IF_ERROR(ReadSum(file, kFactsSum, &sum));
  TESSERA_RETURN_IF_ERROR(ReadKind(file, &facts.bytes));
  absl::Status status;
  ForEachArray(facts, [&](const char* name, const char* dtype, auto& values) {
    if (status.ok()) status = ReadArray(file, name, dtype, &values);
  });
  TESSERA_RETURN_IF_ERROR(status);
  TESSERA_RETURN_IF_ERROR(Check(file, facts));
  if (sum == SumOf(facts)) return std::optional<ModelFacts>(std::move(facts));
  return Wrong(file,
               "facts_xxh3 is not the sum of labels, normalisation, constants and characters; "
               "their bytes are "
               "not the ones that were written");
}

absl::StatusOr<std::optional<ModelFacts>> ReadFacts(const Checkpoint& checkpoint) {
  std::set<uint64_t> ranks;
  // Every worker's file has the same facts, but norm constants only where that worker made the last evaluation's.
  for (const CheckpointMember& member : checkpoint.manifest().members) ranks.insert(member.rank);
  std::optional<ModelFacts> facts;
  for (const uint64_t rank : ranks) {
    TESSERA_ASSIGN_OR_RETURN(const std::unique_ptr<SafetensorsReader> file,
                             checkpoint.OpenWorker(rank));
    if (file == nullptr) continue;
    TESSERA_ASSIGN_OR_RETURN(std::optional<ModelFacts> its, ReadFacts(*file));
    if (!its) continue;
    if (!facts) {
      facts = *std::move(its);
    } else {
      // Only the constants are taken from a later file; the rest would be the same.
      facts->norm_constants = std::move(its->norm_constants);
    }
    if (!facts->norm_constants.empty()) break;
  }
  return facts;
}

std::optional<ModelFacts> FactsToGoOnFrom(const std::string& path) {
  namespace fs = std::filesystem;
  if (path.empty()) return std::nullopt;
  // The newest checkpoint first, and an older one where that is damaged: facts are the same in all of a job's.
  std::vector<std::string> folders;
  std::error_code error;
  if (fs::exists(fs::path(path) / kManifestName, error)) {
    folders.push_back(path);
  } else {
    for (fs::directory_iterator entry(path, error), end; !error && entry != end;
         entry.increment(error)) {
      uint64_t step = 0;
      if (ParseStepFolderName(entry->path().filename().string(), &step)) {
        folders.push_back(entry->path().string());
      }
    }
  }
  // Folder names have steps of fixed width, so that the order of names is the order of steps.
  std::sort(folders.rbegin(), folders.rend());
  for (const std::string& folder : folders) {
    const absl::StatusOr<std::unique_ptr<Checkpoint>> checkpoint = Checkpoint::Open(folder);
    // A folder that is damaged or removed meanwhile is passed over, as an older one has the same facts.
    if (!checkpoint.ok()) continue;
    absl::StatusOr<std::optional<ModelFacts>> facts = ReadFacts(**checkpoint);
    if (facts.ok()) return *std::move(facts);
  }
  return std::nullopt;
}

}  // namespace tessera
