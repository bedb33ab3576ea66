// Text files, of which each character or each byte is a token.
//
//   characters  files are UTF-8, each by itself. The code points that the training text has, ascending, are the tokens
//               0, 1, 2 and so on. A byte order mark at the beginning of a file is none of its characters
//   bytes       files are any bytes, and each is its own token
// Line ends are characters like all others.
//
// The files of a set are one sequence, in which rows are windows (token_windows.h).
#ifndef TESSERA_WORKER_DATA_TEXT_H_
#define TESSERA_WORKER_DATA_TEXT_H_

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "worker/data/characters.h"
#include "worker/data/table.h"

namespace tessera {

constexpr int64_t kByteTokens = 256;

// `spec` has the context as `features` and the vocabulary as `classes`.
//   kNotFound, ...      a file cannot be opened
//   kInvalidArgument    the vocabulary has less than 256 tokens, or there are too few bytes for a row, or a text that
//                       trains has one kind of byte alone
//   kDataLoss           a gzip file is corrupt or cut off
//   kResourceExhausted  the table would exceed spec.bytes_max
absl::StatusOr<Table> ReadBytes(const std::vector<std::string>& paths, const TableSpec& spec);

// Reads texts whose tokens are characters. Without `characters` they are those of these files, and are set; else the
// text has no others.
//   kInvalidArgument    a file is no UTF-8, it has a character that is none of `characters`, or the files have more
//                       different ones than the vocabulary has tokens
absl::StatusOr<Table> ReadCharacters(const std::vector<std::string>& paths, const TableSpec& spec,
                                     std::optional<Characters>* characters);

}  // namespace tessera

#endif  // TESSERA_WORKER_DATA_TEXT_H_
