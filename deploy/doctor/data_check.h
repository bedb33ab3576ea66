// Whether workers could train on this machine's files.
#ifndef TESSERA_DEPLOY_DOCTOR_DATA_CHECK_H_
#define TESSERA_DEPLOY_DOCTOR_DATA_CHECK_H_

#include <memory>

#include "common/layout/parameters.h"
#include "deploy/doctor/findings.h"
#include "proto/job.pb.h"
#include "worker/data/dataset.h"

namespace tessera {

struct DataFindings {
  Findings findings;
  // The data; nullptr: they cannot be read.
  std::unique_ptr<Datasets> data;
};

// Reads all of data.train and data.test of a checked job, as a worker does, and looks whether there are rows
// for the job's epochs.
DataFindings CheckData(const v1::Job& job, const ModelShape& shape);

}  // namespace tessera

#endif  // TESSERA_DEPLOY_DOCTOR_DATA_CHECK_H_
