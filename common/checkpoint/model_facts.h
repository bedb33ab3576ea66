// What training determined beside the parameters, which a model is not the same without.
//
// A checkpoint has it in its workers' files (worker/checkpoint/worker_file.h), in each of them:
//
//   __metadata__           "train_sum": XXH3 of the worker's training rows (Dataset::Sum);
//                          "facts_xxh3": of the bytes of the tensors below, in this order; each as 16
//                          hexadecimal digits. "values": "bytes" where rows were bytes, which are divided by
//                          255, else "numbers"
//   labels                 I64 [classes], ascending: the labels of the classes 0, 1, 2 and so on. Absent
//                          where a label is its class
//   characters             I32 [vocabulary], ascending: the code points of the characters that are the tokens 0, 1, 2
//                          and so on. Absent where tokens are no characters
//   normalization.mean     F64: one entry for all inputs, or one for each
//   normalization.stddev   F64, as many
//   norm.constants         F32: for each batch norm, in the order of the layers, the mean of each channel and
//                          then 1/sigma of each, as they were calibrated for the parameters of this very
//                          checkpoint. Absent where no evaluation was made of those
//
// Files of builds that kept nothing of this have none of these keys.
#ifndef TESSERA_COMMON_CHECKPOINT_MODEL_FACTS_H_
#define TESSERA_COMMON_CHECKPOINT_MODEL_FACTS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/checkpoint/checkpoint.h"
#include "common/checkpoint/safetensors.h"
#include "common/checkpoint/safetensors_reader.h"
#include "common/checkpoint/safetensors_writer.h"

namespace tessera {

struct ModelFacts {
  std::vector<int64_t> labels;
  // An input is (value - mean) / stddev; bytes are divided by 255 first.
  std::vector<double> mean;
  std::vector<double> stddev;
  uint64_t train_sum = 0;
  std::vector<float> norm_constants;
  // Whether the training rows' values were bytes; otherwise they were numbers that are taken as they are.
  bool bytes = false;
  // The code points of the tokens, where these are characters.
  std::vector<int32_t> characters = {};

  // Whether nothing is known. A file gets no facts then.
  bool empty() const { return mean.empty(); }
  // Whether rows are read alike: they have the same labels and characters, the same normalisation and values of
  // the same kind.
  bool ReadsAs(const ModelFacts& other) const {
    return labels == other.labels && characters == other.characters && mean == other.mean &&
           stddev == other.stddev && bytes == other.bytes;
  }
};

// The tensors and the metadata of a file that begins with `facts`.
std::vector<TensorSpec> FactTensors(const ModelFacts& facts);
TensorMetadata FactMetadata(const ModelFacts& facts);
// Writes the values of FactTensors. DurableFile's codes.
absl::Status AppendFacts(const ModelFacts& facts, SafetensorsWriter* out);

// Reads a file's facts; nullopt: the file has none. kInvalidArgument: they are not what was written, or contradict
// each other.
absl::StatusOr<std::optional<ModelFacts>> ReadFacts(const SafetensorsReader& file);
// The facts of the lowest rank's file, with the constants of the first file that has them. The codes are those of
// the other ReadFacts.
absl::StatusOr<std::optional<ModelFacts>> ReadFacts(const Checkpoint& checkpoint);

// The facts that a job with this checkpoint.restore reads its rows with: those of the newest checkpoint which
// `path` has, or is. All of one folder have the same labels and normalisation. nullopt: there is none, or none
// that can be read, or `path` is empty.
std::optional<ModelFacts> FactsToGoOnFrom(const std::string& path);

}  // namespace tessera

#endif  // TESSERA_COMMON_CHECKPOINT_MODEL_FACTS_H_
