// Which files a format takes, what rows of it can be, and whether the files are there.
#ifndef TESSERA_COMMON_CONFIG_DATA_CHECK_H_
#define TESSERA_COMMON_CONFIG_DATA_CHECK_H_

#include "common/config/job_error.h"
#include "proto/job.pb.h"

namespace tessera {

// Adds to `errors` what is wrong with job.data, by itself and beside job.model.
void CheckData(const Positions& positions, const v1::Job& job, JobErrors* errors);

// Adds an error for each data file that is not there. Paths are resolved already.
void CheckDataFiles(const Positions& positions, const v1::Job& job, JobErrors* errors);

}  // namespace tessera

#endif  // TESSERA_COMMON_CONFIG_DATA_CHECK_H_
