#include "server/control/saved_job.h"

#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/check.h"
#include "common/base/limits.h"
#include "common/checkpoint/strict_json.h"

namespace tessera {
namespace {

using Json = nlohmann::json;

constexpr int64_t kFormat = 1;
constexpr size_t kHistoryMax = 1 << 20;
// A worker's order of rows takes 32 bits of an epoch (worker/data/order.h).
constexpr uint64_t kEpochEnd = uint64_t{1} << 31;
// An epoch may begin before the end of the job and end behind it.
constexpr uint64_t kCutStepEnd = 2 * kSavedStepEnd;
// A worker of every rank may have the most rows.
constexpr uint64_t kRowsTotalEnd = kMemberRowsMax * kRankEnd + 1;
constexpr double kSecondsMax = 1e10;

std::string Text(double value) { return absl::StrFormat("%.17g", value); }

absl::Status Wrong(const std::string& where, absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat(where, ": ", what));
}

absl::Status GetNumber(const std::string& where, const char* key, JsonFields* fields,
                       double* value) {
  std::string text = "0";
  fields->Get(key, &text);
  if (absl::SimpleAtod(text, value)) return absl::OkStatus();
  return Wrong(where, absl::StrCat(key, " is \"", text, "\", want a number"));
}

Json ToJson(const SavedCut& cut) {
  Json json = {{"epoch", cut.epoch},
               {"first_step", cut.first_step},
               {"steps", cut.steps},
               {"rows_total", cut.rows_total},
               {"ranks", cut.ranks}};
  if (!cut.batch_rows.empty()) json["batch_rows"] = cut.batch_rows;
  return json;
}

Json ToJson(const v1::HistoryEntry& entry) {
  Json precision = Json::array();
  for (const double value : entry.precision_at()) precision.push_back(Text(value));
  return {{"seconds", Text(entry.seconds())},
          {"step", entry.step()},
          {"epoch", Text(entry.epoch())},
          {"round", entry.round()},
          {"train_loss", Text(entry.train_loss())},
          {"test_loss", Text(entry.test_loss())},
          {"test_accuracy", Text(entry.test_accuracy())},
          {"precision_at", std::move(precision)}};
}

absl::StatusOr<SavedCut> ReadCut(const std::string& where, const Json& json) {
  if (!json.is_object()) return Wrong(where, "is no object");
  JsonFields fields(where, json);
  SavedCut cut;
  fields.GetBelow(kEpochEnd, "epoch", &cut.epoch);
  fields.GetBelow(kCutStepEnd, "first_step", &cut.first_step);
  fields.GetBelow(kCutStepEnd, "steps", &cut.steps);
  fields.GetBelow(kRowsTotalEnd, "rows_total", &cut.rows_total);
  const Json* ranks = fields.GetArray("ranks");
  const Json* batch_rows = fields.Has("batch_rows") ? fields.GetArray("batch_rows") : nullptr;
  TESSERA_RETURN_IF_ERROR(fields.Finish());
  if (cut.steps == 0) return Wrong(where, "steps is 0, want at least 1");
  if (ranks->empty() || ranks->size() > kRankEnd) {
    return Wrong(where, absl::StrCat("ranks are ", ranks->size(), ", want 1 to ", kRankEnd));
  }
  for (const Json& rank : *ranks) {
    if (!rank.is_number_unsigned() || rank.get<uint64_t>() >= kRankEnd) {
      return Wrong(where,
                   absl::StrCat("ranks: has ", rank.dump(), ", want numbers below ", kRankEnd));
    }
    if (!cut.ranks.empty() && rank.get<uint64_t>() <= cut.ranks.back()) {
      return Wrong(where, "ranks do not ascend");
    }
    cut.ranks.push_back(rank.get<uint64_t>());
  }
  if (batch_rows == nullptr) return cut;
  for (const Json& rows : *batch_rows) {
    if (!rows.is_number_unsigned() || rows.get<uint64_t>() == 0 ||
        rows.get<uint64_t>() >= kMemberRowsMax) {
      return Wrong(where, absl::StrCat("batch_rows: has ", rows.dump(), ", want numbers from 1 to ",
                                       kMemberRowsMax - 1));
    }
    cut.batch_rows.push_back(rows.get<int64_t>());
  }
  if (cut.batch_rows.size() != cut.ranks.size()) {
    return Wrong(where, absl::StrCat("batch_rows are ", cut.batch_rows.size(), ", want ",
                                     cut.ranks.size(), ", one for each rank"));
  }
  return cut;
}

absl::StatusOr<v1::HistoryEntry> ReadEntry(const std::string& where, const Json& json) {
  if (!json.is_object()) return Wrong(where, "is no object");
  JsonFields fields(where, json);
  v1::HistoryEntry entry;
  uint64_t step = 0, round = 0;
  double seconds = 0, epoch = 0, train_loss = 0, test_loss = 0, test_accuracy = 0;
  TESSERA_RETURN_IF_ERROR(GetNumber(where, "seconds", &fields, &seconds));
  fields.GetBelow(kSavedStepEnd, "step", &step);
  TESSERA_RETURN_IF_ERROR(GetNumber(where, "epoch", &fields, &epoch));
  fields.GetBelow(kSavedNumberEnd, "round", &round);
  TESSERA_RETURN_IF_ERROR(GetNumber(where, "train_loss", &fields, &train_loss));
  TESSERA_RETURN_IF_ERROR(GetNumber(where, "test_loss", &fields, &test_loss));
  TESSERA_RETURN_IF_ERROR(GetNumber(where, "test_accuracy", &fields, &test_accuracy));
  const Json* precision = fields.GetArray("precision_at");
  TESSERA_RETURN_IF_ERROR(fields.Finish());
  for (const Json& text : *precision) {
    double value = 0;
    if (!text.is_string() || !absl::SimpleAtod(text.get<std::string>(), &value)) {
      return Wrong(where, "precision_at has no numbers");
    }
    entry.add_precision_at(value);
  }
  entry.set_seconds(seconds);
  entry.set_step(step);
  entry.set_epoch(epoch);
  entry.set_round(round);
  entry.set_train_loss(train_loss);
  entry.set_test_loss(test_loss);
  entry.set_test_accuracy(test_accuracy);
  return entry;
}

}  // namespace

