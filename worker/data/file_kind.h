// What a file is by how it begins, where that is nothing a data format can begin with: archives and compressed files,
// pages and pointers that a download left in a file's place, formats of other programs.
//
// Only what is long or odd enough not to be the first record of a raw format (cifar) is in the table.
#ifndef TESSERA_WORKER_DATA_FILE_KIND_H_
#define TESSERA_WORKER_DATA_FILE_KIND_H_

#include <cstddef>

#include "absl/strings/string_view.h"

namespace tessera {

// The bytes at a file's beginning that tell all kinds apart.
constexpr size_t kFileHeadBytes = 512;

struct FileKind {
  // What is named here fits into "content is a ZIP archive".
  absl::string_view name;
  // What whoever has the file does about it.
  absl::string_view advice;
  // It is a text, which may be meant where any text is data.
  bool is_text = false;
};

// nullptr: nothing is known of it, as of every file that may be data.
const FileKind* FileKindOf(absl::string_view head);

// A gzip member begins here. `head` has at least kGzipHeadBytes, or is none.
constexpr size_t kGzipHeadBytes = 4;
bool IsGzip(absl::string_view head);

}  // namespace tessera

#endif  // TESSERA_WORKER_DATA_FILE_KIND_H_
