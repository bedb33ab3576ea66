#include "worker/checkpoint/worker_file.h"

#include <optional>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/string_view.h"
#include "common/base/check.h"
#include "common/checkpoint/safetensors_writer.h"

namespace tessera {
namespace {

// 17 digits bring a double back to the bit.
std::string Text(double value) { return absl::StrFormat("%.17g", value); }

// The file's metadata, as numbers.
class Facts {
 public:
  Facts(const SafetensorsReader& file) : file_(file) {}

  void Get(const char* key, uint64_t* value) {
    const std::string text = Find(key);
    if (!absl::SimpleAtoi(text, value)) Wrong(key, text);
  }
  void Get(const char* key, double* value) {
    const std::string text = Find(key);
    if (!absl::SimpleAtod(text, value)) Wrong(key, text);
  }
  // Reads a number that need not be there.
  void GetAny(const char* key, std::optional<double>* value) {
    if (!Find(key).empty()) Get(key, &value->emplace());
  }
  bool Is(const char* key, absl::string_view text) const { return Find(key) == text; }
  const absl::Status& status() const { return status_; }

 private:
  std::string Find(const char* key) const {
    const auto found = file_.metadata().find(key);
    return found == file_.metadata().end() ? "" : found->second;
  }
  void Wrong(const char* key, const std::string& text) {
    // The first wrong number is told.
    if (!status_.ok()) return;
    status_ = absl::InvalidArgumentError(
        absl::StrCat("\"", file_.path(), "\": ", key, " is \"", text, "\", want a number"));
  }

  const SafetensorsReader& file_;
  absl::Status status_;
};

}  // namespace

// The format wants the names and sizes of all arrays in front of the first value.
absl::StatusOr<CheckpointFile> WriteWorkerFile(const OpenPart& parts, uint64_t folder_step,
                                               Rank rank, const WorkerCopy& copy) {
  std::vector<TensorSpec> tensors = FactTensors(copy.facts);
  for (const auto& [name, values] : copy.arrays) {
    TensorSpec tensor;
    tensor.name = name;
    tensor.dtype = "F32";
    tensor.shape = {static_cast<int64_t>(values.size())};
    tensors.push_back(std::move(tensor));
  }
  for (const auto& [name, content] : copy.bytes) {
    TensorSpec tensor;
    tensor.name = name;
    tensor.dtype = "U8";
    tensor.shape = {static_cast<int64_t>(content.size())};
    tensors.push_back(std::move(tensor));
  }
  const TrainProgress& progress = copy.cursor.progress;
  TensorMetadata metadata = {{"step", absl::StrCat(progress.step)},
                             {"exchange", absl::StrCat(progress.exchange)},
                             {"epoch", absl::StrCat(progress.epoch)},
                             {"examples", absl::StrCat(progress.examples)},
                             {"loss_sum", Text(copy.cursor.loss_sum)},
                             {"loss_count", absl::StrCat(copy.cursor.loss_count)},
                             {"evaluation_due", copy.cursor.evaluation_due ? "1" : "0"},
                             {"local_steps", absl::StrCat(copy.local_steps)}};
  if (progress.train_loss.has_value()) metadata["train_loss"] = Text(*progress.train_loss);
  metadata.merge(FactMetadata(copy.facts));
  TESSERA_ASSIGN_OR_RETURN(
      std::unique_ptr<SafetensorsWriter> writer,
      SafetensorsWriter::CreatePart(parts, folder_step, WorkerFileName(rank.value()), tensors,
                                    metadata));
  TESSERA_RETURN_IF_ERROR(AppendFacts(copy.facts, writer.get()));
  for (const auto& [name, values] : copy.arrays) {
    const int64_t bytes = static_cast<int64_t>(values.size() * sizeof(float));
    // Arrays in the order in which they were declared.
    TESSERA_RETURN_IF_ERROR(writer->Append(values.data(), bytes));
  }
  for (const auto& [name, content] : copy.bytes) {
    TESSERA_RETURN_IF_ERROR(writer->Append(content.data(), static_cast<int64_t>(content.size())));
  }
  return writer->Finish();
}

absl::StatusOr<CheckpointFile> WriteWorkerFile(const std::string& folder, Rank rank,
                                               const WorkerCopy& copy) {
  const auto parts = [&folder](uint64_t, const std::string& name) {
    return CreatePartIn(folder, name);
  };
  return WriteWorkerFile(parts, /*folder_step=*/0, rank, copy);
}

absl::StatusOr<WorkerCursor> ReadWorkerFile(const std::string& path, const PrivateState& state) {
  TESSERA_ASSIGN_OR_RETURN(const std::unique_ptr<SafetensorsReader> file,
                           SafetensorsReader::Open(path));
  WorkerCursor cursor;
  uint64_t local_steps = 0;
  Facts facts(*file);
  facts.Get("step", &cursor.progress.step);
  facts.Get("exchange", &cursor.progress.exchange);
  facts.Get("epoch", &cursor.progress.epoch);
  facts.Get("examples", &cursor.progress.examples);
  facts.GetAny("train_loss", &cursor.progress.train_loss);
  facts.Get("loss_sum", &cursor.loss_sum);
  facts.Get("loss_count", &cursor.loss_count);
  facts.Get("local_steps", &local_steps);
  // A file of an older build, which does not say it, leaves it to the job.
  cursor.evaluation_due = !facts.Is("evaluation_due", "0");
  TESSERA_RETURN_IF_ERROR(facts.status());
  for (const PrivateState::Array& array : state.arrays) {
    const int64_t size = static_cast<int64_t>(array.values.size());
    // Older builds did not write it.
    if (array.may_lack && file->Find(array.name) == nullptr) continue;
    TESSERA_ASSIGN_OR_RETURN(const TensorSpec* tensor, file->Want(array.name, "F32", {size}));
    TESSERA_RETURN_IF_ERROR(
        file->Read(*tensor, 0, size * static_cast<int64_t>(sizeof(float)), array.values.data()));
  }
  for (const PrivateState::Bytes& bytes : state.bytes) {
    bytes.content->clear();
    const TensorSpec* const tensor = file->Find(bytes.name);
    if (tensor == nullptr || tensor->dtype != "U8") continue;
    bytes.content->resize(static_cast<size_t>(tensor->bytes()));
    TESSERA_RETURN_IF_ERROR(file->Read(*tensor, 0, tensor->bytes(), bytes.content->data()));
  }
  if (state.local_steps != nullptr) *state.local_steps = local_steps;
  return cursor;
}

absl::StatusOr<std::unique_ptr<SafetensorsReader>> OpenListed(const std::string& path,
                                                              const CheckpointFile& listed) {
  // A file that was changed or cut off is not read at all.
  TESSERA_ASSIGN_OR_RETURN(const uint64_t sum, SumOfFile(path, listed.bytes));
  if (sum != listed.sum) {
    return absl::InvalidArgumentError(absl::StrCat(
        "\"", path, "\": sum is not the manifest's; its bytes are not the ones that were written"));
  }
  return SafetensorsReader::Open(path);
}

}  // namespace tessera