std::string FormatSavedJob(const SavedJob& job) {
  Json cuts = Json::array(), history = Json::array();
  for (const SavedCut& cut : job.cuts) cuts.push_back(ToJson(cut));
  for (const v1::HistoryEntry& entry : job.history) history.push_back(ToJson(entry));
  Json json = {{"format", kFormat},
               {"train_seconds", Text(job.train_seconds)},
               {"evaluation_due", job.evaluation_due ? 1 : 0},
               {"whole_next", job.whole_next ? 1 : 0},
               {"cuts", std::move(cuts)},
               {"history", std::move(history)}};
  if (job.examples) json["examples"] = *job.examples;
  return json.dump();
}

absl::StatusOr<SavedJob> ParseSavedJob(const std::string& where, absl::string_view text) {
  TESSERA_ASSIGN_OR_RETURN(const Json json, ParseJsonObject(where, text));
  JsonFields fields(where, json);
  SavedJob job;
  int64_t format = 0;
  uint64_t evaluation_due = 0, whole_next = 0;
  fields.Get("format", &format);
  TESSERA_RETURN_IF_ERROR(GetNumber(where, "train_seconds", &fields, &job.train_seconds));
  fields.Get("evaluation_due", &evaluation_due);
  fields.Get("whole_next", &whole_next);
  if (fields.Has("examples")) fields.GetBelow(kSavedCountEnd, "examples", &job.examples.emplace());
  for (const char* const unread : {"joined", "lost", "partial_pushes"}) {
    uint64_t count = 0;
    if (fields.Has(unread)) fields.Get(unread, &count);
  }
  const Json* cuts = fields.GetArray("cuts");
  const Json* history = fields.GetArray("history");
  TESSERA_RETURN_IF_ERROR(fields.Finish());
  if (format != kFormat) {
    return Wrong(where, absl::StrCat("format is ", format, ", want ", kFormat));
  }
  if (!(job.train_seconds >= 0 && job.train_seconds <= kSecondsMax)) {
    return Wrong(where,
                 absl::StrCat("train_seconds is ", job.train_seconds, ", want 0 to ", kSecondsMax));
  }
  if (cuts->size() > kSavedCutsMax || history->size() > kHistoryMax) {
    return Wrong(where, "cuts or history are too many");
  }
  job.evaluation_due = evaluation_due != 0;
  job.whole_next = whole_next != 0;
  for (const Json& entry : *cuts) {
    TESSERA_ASSIGN_OR_RETURN(SavedCut cut, ReadCut(absl::StrCat(where, ".cuts"), entry));
    if (!job.cuts.empty() &&
        (cut.epoch != job.cuts.back().epoch + 1 ||
         cut.first_step != job.cuts.back().first_step + job.cuts.back().steps)) {
      return Wrong(where, "cuts have a gap");
    }
    job.cuts.push_back(std::move(cut));
  }
  for (const Json& json_entry : *history) {
    TESSERA_ASSIGN_OR_RETURN(v1::HistoryEntry entry,
                             ReadEntry(absl::StrCat(where, ".history"), json_entry));
    job.history.push_back(std::move(entry));
  }
  return job;
}

absl::Status CheckReadable(const Manifest& manifest) {
  const std::string text = FormatManifest(manifest);
  if (static_cast<int64_t>(text.size()) > kManifestBytesMax) {
    return Wrong("manifest",
                 absl::StrCat("is ", text.size(), " bytes, want at most ", kManifestBytesMax));
  }
  TESSERA_ASSIGN_OR_RETURN(const Manifest read, ParseManifest("manifest", text));
  return ParseSavedJob("manifest.coordinator", read.coordinator).status();
}

}  // namespace tessera
