// From a job's data section to its training and test set.
#ifndef TESSERA_WORKER_DATA_LOAD_DATASETS_H_
#define TESSERA_WORKER_DATA_LOAD_DATASETS_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "common/checkpoint/model_facts.h"
#include "proto/job.pb.h"
#include "worker/data/dataset.h"
#include "worker/data/limits.h"

namespace tessera {

// The bytes that the rows of a worker may take where the job sets no limit: all that this machine or container has.
int64_t DatasetBytesMaxHere();

// What reading depends on beside the data section.
struct ReadingPlan {
  // For what is drawn of rows anew in each epoch (Augmentation).
  uint64_t seed = 0;
  // Rows that are read at once; 0: nothing is read ahead.
  int64_t batch = 0;
};
ReadingPlan ReadingPlanOf(const v1::Job& job);

// Reads the files of data.train and data.test (table_reader.h). Both sets must be of one kind: bytes or other numbers,
// rows of one shape. Both use the label numbers and the normalisation of the training rows, or, where `facts` is not
// null, those of a model that was trained before. `bytes_max` bounds the memory of both together. With data.memory,
// values for which that has no room stay on disk: first those of the training set, then those of the test set.
//   kNotFound, kPermissionDenied, ...  a file cannot be opened
//   kInvalidArgument                   a file is malformed or does not fit the model or the other file, or
//                                      the normalisation would fill the zeros of rows that stay sparse, or
//                                      `facts` are of another kind of data
//   kDataLoss                          a gzip file is corrupt or cut off
//   kResourceExhausted                 the rows would need more than bytes_max, or than there is
absl::StatusOr<Datasets> LoadDatasets(const v1::Data& data, const ModelEnds& ends,
                                      int64_t bytes_max = kDatasetBytesMax,
                                      const ModelFacts* facts = nullptr,
                                      const ReadingPlan& plan = {});
// Reads the data of a job, whose rows may take cluster.memory_limit, or all memory where that is not set. What takes
// more is refused while it is read: no worker could go on with it.
absl::StatusOr<Datasets> LoadDatasets(const v1::Job& job, const ModelEnds& ends,
                                      const ModelFacts* facts = nullptr);
// Whether data.normalize asks for another normalisation than that of `facts`, as far as that can be told without rows.
bool NormalizesOtherwise(const v1::Job& job, const ModelFacts& facts);

}  // namespace tessera

#endif  // TESSERA_WORKER_DATA_LOAD_DATASETS_H_
