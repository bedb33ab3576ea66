#include "deploy/cli/init/job_draft.h"

#include <algorithm>
#include <filesystem>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "common/config/data_formats.h"
#include "common/method/catalog.h"
#include "proto/job.pb.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;

// Two workers show what a distributed job is, and fit on any machine.
constexpr int64_t kWorkers = 2;
// From so many rows or features on a hidden layer learns more than it memorises.
constexpr int64_t kRowsForHidden = 200;
// Sparse rows as wide as these are told apart by a plane.
constexpr int64_t kLinearFrom = 16384;
constexpr int64_t kWide = 512;
constexpr int64_t kImageSideDeep = 16;

// A text as YAML has it: as it is where no character of it means something, else quoted.
std::string Yaml(const std::string& text) {
  const bool is_plain =
      !text.empty() && (absl::ascii_isalnum(text[0]) || text[0] == '/' || text[0] == '.') &&
      std::all_of(text.begin(), text.end(), [](unsigned char c) {
        return absl::ascii_isalnum(c) || absl::StrContains("_./-", std::string(1, c));
      });
  return is_plain ? text : absl::StrCat("\"", absl::CHexEscape(text), "\"");
}

// A file's path from the data's folder on.
std::string FileText(const std::string& path, const std::string& directory) {
  const fs::path from =
      fs::path(path).lexically_normal().lexically_relative(fs::path(directory).lexically_normal());
  const bool is_below = !from.empty() && *from.begin() != "..";
  return Yaml(is_below ? from.string() : fs::absolute(path).lexically_normal().string());
}

std::string FilesText(const std::vector<std::string>& paths, const std::string& directory) {
  std::vector<std::string> names;
  for (const std::string& path : paths) names.push_back(FileText(path, directory));
  return names.size() == 1 ? names[0] : absl::StrCat("[", absl::StrJoin(names, ", "), "]");
}

std::string SetText(const std::vector<std::string>& features,
                    const std::vector<std::string>& labels, const std::string& directory) {
  return absl::StrCat(
      "{features: ", FilesText(features, directory),
      labels.empty() ? "" : ", labels: ", labels.empty() ? "" : FilesText(labels, directory), "}");
}

bool IsOfTokens(const DataLook& look) { return look.vocabulary > 0; }
bool LearnsNumbersIn(const DataLook& look) { return !IsOfTokens(look) && look.classes == 0; }
bool IsImage(const DataLook& look) {
  return look.input.size() == 3 && std::min(look.input[1], look.input[2]) >= 8;
}

int64_t Features(const DataLook& look) {
  int64_t features = 1;
  for (const int64_t size : look.input) features *= size;
  return features;
}

int64_t ContextOf(const DataLook& look) {
  // A training set wants two windows at least for each worker, and a test set one.
  const int64_t least = std::min(look.tokens / (2 * kWorkers), look.test_tokens - 1);
  int64_t context = 64;
  while (context > 1 && context > least) context /= 2;
  return context;
}

int64_t RowsOf(const DataLook& look) {
  return IsOfTokens(look) ? look.tokens / ContextOf(look) : look.train_rows;
}

int64_t BatchOf(const DataLook& look) {
  const int64_t rows = RowsOf(look);
  int64_t batch = IsOfTokens(look) ? 16 : rows < 20000 ? 32 : 128;
  while (batch > 1 && batch * kWorkers > rows) batch /= 2;
  return batch;
}

int64_t EpochsOf(const DataLook& look) {
  const int64_t rows = RowsOf(look);
  if (IsOfTokens(look)) return 5;
  return rows < 10000 ? 20 : rows < 100000 ? 10 : 3;
}

std::string NormalizeText(const DataLook& look) {
  if (IsOfTokens(look)) return "";
  if (look.is_bytes) {
    return absl::StrFormat(
        "  # Bytes are divided by 255 first; these are mean and deviation of what that gives.\n"
        "  normalize: {mean: %.4g, stddev: %.4g}\n",
        look.mean, look.stddev);
  }
  if (look.wants_normalization && !look.is_sparse) {
    return "  # Features have sizes of their own: each is made to have mean 0 and deviation 1.\n"
           "  normalize: {per_feature: true}\n";
  }
  return "";
}

// The layers in front of the last one, for images.
std::string ConvolutionText(const DataLook& look) {
  const bool is_deep = std::min(look.input[1], look.input[2]) >= kImageSideDeep;
  const int64_t channels = is_deep ? 32 : 16;
  const auto block = [](int64_t width, const char* pool) {
    return absl::StrFormat(
        "    - conv2d: {channels: %d, kernel: 3, padding: 1, bias: false}\n"
        "    - batch_norm\n    - relu\n    - %s\n",
        width, pool);
  };
  std::string text = block(channels, "max_pool: {kernel: 2}");
  if (is_deep) absl::StrAppend(&text, block(2 * channels, "max_pool: {kernel: 2}"));
  absl::StrAppend(&text, block(is_deep ? 4 * channels : 2 * channels,
                               "avg_pool            # of all that is left of the image"));
  return text;
}

std::string HiddenText(const DataLook& look) {
  const int64_t units = Features(look) >= kWide ? 256 : 128;
  if (look.is_sparse) return absl::StrFormat("    - linear: {units: %d}\n    - relu\n", units);
  return absl::StrFormat(
      "    - linear: {units: %d, bias: false}   # The norm's shift takes the bias's place.\n"
      "    - batch_norm\n    - relu\n",
      units);
}

