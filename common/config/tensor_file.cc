#include "common/config/tensor_file.h"

#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <memory>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "absl/synchronization/mutex.h"
#include "common/base/check.h"
#include "common/checkpoint/initial_file.h"
#include "common/checkpoint/safetensors_reader.h"
#include "common/config/named_path.h"
#include "common/layout/tensor_layout.h"

namespace tessera {
namespace {

constexpr char kTensors[] = "model.tensors";
// Tensors that a message names; of the others it tells the number.
constexpr size_t kToldMax = 8;

// What tells whether a file is still the one that was read.
using FileState = std::tuple<std::string, dev_t, ino_t, off_t, int64_t, int64_t>;

FileState StateOf(const std::string& path) {
  struct stat info = {};
  if (stat(path.c_str(), &info) != 0) return {};
  return {path, info.st_dev, info.st_ino, info.st_size, info.st_mtim.tv_sec, info.st_mtim.tv_nsec};
}

// What is wrong with a tensor; empty: nothing is.
std::string WhatIsWrong(const TensorSpec& tensor) {
  if (tensor.name.empty()) return "a tensor has no name";
  if (tensor.name.size() > kTensorNameBytesMax) {
    return absl::StrCat("tensor ", Quoted(tensor.name), " has a name of ", tensor.name.size(),
                        " bytes, want at most ", kTensorNameBytesMax);
  }
  const std::string name = absl::StrCat("tensor ", Quoted(tensor.name));
  if (tensor.dtype != "F32" && tensor.dtype != "F16" && tensor.dtype != "BF16") {
    return absl::StrCat(name, " is of ", tensor.dtype,
                        ", want F32, F16 or BF16; leave it out of the file and keep it local to "
                        "each worker");
  }
  if (tensor.size() == 0) {
    return absl::StrCat(name, " is [", absl::StrJoin(tensor.shape, ", "),
                        "], which has no entries; leave it out of the file");
  }
  return "";
}

// The tensors in the order of their names; the file has each name once.
absl::StatusOr<v1::TensorLayout> TensorsOf(const SafetensorsReader& reader) {
  const auto refused = [&reader](const std::string& what) {
    return absl::InvalidArgumentError(absl::StrCat("\"", reader.path(), "\": ", what));
  };
  const std::vector<TensorSpec>& all = reader.tensors();
  if (all.empty()) return refused("has no tensors, want at least one");
  if (all.size() > static_cast<size_t>(kTensorsMax)) {
    return refused(absl::StrCat("has ", all.size(), " tensors, want at most ", kTensorsMax));
  }
  std::vector<const TensorSpec*> sorted;
  std::vector<std::string> wrong;
  size_t left_out = 0;
  for (const TensorSpec& tensor : all) {
    sorted.push_back(&tensor);
    std::string what = WhatIsWrong(tensor);
    if (what.empty()) continue;
    if (wrong.size() < kToldMax) {
      wrong.push_back(std::move(what));
    } else {
      ++left_out;
    }
  }
  if (left_out > 0) wrong.push_back(absl::StrCat("and ", left_out, " more"));
  if (!wrong.empty()) return refused(absl::StrJoin(wrong, "; "));
  std::sort(sorted.begin(), sorted.end(),
            [](const TensorSpec* a, const TensorSpec* b) { return a->name < b->name; });
  v1::TensorLayout layout;
  layout.mutable_tensors()->Reserve(static_cast<int>(sorted.size()));
  for (const TensorSpec* tensor : sorted) {
    v1::Tensor& added = *layout.add_tensors();
    added.set_name(tensor->name);
    added.mutable_dims()->Add(tensor->shape.begin(), tensor->shape.end());
  }
  return layout;
}

absl::StatusOr<v1::TensorLayout> ReadLayout(const std::string& path) {
  TESSERA_ASSIGN_OR_RETURN(std::unique_ptr<SafetensorsReader> reader,
                           SafetensorsReader::Open(path));
  TESSERA_ASSIGN_OR_RETURN(v1::TensorLayout layout, TensorsOf(*reader));
  TESSERA_ASSIGN_OR_RETURN(const std::vector<ParameterSpec> parameters, ParametersOf(layout));
  TESSERA_ASSIGN_OR_RETURN(const std::shared_ptr<const InitialFile> file,
                           InitialFile::OpenWith(std::move(reader), parameters));
  layout.set_sum(SumOf(layout, file->sum()));
  return layout;
}

}  // namespace

absl::StatusOr<v1::TensorLayout> LayoutOfFile(const std::string& path) {
  static absl::Mutex mutex(absl::kConstInit);
  // The last file that was read: a process has one job.
  static auto* const kept = new std::pair<FileState, v1::TensorLayout>;
  absl::MutexLock lock(&mutex);
  const FileState state = StateOf(path);
  const bool is_there = !std::get<std::string>(state).empty();
  if (is_there && kept->first == state) return kept->second;
  absl::StatusOr<v1::TensorLayout> layout = ReadLayout(path);
  // One that was written meanwhile is read anew the next time.
  if (layout.ok() && StateOf(path) == state) *kept = {state, *layout};
  return layout;
}

void ReadTensorFile(const Positions& positions, bool may_be_missing, v1::Model* model,
                    JobErrors* errors) {
  model->mutable_tensor_layout();
  if (errors->Touches(kTensors)) return;
  const auto fail = [&](const std::string& message) {
    errors->Add(PositionOf(positions, kTensors), kTensors,
                absl::StrCat("got ", Quoted(model->tensors()), ", ", message));
  };
  struct stat info;
  const bool is_missing = stat(model->tensors().c_str(), &info) != 0 && errno == ENOENT;
  if (is_missing && may_be_missing) return;
  if (const std::string why = WhyNoFile(model->tensors()); !why.empty()) {
    return fail(
        absl::StrCat("want a safetensors file that can be read; ", model->tensors(), ": ", why));
  }
  absl::StatusOr<v1::TensorLayout> layout = LayoutOfFile(model->tensors());
  if (layout.ok()) {
    *model->mutable_tensor_layout() = *std::move(layout);
    return;
  }
  absl::string_view message = layout.status().message();
  for (const char* const prefix : {"checkpoint: ", "model.tensors: "}) {
    message = absl::StripPrefix(message, prefix);
  }
  fail(absl::StrCat("want a safetensors file of a model's tensors: ", message));
}

}  // namespace tessera
