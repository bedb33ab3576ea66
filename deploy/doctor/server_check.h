// What one server says of itself against what the job, and this program, want of it.
#ifndef TESSERA_DEPLOY_DOCTOR_SERVER_CHECK_H_
#define TESSERA_DEPLOY_DOCTOR_SERVER_CHECK_H_

#include <cstdint>
#include <string>

#include "absl/time/time.h"
#include "deploy/doctor/findings.h"
#include "proto/status.pb.h"

namespace tessera {

struct WantedServer {
  int rank = 0;
  std::string address;
  std::string job_digest;
  uint64_t layout_hash = 0;
  // The hash of the shard's parameters before the first update.
  uint64_t initial_hash = 0;  // 0: not known
  std::string version;
};

// How far clocks may differ before it is worth a word: logs of several machines are read together, and nothing
// else depends on it.
constexpr absl::Duration kClockSkewMax = absl::Seconds(2);

// `status` was asked for at `asked`, and came at `answered`. Pure.
Findings JudgeServer(const WantedServer& want, const v1::JobStatus& status, absl::Time asked,
                     absl::Time answered);

}  // namespace tessera

#endif  // TESSERA_DEPLOY_DOCTOR_SERVER_CHECK_H_
