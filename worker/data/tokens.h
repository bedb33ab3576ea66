// Files of numbered tokens, as trainers of language models write them (.bin).
//
//   file  = token{any number}
//   token = u16 | u32, little-endian, as data.type says
//
// The files of a set are one sequence, in which rows are windows (token_windows.h).
#ifndef TESSERA_WORKER_DATA_TOKENS_H_
#define TESSERA_WORKER_DATA_TOKENS_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "worker/data/table.h"

namespace tessera {

enum class TokenType { kUint16, kUint32 };

// `spec` has the context as `features` and the vocabulary as `classes`. All tokens are looked at now. Those that take
// more than spec.held_bytes_max stay in their files, if none is compressed.
//   kNotFound, ...      a file cannot be opened
//   kInvalidArgument    a file ends within a token, a token is not in the vocabulary, or there are too few for a row
//   kDataLoss           a gzip file is corrupt or cut off
//   kResourceExhausted  the table would exceed spec.bytes_max, or compressed files have more than spec.held_bytes_max
absl::StatusOr<Table> ReadTokens(const std::vector<std::string>& paths, const TableSpec& spec,
                                 TokenType type);

}  // namespace tessera

#endif  // TESSERA_WORKER_DATA_TOKENS_H_