// The model of a text: a small GPT (Radford et al., 2019).
std::string TokensText(const DataLook& look) {
  const int64_t width = look.tokens >= 1000000 ? 128 : 64;
  return absl::StrFormat(
      "  # %s; the model looks back %d of them.\n"
      "  input: {tokens: {vocabulary: %d, context: %d}}\n"
      "  layers:\n"
      "    - embedding: {units: %d, stddev: 0.02}\n"
      "    - repeat:\n"
      "        times: %d\n"
      "        layers:\n"
      "          - residual: {layers: [layer_norm, attention: {heads: 4}]}\n"
      "          - residual: {layers: [layer_norm, linear: {units: %d}, gelu, linear: {units: "
      "%d}]}\n"
      "    - layer_norm\n"
      "    - linear: {units: vocabulary, tied: true, bias: false}\n",
      look.own_value.empty()      ? "Numbered tokens"
      : look.own_value == "bytes" ? "Each byte is a token"
                                  : "Each character of the training text is a token",
      ContextOf(look), look.vocabulary, ContextOf(look), width, width == 128 ? 4 : 2, 4 * width,
      width);
}

std::string ModelText(const DataLook& look) {
  if (IsOfTokens(look)) return TokensText(look);
  std::string text = absl::StrCat("  input: [", absl::StrJoin(look.input, ", "), "]",
                                  look.input.size() == 3 ? "    # channels, height, width\n" : "\n",
                                  "  layers:\n");
  if (IsImage(look)) {
    absl::StrAppend(&text, ConvolutionText(look));
  } else if (RowsOf(look) >= kRowsForHidden && Features(look) < kLinearFrom) {
    absl::StrAppend(&text, HiddenText(look));
  }
  if (LearnsNumbersIn(look)) {
    absl::StrAppend(&text,
                    "    - linear: {units: 1}     # Labels are numbers, which the output comes "
                    "close to.\n  loss: mean_squared_error\n");
  } else if (look.has_sets) {
    absl::StrAppend(&text, "    - linear: {units: ", look.classes,
                    "}    # one output for each label\n"
                    "  loss: sigmoid_cross_entropy     # A row has a set of labels.\n");
  } else {
    absl::StrAppend(&text, "    - linear: {units: ", look.classes,
                    "}    # one output for each class\n");
  }
  return text;
}

std::string OptimizerText(const DataLook& look) {
  if (IsOfTokens(look)) {
    return "  clip_norm: 1.0\n  optimizer: {adamw: {learning_rate: 0.001, beta2: 0.99, "
           "weight_decay: 0.1}}\n";
  }
  if (LearnsNumbersIn(look)) return "  optimizer: {adamw: {learning_rate: 0.001}}\n";
  if (look.has_sets) return "  optimizer: {adagrad: {learning_rate: 0.05}}\n";
  return "  optimizer: {sgd: {learning_rate: 0.05, momentum: 0.9}}\n";
}

std::string FormatKeys(const DataLook& look) {
  std::string text;
  const DataFormat& format = DataFormatOf(look.files.format);
  if (!look.own_value.empty()) {
    absl::StrAppend(&text, "  ", format.own_key, ": ", Yaml(look.own_value),
                    look.own_note.empty() ? "" : "    # ", look.own_note, "\n");
  }
  if (format.is_pictures) {
    absl::StrAppend(&text,
                    "  # Pictures are scaled, and the square in the middle is taken; "
                    "model.input is of the same size.\n  resize: ",
                    look.input[1], "\n  crop: ", look.input[1], "\n");
  }
  return text;
}

// The catalog begins with the plainest method.
const std::string& FirstMethod() {
  return v1::Method::descriptor()->FindFieldByNumber(static_cast<int>(Methods()[0]->kind))->name();
}

}  // namespace

std::string DescribeLook(const DataLook& look) {
  if (IsOfTokens(look)) {
    return absl::StrCat(look.files.format, ": ", look.tokens,
                        look.own_value.empty() ? " training tokens" : " bytes of training text",
                        ", a vocabulary of ", look.vocabulary,
                        look.own_value.empty() ? "" : absl::StrCat(" ", look.own_value));
  }
  return absl::StrCat(look.files.format, ": ", look.train_rows, " training rows of [",
                      absl::StrJoin(look.input, ", "), "], ", look.test_rows, " test rows, ",
                      LearnsNumbersIn(look) ? "labels that are numbers"
                      : look.has_sets       ? absl::StrCat("sets of ", look.classes, " labels")
                                            : absl::StrCat(look.classes, " classes"));
}

std::string DraftJob(const DataLook& look, const DraftNames& names) {
  std::string text =
      absl::StrCat("# ", DescribeLook(look), "\n", "# Try it with: tessera run ", names.file,
                   " --report report.json\n", "name: ", Yaml(names.job),
                   "\nseed: 1                 # All randomness follows from it.\ndata:\n  format: ",
                   look.files.format, "\n  directory: ", Yaml(names.written_directory),
                   "    # from this file's folder on\n  train: ",
                   SetText(look.files.train, look.files.train_labels, names.directory), "\n");
  if (look.files.has_no_test) {
    absl::StrAppend(&text,
                    "  # No file is called test or validation: the training rows are evaluated, "
                    "which says nothing of other rows.\n");
  }
  absl::StrAppend(&text,
                  "  test: ", SetText(look.files.test, look.files.test_labels, names.directory),
                  "\n", FormatKeys(look), NormalizeText(look), "model:\n", ModelText(look));
  absl::StrAppend(
      &text, "train:\n  batch_size: ", BatchOf(look),
      "        # of each worker\n  epochs: ", EpochsOf(look), "\n", OptimizerText(look),
      "method:\n"
      "  # Each minibatch, all workers' gradients are averaged. Others: docs/methods.md\n"
      "  ",
      FirstMethod(),
      ": {}\n"
      "cluster: {servers: 1, workers: ",
      kWorkers, "}     # processes on this machine\n");
  return text;
}

}  // namespace tessera
