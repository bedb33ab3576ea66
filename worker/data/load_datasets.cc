#include "worker/data/load_datasets.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/machine_memory.h"
#include "common/config/data_formats.h"
#include "common/method/train_rows.h"
#include "worker/data/data_notes.h"
#include "worker/data/label_map.h"
#include "worker/data/limits.h"
#include "worker/data/table_reader.h"
#include "worker/data/text.h"

namespace tessera {
namespace {

// Whether the tokens are the characters of the training text.
bool HasCharacters(const v1::Data& data) {
  return data.format() == "text" && data.tokenizer() != "bytes";
}

// Batches that are read ahead where values stay on disk: one that is asked for next, and some for the time in which a
// thread has to wait for a disk.
constexpr int64_t kBatchesAhead = 4;
// Evaluations read at least so many rows at once.
constexpr int64_t kRowsAtOnceMin = 128;

// Whether files of tokens meet a model of tokens, and nothing is asked of them that is for numbers.
absl::Status CheckTokens(const v1::Data& data, const DataFormat& format, const ModelEnds& ends) {
  // A model of tokens cannot read rows of numbers, nor the other way round.
  if (format.is_tokens != ends.tokens) {
    return absl::InvalidArgumentError(
        absl::StrCat("data.format: is ", format.name, ", want ",
                     ends.tokens ? "tokens or text, as model.input is tokens"
                                 : "a format of rows of numbers, as model.input has no tokens"));
  }
  if (!ends.tokens) return absl::OkStatus();
  const v1::Normalize& normalize = data.normalize();
  const auto is_only = [](const auto& numbers, double number) {
    return numbers.empty() || (numbers.size() == 1 && numbers[0] == number);
  };
  if (normalize.per_feature() || !is_only(normalize.mean(), 0) || !is_only(normalize.stddev(), 1)) {
    return absl::InvalidArgumentError(absl::StrCat("data.normalize: is given, want none with ",
                                                   format.name, ": tokens are no quantities"));
  }
  if (HasCharacters(data) && data.partition() == "local") {
    return absl::InvalidArgumentError(
        "data.tokenizer: is characters with data.partition local, want bytes: no worker sees the "
        "others' characters, and each would number its own");
  }
  return absl::OkStatus();
}

// What a text whose tokens are fewer than the model's is told; empty: they are as many.
std::string NoteOnVocabulary(const v1::Data& data, const TrainingConventions& conventions,
                             const ModelEnds& ends) {
  const int64_t tokens = conventions.characters    ? conventions.characters->size()
                         : data.format() == "text" ? kByteTokens
                                                   : ends.outputs;
  // A vocabulary that is too large trains all the same: a note, no refusal.
  if (!ends.tokens || tokens >= ends.outputs) return "";
  return absl::StrCat("model.input.tokens.vocabulary is ", ends.outputs, ", and the ",
                      conventions.characters ? "training text has " : "bytes of a text are ",
                      tokens, conventions.characters ? " different characters" : " tokens",
                      ": the others never occur, and ", tokens, " would do");
}

absl::Status CheckAugment(const ModelEnds& ends) {
  if (ends.input.size() == 3) return absl::OkStatus();
  return absl::InvalidArgumentError(
      "data.augment: is given, want none: model.input is not [channels, height, width]");
}

// Whether test rows are what training rows are, as far as their files say.
absl::Status CheckAlike(const v1::Data& data, const Table& train, const Table& test) {
  const std::string train_path = DataFilePath(data, data.train().features(0));
  const std::string test_path = DataFilePath(data, data.test().features(0));
  TESSERA_RETURN_IF_ERROR(CheckSameKind(test_path, test, train_path, train));
  return CheckSameShape(test_path, test, train);
}

// `values` as `count` entries: one is repeated, none is `absent`.
std::vector<double> Entries(const google::protobuf::RepeatedField<double>& values, size_t count,
                            double absent) {
  if (values.size() > 1) return {values.begin(), values.end()};
  return std::vector<double>(count, values.empty() ? absent : values[0]);
}

// The two lists of data.normalize, of one entry or as many as there are channels.
Normalization GivenBy(const v1::Normalize& normalize) {
  const size_t count = std::max({1, normalize.mean_size(), normalize.stddev_size()});
  return {Entries(normalize.mean(), count, 0), Entries(normalize.stddev(), count, 1)};
}

// A number for each input would be as long as a picture: only channels may have numbers of their own.
absl::Status CheckEntries(absl::string_view key, int entries, const ModelEnds& ends) {
  const bool has_channels = ends.input.size() == 3;
  if (entries <= 1 || (has_channels && entries == ends.input[0])) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "data.normalize.", key, ": has ", entries, " numbers, want one",
      has_channels ? absl::StrCat(", or ", ends.input[0], ", one for each channel of model.input")
                   : ": model.input has no channels"));
}

