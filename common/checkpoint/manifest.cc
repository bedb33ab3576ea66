#include "common/checkpoint/manifest.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include <xxhash.h>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/strip.h"
#include "common/base/check.h"
#include "common/base/limits.h"
#include "common/checkpoint/strict_json.h"

namespace tessera {
namespace {

using Json = nlohmann::json;
using OrderedJson = nlohmann::ordered_json;

// The format's number, which grows when an older program could misread what is written.
constexpr int64_t kFormat = 1;
// More than any update rule has; the limit keeps a forged number from being multiplied.
constexpr int64_t kStatesMax = 16;
// A million tensors of a job, and three averaged states of each.
constexpr int64_t kManifestTensorsMax = 4'000'000;
constexpr int64_t kEntriesMax = int64_t{1} << 44;
// [channels, height, width] of a convolution; a tensor of a safetensors file has up to 16 extents.
constexpr size_t kColumnExtentsMax = 15;

// Keys are written in this order, and FormatManifest's sum depends on it.
OrderedJson ToJson(const CheckpointParameter& parameter) {
  OrderedJson json = {{"name", parameter.name}, {"rows", parameter.rows}};
  json["columns"] = parameter.columns;
  json["is_vector"] = static_cast<int>(parameter.is_vector);
  json["export_factor"] = parameter.export_factor;
  if (!parameter.columns_are.empty()) json["columns_are"] = parameter.columns_are;
  if (parameter.is_scalar) json["is_scalar"] = 1;
  if (parameter.owners.end > 0) json["servers"] = {parameter.owners.begin, parameter.owners.end};
  return json;
}

OrderedJson ToJson(const CheckpointShard& shard) {
  OrderedJson json = OrderedJson::object();
  json["version"] = shard.version;
  json["examples"] = shard.examples;
  json["pushes"] = shard.pushes;
  json["staleness_sum"] = shard.staleness_sum;
  json["staleness_max"] = shard.staleness_max;
  json["staleness"] = shard.staleness;
  return json;
}

OrderedJson ToJson(const CheckpointMember& member) {
  OrderedJson json = OrderedJson::object();
  json["member"] = member.member;
  json["rank"] = member.rank;
  json["exchange"] = member.exchange;
  json["step"] = member.step;
  return json;
}

OrderedJson ToJson(const CheckpointFile& file) {
  OrderedJson json = OrderedJson::object();
  json["name"] = file.name;
  json["bytes"] = file.bytes;
  json["xxh3"] = Hex64(file.sum);
  return json;
}

template <typename Item>
OrderedJson ListOf(const std::vector<Item>& items) {
  OrderedJson list = OrderedJson::array();
  for (const Item& item : items) list.push_back(ToJson(item));
  return list;
}

// The text ends with `"xxh3": "<16 digits>"\n}\n`: the sum of the text with zeros for digits.
constexpr size_t kSumFromEnd = 16 + sizeof("\"\n}\n") - 1;

// The sum of the text without its own digits, which are taken for zeros.
uint64_t SumOfText(absl::string_view text) {
  std::string zeroed(text);
  zeroed.replace(zeroed.size() - kSumFromEnd, 16, 16, '0');
  return XXH3_64bits(zeroed.data(), zeroed.size());
}

absl::Status Wrong(const std::string& where, absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat(where, ": ", what));
}

// Fills `owners`. That there are as many servers is checked when all of the manifest is read.
absl::Status OwnersFromJson(const std::string& where, const Json& json, Owners* owners) {
  const auto is_server = [](const Json& item) {
    return item.is_number_unsigned() && item.get<uint64_t>() <= static_cast<uint64_t>(kServersMax);
  };
  if (json.size() != 2 || !is_server(json[0]) || !is_server(json[1]) || json[0] >= json[1]) {
    return Wrong(where, "servers is no range of servers");
  }
  *owners = {json[0].get<int>(), json[1].get<int>()};
  return absl::OkStatus();
}

// Fills `parameter` from one entry of the manifest's list. Nothing is believed unchecked: sizes multiply to
// numbers of bytes later, which must not overflow.
absl::Status FromJson(const std::string& where, const Json& json, CheckpointParameter* parameter) {
  JsonFields fields(where, json);
  uint64_t is_vector = 0;
  fields.Get("name", &parameter->name);
  fields.Get("rows", &parameter->rows);
  fields.Get("columns", &parameter->columns);
  fields.Get("is_vector", &is_vector);
  fields.Get("export_factor", &parameter->export_factor);
  const Json* const columns_are =
      fields.Has("columns_are") ? fields.GetArray("columns_are") : nullptr;
  uint64_t is_scalar = 0;
  if (fields.Has("is_scalar")) fields.Get("is_scalar", &is_scalar);
  const Json* const servers = fields.Has("servers") ? fields.GetArray("servers") : nullptr;
  TESSERA_RETURN_IF_ERROR(fields.Finish());
  if (servers != nullptr) {
    TESSERA_RETURN_IF_ERROR(OwnersFromJson(where, *servers, &parameter->owners));
  }
  parameter->is_vector = is_vector == 1;
  parameter->is_scalar = is_scalar == 1;
  if (is_scalar > 1 || (is_scalar == 1 && (is_vector == 0 || parameter->rows != 1))) {
    return Wrong(where, "is_scalar wants a vector of 1 row");
  }
  int64_t size = 0;
  // A vector has one column, by definition of the format.
  if (__builtin_mul_overflow(parameter->rows, parameter->columns, &size) || size > kEntriesMax ||
      is_vector > 1 || (is_vector == 1 && parameter->columns != 1)) {
    return Wrong(where, absl::StrCat("rows are ", parameter->rows, " and columns ",
                                     parameter->columns, ", want at most 2^44 entries"));
  }
  if (!std::isfinite(parameter->export_factor)) return Wrong(where, "export_factor is not finite");
  if (columns_are == nullptr) return absl::OkStatus();
  int64_t product = 1;
  // Each extent must divide what is left, which also bounds the product.
  for (const Json& extent : *columns_are) {
    if (!extent.is_number_unsigned() || extent == 0 ||
        extent.get<uint64_t>() > static_cast<uint64_t>(parameter->columns / product)) {
      return Wrong(where, "columns_are is not what the columns are made of");
    }
    product *= extent.get<int64_t>();
    parameter->columns_are.push_back(extent.get<int64_t>());
  }
  if (is_vector == 1 || columns_are->empty() || columns_are->size() > kColumnExtentsMax ||
      product != parameter->columns) {
    return Wrong(where, "columns_are is not what the columns are made of");
  }
  return absl::OkStatus();
}

// Fills `shard`. Its counts are bounded so that those of all servers add up within 64 bits.
absl::Status FromJson(const std::string& where, const Json& json, CheckpointShard* shard) {
  JsonFields fields(where, json);
  fields.GetBelow(kSavedCountEnd, "version", &shard->version);
  fields.GetBelow(kSavedCountEnd, "examples", &shard->examples);
  fields.GetBelow(kSavedCountEnd, "pushes", &shard->pushes);
  fields.GetBelow(kSavedCountEnd, "staleness_sum", &shard->staleness_sum);
  fields.GetBelow(kSavedCountEnd, "staleness_max", &shard->staleness_max);
  const Json* counts = fields.GetArray("staleness");
  TESSERA_RETURN_IF_ERROR(fields.Finish());
  for (const Json& count : *counts) {
    if (!count.is_number_unsigned() || count.get<uint64_t>() >= kSavedCountEnd) {
      return Wrong(where, absl::StrCat("staleness: has ", count.dump(), ", want counts below ",
                                       kSavedCountEnd));
    }
    shard->staleness.push_back(count.get<uint64_t>());
  }
  return absl::OkStatus();
}

// Fills `member`, whose numbers must leave room for those that the job goes on with.
absl::Status FromJson(const std::string& where, const Json& json, CheckpointMember* member) {
  JsonFields fields(where, json);
  fields.GetBelow(kSavedNumberEnd, "member", &member->member);
  fields.GetBelow(kRankEnd, "rank", &member->rank);
  fields.GetBelow(kSavedNumberEnd, "exchange", &member->exchange);
  fields.GetBelow(kSavedStepEnd, "step", &member->step);
  return fields.Finish();
}

// Fills `file`, whose sum is written as 16 hexadecimal digits.
absl::Status FromJson(const std::string& where, const Json& json, CheckpointFile* file) {
  JsonFields fields(where, json);
  std::string sum;
  fields.Get("name", &file->name);
  fields.Get("bytes", &file->bytes);
  fields.Get("xxh3", &sum);
  TESSERA_RETURN_IF_ERROR(fields.Finish());
  if (!ParseHex64(sum, &file->sum)) {
    return Wrong(where, absl::StrCat("xxh3 is \"", sum, "\", want 16 hexadecimal digits"));
  }
  return absl::OkStatus();
}

template <typename Item>
absl::Status ReadList(const std::string& where, const char* key, JsonFields* fields,
                      int64_t count_max, std::vector<Item>* items) {
  const Json* list = fields->GetArray(key);
  if (list == nullptr) return absl::OkStatus();  // Finish says so.
  const std::string place = absl::StrCat(where, ".", key);
  if (static_cast<int64_t>(list->size()) > count_max) {
    return Wrong(place, absl::StrCat("has ", list->size(), " items, want at most ", count_max));
  }
  for (const Json& item : *list) {
    const std::string item_place = absl::StrCat(place, "[", items->size(), "]");
    TESSERA_RETURN_IF_ERROR(FromJson(item_place, item, &items->emplace_back()));
  }
  return absl::OkStatus();
}

// Names of a checkpoint's files, each once: all the shards', and some workers'.
absl::Status CheckFiles(const std::string& where, const Manifest& manifest) {
  // Each name is taken out of its set when it is found, which is why a second one of the same name is refused.
  std::set<std::string> workers, missing;
  for (const CheckpointMember& member : manifest.members) {
    workers.insert(WorkerFileName(member.rank));
  }
  const int64_t shards = static_cast<int64_t>(manifest.shards.size());
  for (int64_t s = 0; s < shards; ++s) missing.insert(ShardFileName(s, shards));
  // Workers without state of their own have no file, so only the shards' files must all be there.
  for (const CheckpointFile& file : manifest.files) {
    if (missing.erase(file.name) == 0 && workers.erase(file.name) == 0) {
      return Wrong(where,
                   absl::StrCat("\"", file.name,
                                "\" is no file of these shards and members, or is there twice"));
    }
  }
  if (missing.empty()) return absl::OkStatus();
  return Wrong(where, absl::StrCat("\"", *missing.begin(), "\" is missing"));
}

// Refuses a manifest in which two parameters have one name, or one is on servers that there are not.
absl::Status CheckParameters(const std::string& where, const Manifest& manifest) {
  // A parameter is found by its name when a job goes on, and two of one name would make the first hide the second.
  std::set<std::string> names;
  for (const CheckpointParameter& parameter : manifest.parameters) {
    if (!names.insert(parameter.name).second) {
      return Wrong(where, absl::StrCat("\"", parameter.name, "\" is there twice"));
    }
    if (parameter.owners.end > static_cast<int>(manifest.shards.size())) {
      return Wrong(where,
                   absl::StrCat("\"", parameter.name, "\" is on servers before ",
                                parameter.owners.end, ", but there are ", manifest.shards.size()));
    }
  }
  return absl::OkStatus();
}

}  // namespace

