// Whether a server could write what a job keeps on a disk, and has room for it.
#ifndef TESSERA_DEPLOY_DOCTOR_DISK_CHECK_H_
#define TESSERA_DEPLOY_DOCTOR_DISK_CHECK_H_

#include <cstdint>
#include <string>

#include "common/layout/parameters.h"
#include "common/method/recipe.h"
#include "deploy/doctor/findings.h"
#include "proto/job.pb.h"

namespace tessera {

// Examines cluster.coordinator.directory and checkpoint.directory of a checked job, as far as it has them. Makes a
// folder where a server would, and removes it.
Findings CheckDisk(const v1::Job& job, const Recipe& recipe, const ModelShape& shape);

// What a job may take of the disk beyond what is in `directory` now. One checkpoint has so many `bytes`; it keeps
// `keep` of them, and one more while an old one is not yet gone. Those that are there count among them: each goes
// before the next but one comes.
double RoomWanted(const std::string& directory, double bytes, int64_t keep);

}  // namespace tessera

#endif  // TESSERA_DEPLOY_DOCTOR_DISK_CHECK_H_
