#include "deploy/cli/check_notes.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/codec/codecs.h"
#include "common/method/catalog.h"
#include "common/method/largest_exchanged.h"
#include "deploy/cli/length_notes.h"

namespace tessera {
namespace {

using Notes = std::vector<std::string>;

// "codec.push bf16 and codec.pull int8", of those that `is`.
template <typename Is>
std::string Named(const CodecChoice& codecs, Is is) {
  Notes names;
  if (is(codecs.push)) names.push_back(absl::StrCat("codec.push ", codecs.push->name()));
  if (is(codecs.pull)) names.push_back(absl::StrCat("codec.pull ", codecs.pull->name()));
  return absl::StrJoin(names, " and ");
}

// Notes codecs that round values away: rounds bring values, and nobody keeps what their rounding lost. A round
// that is the whole job loses it once.
void OnRoundedValues(const Recipe& recipe, Notes* notes) {
  if (recipe.payload != PayloadKind::kValue || recipe.exchanges_once) return;
  const std::string rounding = Named(
      recipe.codecs, [](const Codec& codec) { return codec->traits().loss == CodecLoss::kBiased; });
  if (rounding.empty()) return;
  notes->push_back(absl::StrCat(
      rounding, ": ", recipe.name,
      " exchanges values, and a round that changes one by less than half of what it is "
      "rounded to changes nothing; where learning rates are small use f32, or qsgd, which "
      "rounds without bias"));
}

// Notes a job that is one exchange, of which nothing is to be seen before that.
void OnOneExchange(const v1::Job& job, const Recipe& recipe, Notes* notes) {
  if (!recipe.exchanges_once) return;
  Notes idle;
  if (job.checkpoint().every_steps() > 0) idle.push_back("checkpoint.every_steps");
  if (job.train().target_accuracy() > 0) idle.push_back("train.target_accuracy");
  if (idle.empty()) return;
  notes->push_back(
      absl::StrCat(absl::StrJoin(idle, " and "), ": without effect, as ", recipe.name,
                   " exchanges once, at the end, and servers have nothing new before"));
}

// Notes that a codec has no effect, because the model's parameters are too small for it.
void OnSmallParameters(const v1::Job& job, const Recipe& recipe, Notes* notes) {
  const absl::StatusOr<int64_t> largest = LargestExchanged(job.model(), recipe);
  if (!largest.ok()) return;
  int64_t entries_min = 0;
  const std::string idle = Named(recipe.codecs, [&](const Codec& codec) {
    const int64_t least = codec->traits().parameter_entries_min;
    entries_min = std::max(entries_min, least);
    return *largest < least;
  });
  if (idle.empty()) return;
  notes->push_back(absl::StrCat(idle, ": all goes as f32, as the largest parameter has ", *largest,
                                " entries and those with fewer than ", entries_min,
                                " are not rounded"));
}

// Notes keys of the codec that have no effect beside others, and what the method notes.
void OnCodecAndMethod(const v1::Job& job, Notes* notes) {
  const CodecRemark idle = IdleIn(job.codec().push());
  if (!idle.message.empty()) {
    notes->push_back(absl::StrCat("codec.push.", idle.key, " ", idle.message));
  }
  const Method* const method = MethodOf(job);
  if (method == nullptr || method->notes == nullptr) return;
  for (std::string& note : method->notes(job)) notes->push_back(std::move(note));
}

// Notes a folder that is not used: with etcd the coordinator goes where the servers elect it, and its state with
// it.
void OnCoordinatorFolder(const v1::Job& job, Notes* notes) {
  const v1::CoordinatorPlace& place = job.cluster().coordinator();
  if (place.etcd().empty() || place.directory().empty()) return;
  notes->push_back(
      "cluster.coordinator.directory: without effect beside cluster.coordinator.etcd, which keeps "
      "the coordinator's state");
}

// Notes images that seem to have their channels last: [32, 32, 3] says 32 channels, and is what other programs
// write for 3 of them. Rows of that shape fit it, so nothing else would tell.
void OnChannelsLast(const v1::Model& model, Notes* notes) {
  const auto& input = model.input();
  if (input.size() != 3 || input[0] != input[1] || input[2] >= input[0]) return;
  if (input[2] != 1 && input[2] != 3 && input[2] != 4) return;
  notes->push_back(absl::StrCat(
      "model.input: [", absl::StrJoin(input, ", "), "] is ", input[0], " channels of ", input[1],
      " x ", input[2], "; where the channels are ", input[2], ", write [", input[2], ", ", input[0],
      ", ", input[1], "] and save the rows so: x.transpose(0, 3, 1, 2)"));
}

}  // namespace

std::vector<std::string> NotesOn(const v1::Job& job, const Recipe& recipe,
                                 std::optional<int64_t> rows) {
  Notes notes;
  OnRoundedValues(recipe, &notes);
  OnOneExchange(job, recipe, &notes);
  OnSmallParameters(job, recipe, &notes);
  OnCodecAndMethod(job, &notes);
  OnCoordinatorFolder(job, &notes);
  OnChannelsLast(job.model(), &notes);
  for (std::string& note : LengthNotesOn(job, recipe, rows)) notes.push_back(std::move(note));
  for (const std::string& key : recipe.open_keys) {
    notes.push_back(absl::StrCat(
        key,
        " is auto: tessera run and tessera launch choose it; all else here is of its default"));
  }
  return notes;
}

}  // namespace tessera
