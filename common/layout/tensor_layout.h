// The parameters of a job of tensors, whose file names them in the place of layers.
//
// They are in the order of their names, by bytes. A tensor of extents [d0, d1, ...] is d0 rows of as many columns as
// the product of the other extents; one of a single extent is a vector, and a scalar a vector of one entry.
#ifndef TESSERA_COMMON_LAYOUT_TENSOR_LAYOUT_H_
#define TESSERA_COMMON_LAYOUT_TENSOR_LAYOUT_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/layout/parameter_spec.h"
#include "proto/job.pb.h"

namespace tessera {

// A file with more tensors is refused, and so is a longer name of one, in bytes.
constexpr int kTensorsMax = 1000000;
constexpr size_t kTensorNameBytesMax = 1024;
// The format's readers take no more extents.
constexpr int kTensorExtentsMax = 16;

// Whether the job is one of tensors, also where its file has not been read.
bool IsOfTensors(const v1::Model& model);

// The parameters, in the order above.
//   kInvalidArgument  there are none, too many, or more than 2^40 entries; a name is empty, too long, or not behind the
//                     one before it; a tensor has no entries or too many extents
absl::StatusOr<std::vector<ParameterSpec>> ParametersOf(const v1::TensorLayout& layout);

// Names and shapes in one line for people, with a hash: "267 tensors, 25557032 entries, 0c7d3e52a91b44f0". Layouts with
// the same line are the same.
std::string DescribeLayout(const v1::TensorLayout& layout);

// TensorLayout::sum of a file of this layout, whose values have the hash `values`.
uint64_t SumOf(const v1::TensorLayout& layout, uint64_t values);

}  // namespace tessera

#endif  // TESSERA_COMMON_LAYOUT_TENSOR_LAYOUT_H_