std::vector<int64_t> CheckpointParameter::Shape(int64_t row_count) const {
  std::vector<int64_t> shape = {row_count};
  // A vector has one extent in the file, however the model counts its columns.
  if (is_vector) return shape;
  if (columns_are.empty()) shape.push_back(columns);
  shape.insert(shape.end(), columns_are.begin(), columns_are.end());
  return shape;
}

std::vector<int64_t> CheckpointParameter::Extents() const {
  return is_vector ? std::vector<int64_t>{rows, columns} : Shape(rows);
}

const CheckpointFile* Manifest::FindFile(absl::string_view name) const {
  for (const CheckpointFile& file : files) {
    if (file.name == name) return &file;
  }
  return nullptr;
}

bool Manifest::HasRanks(uint64_t workers) const {
  return members.size() == workers &&
         std::all_of(members.begin(), members.end(),
                     [workers](const CheckpointMember& member) { return member.rank < workers; });
}

std::string FormatManifest(const Manifest& manifest) {
  // Keys keep this order in the text, whose sum is taken; a plain object would sort them.
  OrderedJson json = OrderedJson::object();
  json["tessera_checkpoint"] = kFormat;
  json["job"] = manifest.job;
  json["job_digest"] = manifest.job_digest;
  json["job_text"] = manifest.job_text;
  json["method"] = manifest.method;
  json["version"] = manifest.version;
  json["step"] = manifest.step;
  json["exchange"] = manifest.exchange;
  json["generation"] = manifest.generation;
  json["layout_hash"] = Hex64(manifest.layout_hash);
  json["states"] = manifest.states;
  json["model_parameters"] = manifest.model_parameters;
  json["parameters"] = ListOf(manifest.parameters);
  json["shards"] = ListOf(manifest.shards);
  json["members"] = ListOf(manifest.members);
  json["files"] = ListOf(manifest.files);
  // The coordinator's state is an object that only the coordinator reads; here it is copied whole.
  json["coordinator"] =
      OrderedJson::parse(manifest.coordinator, nullptr, /*allow_exceptions=*/false);
  TESSERA_CHECK(json["coordinator"].is_object());
  // The sum is computed over zeros in its own place, and then put there.
  json["xxh3"] = Hex64(0);
  std::string text =
      json.dump(1, ' ', /*ensure_ascii=*/false, OrderedJson::error_handler_t::replace) + "\n";
  text.replace(text.size() - kSumFromEnd, 16, Hex64(SumOfText(text)));
  return text;
}