absl::Status CheckNormalize(const v1::Normalize& normalize, const ModelEnds& ends) {
  TESSERA_RETURN_IF_ERROR(CheckEntries("mean", normalize.mean_size(), ends));
  TESSERA_RETURN_IF_ERROR(CheckEntries("stddev", normalize.stddev_size(), ends));
  const Normalization wanted = GivenBy(normalize);
  for (size_t k = 0; k < wanted.mean.size(); ++k) {
    // Where the inverse is not finite, neither are the inputs.
    const double mean = wanted.mean[k], stddev = wanted.stddev[k];
    // A stddev may be positive and its inverse infinite as a float.
    const auto inverse = static_cast<float>(1 / stddev);
    if (stddev > 0 && std::isfinite(inverse) && inverse > 0 &&
        std::abs(mean) <= std::numeric_limits<float>::max()) {
      continue;
    }
    return absl::InvalidArgumentError(absl::StrCat("data.normalize: mean is ", mean,
                                                   " and stddev is ", stddev,
                                                   ", want finite numbers and a positive stddev"));
  }
  return absl::OkStatus();
}

// Whether zeros become something else.
bool MovesZeros(const v1::Normalize& normalize) {
  return normalize.per_feature() || std::any_of(normalize.mean().begin(), normalize.mean().end(),
                                                [](double mean) { return mean != 0; });
}

// What a model was trained with, where other files are read.
absl::Status CheckFacts(const v1::Data& data, const ModelFacts& facts, const ModelEnds& ends) {
  const size_t entries = facts.mean.size();
  if (entries != 1 && static_cast<int64_t>(entries) != ends.inputs) {
    return absl::InvalidArgumentError(absl::StrCat("checkpoint: normalisation is of ", entries,
                                                   " inputs, and the job's model has ",
                                                   ends.inputs));
  }
  const DataFormat& format = DataFormatOf(data.format());
  // Formats whose rows stay sparse cannot take what the model subtracts from zeros.
  if (format.stays_sparse && (entries != 1 || facts.mean[0] != 0)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "data.format: is ", format.name,
        ", whose rows stay sparse, and the checkpoint's normalisation would make "
        "zeros something else; name files of the format that the model was trained with"));
  }
  // Tokens would mean other characters to the model.
  if (facts.characters.empty() == HasCharacters(data)) {
    return absl::InvalidArgumentError(absl::StrCat(
        HasCharacters(data) ? "data.tokenizer: is characters, and the checkpoint's model was not "
                              "trained on characters"
                            : "data: the checkpoint's model was trained on the characters of a "
                              "text",
        "; name data of the format and the tokenizer that it was trained with"));
  }
  // Labels of other formats are classes already.
  if (!facts.labels.empty() && !format.numbers_labels) {
    return absl::InvalidArgumentError(
        absl::StrCat("data.format: is ", format.name, ", and the checkpoint's classes 0 to ",
                     facts.labels.size() - 1, " are the labels ", facts.labels.front(), " to ",
                     facts.labels.back(), " of libsvm files; name files of that format"));
  }
  return absl::OkStatus();
}

}  // namespace

int64_t DatasetBytesMaxHere() {
  const std::optional<MachineMemory> memory = ReadWholeMemory();
  // Where nobody says how much memory there is, the system itself refuses what is too much.
  return memory ? memory->bytes : std::numeric_limits<int64_t>::max();
}

