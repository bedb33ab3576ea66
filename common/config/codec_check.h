// Which codecs go with which method, and which with each other.
#ifndef TESSERA_COMMON_CONFIG_CODEC_CHECK_H_
#define TESSERA_COMMON_CONFIG_CODEC_CHECK_H_

#include "common/config/job_error.h"
#include "proto/job.pb.h"

namespace tessera {

// Adds to `errors` what is wrong with job.codec, and why.
void CheckCodecs(const Positions& positions, const v1::Job& job, JobErrors* errors);

}  // namespace tessera

#endif  // TESSERA_COMMON_CONFIG_CODEC_CHECK_H_