uint64_t SumOf(const Manifest& manifest) {
  // One that was read has the coordinator's keys in another order than one that was made.
  Manifest sorted = manifest;
  sorted.coordinator = nlohmann::json::parse(manifest.coordinator).dump();
  const std::string text = FormatManifest(sorted);
  return std::max<uint64_t>(1, XXH3_64bits(text.data(), text.size()));
}

absl::Status CheckSum(const Manifest& manifest, uint64_t sum, absl::string_view path) {
  if (sum == 0 || sum == SumOf(manifest)) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("checkpoint: \"", path,
                   "\" is not the checkpoint that server 0 goes on from, though of the "
                   "same step; give all processes the same one, or copies of it"));
}

absl::StatusOr<Manifest> ParseManifest(absl::string_view path, absl::string_view text) {
  const std::string where = absl::StrCat("\"", path, "\"");
  TESSERA_ASSIGN_OR_RETURN(const Json json, ParseJsonObject(where, text));
  JsonFields fields(where, json);
  Manifest manifest;
  int64_t format = 0;
  std::string layout_hash;
  // The format is checked first: everything else may be different in another version.
  fields.Get("tessera_checkpoint", &format);
  if (json.contains("tessera_checkpoint") && format != kFormat) {
    return Wrong(where, absl::StrCat("tessera_checkpoint is ", format, ", want ", kFormat,
                                     "; another version of the program wrote it"));
  }
  fields.Get("job", &manifest.job);
  fields.Get("job_digest", &manifest.job_digest);
  fields.Get("job_text", &manifest.job_text);
  fields.Get("method", &manifest.method);
  fields.Get("version", &manifest.version);
  fields.GetBelow(kSavedStepEnd, "step", &manifest.step);
  fields.GetBelow(kSavedNumberEnd, "exchange", &manifest.exchange);
  fields.GetBelow(kSavedNumberEnd, "generation", &manifest.generation);
  fields.Get("layout_hash", &layout_hash);
  fields.Get("states", &manifest.states);
  fields.Get("model_parameters", &manifest.model_parameters);
  TESSERA_RETURN_IF_ERROR(
      ReadList(where, "parameters", &fields, kManifestTensorsMax, &manifest.parameters));
  TESSERA_RETURN_IF_ERROR(ReadList(where, "shards", &fields, kServersMax, &manifest.shards));
  TESSERA_RETURN_IF_ERROR(ReadList(where, "members", &fields, kRankEnd, &manifest.members));
  TESSERA_RETURN_IF_ERROR(
      ReadList(where, "files", &fields, kServersMax + kRankEnd, &manifest.files));
  const Json* coordinator = fields.GetObject("coordinator");
  std::string sum_digits;
  fields.Get("xxh3", &sum_digits);
  TESSERA_RETURN_IF_ERROR(fields.Finish());
  manifest.coordinator = coordinator->dump();
  if (!ParseHex64(layout_hash, &manifest.layout_hash)) {
    return Wrong(where,
                 absl::StrCat("layout_hash is \"", layout_hash, "\", want 16 hexadecimal digits"));
  }
  if (manifest.shards.empty()) return Wrong(where, "shards is empty, want at least one");
  if (manifest.states > kStatesMax) {
    return Wrong(where, absl::StrCat("states is ", manifest.states, ", want at most ", kStatesMax));
  }
  // The readers' limit is of tensors, and there is one per parameter and state.
  const int64_t tensors = (manifest.states + 1) * static_cast<int64_t>(manifest.parameters.size());
  if (tensors > kManifestTensorsMax) {
    return Wrong(where, absl::StrCat("parameters and their states are ", tensors,
                                     " tensors, want at most ", kManifestTensorsMax));
  }
  if (manifest.model_parameters > static_cast<int64_t>(manifest.parameters.size())) {
    return Wrong(where,
                 absl::StrCat("model_parameters is ", manifest.model_parameters, ", but there are ",
                              manifest.parameters.size(), " parameters"));
  }
  TESSERA_RETURN_IF_ERROR(CheckParameters(absl::StrCat(where, ".parameters"), manifest));
  TESSERA_RETURN_IF_ERROR(CheckFiles(absl::StrCat(where, ".files"), manifest));
  // The sum comes last: of a text that is damaged, a message about the damaged field says more.
  uint64_t sum = 0;
  if (!ParseHex64(sum_digits, &sum) || sum != SumOfText(text)) {
    return Wrong(where,
                 "xxh3 is not the sum of the text; its bytes are not the ones that were written");
  }
  return manifest;
}

