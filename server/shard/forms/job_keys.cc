#include "server/shard/forms/job_keys.h"

#include <variant>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/keyset/rows.h"

namespace tessera {
namespace {

using Entries = std::shared_ptr<const ExchangedEntries>;

// Rows are read in f32 alone.
Entries RowEntries(const ShardSlices& slices, const RowRange& rows) {
  const Slice owned = OwnedRows(slices, rows);
  return std::make_shared<const RunEntries>(
      rows, EntryRun{owned.offset, owned.offset + owned.size()},
      CodedForms(CodecChoice(), EntriesAsSlices(owned.size()), VectorShape(owned.size())));
}

}  // namespace

JobKeys::JobKeys(const ModelShape& shape, const ShardSlices& slices, const CodecChoice& codecs)
    : shape_(shape),
      slices_(slices),
      dense_(std::make_shared<const RunEntries>(AllEntries(), EntryRun{0, slices.size},
                                                CodedForms(codecs, slices, shape))) {}

absl::Status JobKeys::Differ(const NamedKeys& keys, const NamedKeys& wanted) {
  // Who pushes all entries may be a client of no method at all.
  const bool says_why =
      !std::holds_alternative<UnknownKeys>(keys) && !std::holds_alternative<AllEntries>(keys);
  return absl::InvalidArgumentError(absl::StrCat("keys are ", KeysWord(keys), ", want ",
                                                 KeysWord(wanted),
                                                 says_why ? "; the job's methods differ" : ""));
}

absl::Status JobKeys::CheckSummed(const NamedKeys& keys, uint64_t summed) {
  // Only halves of the model may send one sum for several workers; elsewhere a push is one worker's.
  if (summed == 1 || std::holds_alternative<ParameterRange>(keys)) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("summed is ", summed, ", want 1 where keys are ", KeysWord(keys)));
}

absl::StatusOr<Entries> JobKeys::OfPush(const NamedKeys& keys, uint64_t summed) const {
  TESSERA_RETURN_IF_ERROR(CheckSummed(keys, summed));
  if (std::holds_alternative<AllEntries>(keys)) return Entries(dense_);
  return Differ(keys, AllEntries());
}

absl::StatusOr<Entries> JobKeys::OfRead(const NamedKeys& keys) const {
  if (std::holds_alternative<AllEntries>(keys)) return Entries(dense_);
  if (const auto* rows = std::get_if<RowRange>(&keys)) {
    TESSERA_RETURN_IF_ERROR(CheckRows(shape_, *rows));
    return RowEntries(slices_, *rows);
  }
  const char* more = "";
  if (std::holds_alternative<NamedCore>(keys)) more = " outside an exchange";
  if (std::holds_alternative<ParameterRange>(keys)) more = "; the job's methods differ";
  return absl::InvalidArgumentError(
      absl::StrCat("keys are ", KeysWord(keys), ", want dense or rows", more));
}

}  // namespace tessera