absl::StatusOr<Datasets> LoadDatasets(const v1::Data& data, const ModelEnds& ends,
                                      int64_t bytes_max, const ModelFacts* facts,
                                      const ReadingPlan& plan) {
  TESSERA_CHECK(ends.inputs >= 1 && ends.outputs >= 1);
  // Before the product is used as a size anywhere.
  if (ends.inputs > kFeaturesMax) {
    return absl::InvalidArgumentError(
        absl::StrCat("model.input: product is ", ends.inputs, ", want at most ", kFeaturesMax));
  }
  const bool per_feature = data.normalize().per_feature();
  // With per_feature the job gives no numbers to check.
  if (data.has_normalize() && !per_feature) {
    TESSERA_RETURN_IF_ERROR(CheckNormalize(data.normalize(), ends));
  }
  const DataFormat* const format = FindDataFormat(data.format());
  if (format == nullptr) {
    return absl::InvalidArgumentError(
        absl::StrCat("data.format: is \"", data.format(), "\", want ", DataFormatNames()));
  }
  if (format->stays_sparse && MovesZeros(data.normalize())) {
    return absl::InvalidArgumentError(
        absl::StrCat("data.normalize: would make zeros something else, want only a stddev: the "
                     "rows of ",
                     format->name, " files stay sparse"));
  }
  TESSERA_RETURN_IF_ERROR(CheckTokens(data, *format, ends));
  TableSpec spec = TableSpecOf(ends);
  spec.seed = plan.seed;
  spec.trains = true;
  spec.local_files = data.partition() == "local";
  spec.bytes_max = bytes_max;
  if (data.memory() > 0) spec.held_bytes_max = data.memory();
  Dataset::Options of_train;
  of_train.threads_ahead = std::max(1, static_cast<int>(data.threads()));
  of_train.rows_ahead = kBatchesAhead * plan.batch;
  const Dataset::Options of_test = of_train;
  if (Augments(data.augment())) {
    TESSERA_RETURN_IF_ERROR(CheckAugment(ends));
    // Training rows alone are changed at random; `spec` gets an empty augmentation before test rows are read.
    spec.augmentation = Augmentation(data.augment(), plan.seed, ends.input);
    of_train.augmentation = spec.augmentation;
  }
  TrainingConventions conventions(data);
  if (facts != nullptr) {
    TESSERA_RETURN_IF_ERROR(CheckFacts(data, *facts, ends));
    TESSERA_ASSIGN_OR_RETURN(conventions.labels, LabelMap::Of(facts->labels, spec));
    if (HasCharacters(data)) conventions.characters.emplace(facts->characters);
  }
  // Training rows are read first, as they decide about labels, characters, class names and columns for both.
  TESSERA_ASSIGN_OR_RETURN(Table train,
                           ReadTable(data, data.train(), "data.train", spec, &conventions));
  spec.augmentation = Augmentation();
  spec.trains = false;
  // Test rows share the memory with the training rows that have been read.
  spec.bytes_max -= train.bytes();
  if (data.memory() > 0) {
    const bool is_held = !std::holds_alternative<StoredValues>(train.values);
    // Only what is held counts against data.memory.
    spec.held_bytes_max -= is_held ? std::min(train.bytes(), spec.held_bytes_max) : 0;
  }
  TESSERA_ASSIGN_OR_RETURN(Table test,
                           ReadTable(data, data.test(), "data.test", spec, &conventions));
  TESSERA_RETURN_IF_ERROR(CheckAlike(data, train, test));
  if (facts != nullptr) {
    TESSERA_RETURN_IF_ERROR(
        CheckTrainedKind(DataFilePath(data, data.train().features(0)), train, facts->bytes));
  }
  std::vector<std::string> notes = NotesOn(train, test, spec);
  if (std::string note = NoteOnVocabulary(data, conventions, ends); !note.empty()) {
    notes.push_back(std::move(note));
  }

  Normalization normalization;
  // What the checkpoint says comes before what the job's file or the rows would say.
  if (facts != nullptr) {
    normalization = {facts->mean, facts->stddev};
  } else if (per_feature) {
    TESSERA_ASSIGN_OR_RETURN(normalization, NormalizationOf(train));
  } else if (data.has_normalize()) {
    normalization = GivenBy(data.normalize());
  }
  ModelFacts determined;
  if (conventions.labels) determined.labels = conventions.labels->labels();
  if (conventions.characters) determined.characters = conventions.characters->code_points();
  // A checkpoint knows inputs, not channels.
  Normalization kept = ExpandChannels(normalization, ends.inputs);
  determined.mean = std::move(kept.mean);
  determined.stddev = std::move(kept.stddev);
  determined.bytes = train.is_bytes();
  return Datasets{Dataset(std::move(train), normalization, ends, of_train),
                  Dataset(std::move(test), normalization, ends, of_test), std::move(determined),
                  std::move(notes)};
}

ReadingPlan ReadingPlanOf(const v1::Job& job) {
  return {job.seed(), std::max(kRowsAtOnceMin, MinibatchRowsMax(job))};
}

absl::StatusOr<Datasets> LoadDatasets(const v1::Job& job, const ModelEnds& ends,
                                      const ModelFacts* facts) {
  const int64_t limit = job.cluster().memory_limit();
  absl::StatusOr<Datasets> loaded = LoadDatasets(
      job.data(), ends, limit > 0 ? limit : DatasetBytesMaxHere(), facts, ReadingPlanOf(job));
  // Which key limits the memory is added where the limit is the job's own.
  if (limit == 0 || !absl::IsResourceExhausted(loaded.status())) return loaded;
  return absl::ResourceExhaustedError(absl::StrCat(loaded.status().message(),
                                                   "; cluster.memory_limit is ", limit,
                                                   " bytes, which is all that a worker may take"));
}

bool NormalizesOtherwise(const v1::Job& job, const ModelFacts& facts) {
  const v1::Data& data = job.data();
  int64_t inputs = 1;
  for (const int64_t extent : job.model().input()) inputs *= extent;
  // The numbers follow from the rows, which are not read here: only their count can be compared.
  if (data.normalize().per_feature()) return static_cast<int64_t>(facts.mean.size()) != inputs;
  const Normalization wanted = ExpandChannels(GivenBy(data.normalize()), inputs);
  return facts.mean != wanted.mean || facts.stddev != wanted.stddev;
}

}  // namespace tessera