std::string StepFolderName(uint64_t step) { return absl::StrFormat("step-%012d", step); }

std::string PartialFolderName(uint64_t step) {
  return absl::StrCat(kPartialPrefix, StepFolderName(step));
}

bool ParseStepFolderName(absl::string_view name, uint64_t* step) {
  absl::string_view digits = name;
  uint64_t read = 0;
  if (!absl::ConsumePrefix(&digits, "step-") || !absl::SimpleAtoi(digits, &read)) return false;
  // Formatting what was read refuses other spellings, such as fewer digits or a sign.
  if (StepFolderName(read) != name) return false;
  *step = read;
  return true;
}

std::string ShardFileName(int64_t shard, int64_t shard_count) {
  return absl::StrCat("shard-", shard, "-of-", shard_count, ".safetensors");
}

std::string WorkerFileName(uint64_t rank) { return absl::StrCat("worker-", rank, ".safetensors"); }

bool ParseFileName(absl::string_view name, FileOwner* owner) {
  absl::string_view rest = name;
  uint64_t count = 0;
  owner->is_worker = absl::ConsumePrefix(&rest, "worker-");
  if (!owner->is_worker && !absl::ConsumePrefix(&rest, "shard-")) return false;
  const size_t end = rest.find_first_not_of("0123456789");
  if (end == absl::string_view::npos || !absl::SimpleAtoi(rest.substr(0, end), &owner->rank)) {
    return false;
  }
  // Formatting what was read refuses other spellings, and all that follows the number but what is expected.
  if (owner->is_worker) return WorkerFileName(owner->rank) == name;
  rest.remove_prefix(end);
  if (!absl::ConsumePrefix(&rest, "-of-")) return false;
  const absl::string_view digits = rest.substr(0, rest.find_first_not_of("0123456789"));
  if (!absl::SimpleAtoi(digits, &count) || count > kServersMax) return false;
  if (owner->rank >= count) return false;
  return ShardFileName(static_cast<int64_t>(owner->rank), static_cast<int64_t>(count)) == name;
}

std::string WrittenName(const CheckpointFile& file) {
  return absl::StrCat(file.name, ".", Hex64(file.sum));
}

std::string StateName(int64_t state, absl::string_view parameter) {
  return absl::StrCat("state.", state, ".", parameter);
}

}  // namespace tessera
