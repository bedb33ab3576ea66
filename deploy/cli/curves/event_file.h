// TensorBoard's event files, written without TensorFlow.
//
//   file    = record*
//   record  = length u64, masked CRC-32C of these 8 bytes u32, data, masked CRC-32C of the data u32; little-endian
//   mask(c) = ((c >> 15) | (c << 17)) + 0xa282ead8, modulo 2^32
//   data    = a tensorflow.Event in protobuf's encoding, of which these fields are written:
//             wall_time = 1 (double), step = 2 (int64), file_version = 3 (string, of the first record alone),
//             summary = 5 {value = 1 {tag = 1 (string), simple_value = 2 (float)}},
//             session_log = 7 {status = 1 (START is 1)}, after which steps may come again
#ifndef TESSERA_DEPLOY_CLI_CURVES_EVENT_FILE_H_
#define TESSERA_DEPLOY_CLI_CURVES_EVENT_FILE_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "deploy/cli/curves/curve.h"
#include "proto/status.pb.h"

namespace tessera {

// Castagnoli's CRC of 32 bits, as iSCSI has it (RFC 3720).
uint32_t Crc32c(absl::string_view bytes);

// The first record of each file.
std::string VersionEvent(double wall_time);
// One record with some scalars of a step. Those that are not finite are left out, as TensorBoard draws none.
std::string ScalarsEvent(double wall_time, uint64_t step,
                         const std::vector<std::pair<std::string, double>>& scalars);
// A record that says that steps from `step` on are made anew, and that what was told of them is void.
std::string RestartEvent(double wall_time, uint64_t step);

// Writes a job's evaluations to an event file as they come to be known. Called by one thread.
class EventWriter {
 public:
  // Makes `directory`, where it is not there yet, and with the first evaluation a file in it, which is its own:
  // events.out.tfevents.SECONDS.HOST.PROCESS.
  explicit EventWriter(std::string directory) : directory_(std::move(directory)) {}

  // Whether the folder is there or can be made, and a file in it.
  //   kInvalidArgument  it cannot; "--tensorboard: ..." says why
  absl::Status Open();
  // Appends what is new in the status's history, each evaluation once. Where the job has gone back, the evaluations
  // that are made again follow a record that voids the old ones.
  //   kUnavailable  the file cannot be written; nothing is lost but these records
  absl::Status Write(const v1::JobStatus& status);

  const std::string& path() const { return path_; }

 private:
  absl::Status Append(absl::string_view records);

  const std::string directory_;
  std::string path_;
  // Step and seconds of each evaluation that was written and stands.
  std::vector<std::pair<uint64_t, double>> written_;
};

}  // namespace tessera

#endif  // TESSERA_DEPLOY_CLI_CURVES_EVENT_FILE_H_
