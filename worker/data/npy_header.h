// The header of a NumPy file (.npy), versions 1.0, 2.0 and 3.0.
//
//   file    = 93 "NUMPY" version size header{size} value{product of shape}
//   version = 01 00 | 02 00 | 03 00
//   size    = u16 in version 1.0, u32 in the others; little-endian
//   header  = "{" key ":" value "," ... "}"       Python's text of a dict with these three, in any order:
//     'descr'          order kind bytes: order = "<" | ">" | "|", kind and bytes as in numpy.dtype
//     'fortran_order'  True | False
//     'shape'          a tuple of integers
// Spaces, tabs and line ends may stand between its words and at its end, where NumPy fills up to a multiple of 64.
#ifndef TESSERA_WORKER_DATA_NPY_HEADER_H_
#define TESSERA_WORKER_DATA_NPY_HEADER_H_

#include "absl/status/statusor.h"
#include "worker/data/array.h"
#include "worker/data/byte_source.h"

namespace tessera {

// Reads up to the first value. Nothing but numbers and bools is taken, and nothing is ever unpickled.
//   kInvalidArgument  this is no header of such a file, or none whose values can be the rows of a data set
//   kDataLoss         the gzip data is corrupt or cut off
absl::StatusOr<ArrayHeader> ReadNpyHeader(ByteSource& source);

}  // namespace tessera

#endif  // TESSERA_WORKER_DATA_NPY_HEADER_H_
