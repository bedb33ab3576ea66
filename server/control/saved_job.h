// What a coordinator goes on from: the part of a checkpoint's manifest that is its own.
//
//   {"format": 1, "train_seconds": "12.5", "evaluation_due": 0, "whole_next": 0,
//    "examples": 1280,
//    "cuts": [{"epoch": 3, "first_step": 60, "steps": 20, "rows_total": 1347, "ranks": [0, 1]}],
//    "history": [{"seconds": "1.5", "step": 20, ... }]}
//
// A cut with minibatches of different sizes has "batch_rows": [40, 24], one for each rank.
// Older ones have no examples, and have counts that nobody reads: joined, lost, partial_pushes.
// Numbers with a fraction are text, so that they come back bit for bit, nan included.
#ifndef TESSERA_SERVER_CONTROL_SAVED_JOB_H_
#define TESSERA_SERVER_CONTROL_SAVED_JOB_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/checkpoint/manifest.h"
#include "proto/status.pb.h"

namespace tessera {

// Training rows of one worker: with data.partition local those of all of them add up.
constexpr uint64_t kMemberRowsMax = uint64_t{1} << 31;

// Epoch cuts that one checkpoint may have.
constexpr size_t kSavedCutsMax = 1 << 16;

// Whose rows were whose in an epoch that was not over.
struct SavedCut {
  uint64_t epoch = 0;
  uint64_t first_step = 0;
  uint64_t steps = 0;
  uint64_t rows_total = 0;
  // Ascending.
  std::vector<uint64_t> ranks;
  // Rows of each rank's minibatches, where slower workers have smaller ones; else empty.
  std::vector<int64_t> batch_rows;
};

struct SavedJob {
  double train_seconds = 0;
  // An evaluation was due at the checkpoint's step.
  bool evaluation_due = false;
  // In a job of subnets: the next exchange is of all entries.
  bool whole_next = false;
  // Rows that all workers had trained on; nullopt: not known.
  std::optional<uint64_t> examples;
  // By epoch, without gaps.
  std::vector<SavedCut> cuts;
  // The evaluations before the checkpoint's step.
  std::vector<v1::HistoryEntry> history;
};

// A JSON object.
std::string FormatSavedJob(const SavedJob& job);
// kInvalidArgument, beginning with `where`: `text` is nothing that FormatSavedJob could have written.
absl::StatusOr<SavedJob> ParseSavedJob(const std::string& where, absl::string_view text);

// kInvalidArgument, naming the field: whoever goes on from a checkpoint with this manifest could not read it.
absl::Status CheckReadable(const Manifest& manifest);

// A whole checkpoint, as far as the coordinator needs it.
struct SavedState {
  Manifest manifest;
  SavedJob job;
  // It is the one that checkpoint.restore names, not one of checkpoint.directory.
  bool from_restore = false;
};

}  // namespace tessera

#endif  // TESSERA_SERVER_CONTROL_SAVED_JOB_H_
