// The keys that every machine has its own of, beside the data: the files under security, and the checkpoint that the
// job goes on from.
#ifndef TESSERA_COMMON_CONFIG_LOCAL_CHECK_H_
#define TESSERA_COMMON_CONFIG_LOCAL_CHECK_H_

#include "common/config/job_error.h"
#include "proto/job.pb.h"

namespace tessera {

// Adds an error for each file under security without another that it needs. Whoever loads them
// (common/rpc/security.h) would refuse them, too, without saying where they are written.
void CheckSecurityKeys(const Positions& positions, const v1::Job& job, JobErrors* errors);

// Adds an error for each file under security that is not there. Paths are resolved already, as for the next.
void CheckSecurityFiles(const Positions& positions, const v1::Job& job, JobErrors* errors);

// Adds an error when there is no folder where checkpoint.restore says.
void CheckRestoreFolder(const Positions& positions, const v1::Job& job, JobErrors* errors);

}  // namespace tessera

#endif  // TESSERA_COMMON_CONFIG_LOCAL_CHECK_H_
