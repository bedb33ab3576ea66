// Which picture files a data set has, and the class of each.
//
//   a folder      has a folder for each class, with the pictures of that class. Classes are numbered from 0 in the
//                 order of the folders' names, byte by byte, and rows are in the order of class and file name. Names
//                 that begin with a dot are left out, as are files beside the class folders that are no pictures by
//                 their names.
//   a list file   has lines `path label`: the path, which is relative to the list's own folder, and behind the last
//                 blank the class, from 0
#ifndef TESSERA_WORKER_DATA_PICTURE_FILES_H_
#define TESSERA_WORKER_DATA_PICTURE_FILES_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "worker/data/table.h"

namespace tessera {

struct PictureFiles {
  // Rows in order.
  std::vector<std::string> paths;
  Classes classes;
  // XXH3 of the rows' names within the folder or the list, the files' sizes, and the classes.
  uint64_t sum = 0;

  int64_t bytes() const;
};

// Adds the pictures of `path`, a folder or a list. `class_names` are the class folders that it must have; if there are
// none yet it sets them. No picture is opened.
//   kNotFound, kPermissionDenied, ...  a folder or a file is not there, or cannot be read
//   kInvalidArgument                   the folders are not the classes that `spec` wants, or not those of
//                                      `class_names`; a line of the list is malformed; there are no pictures, or more
//                                      than rows may be
absl::Status AppendPictureFiles(const std::string& path, const TableSpec& spec,
                                std::vector<std::string>* class_names, PictureFiles* files);

}  // namespace tessera

#endif  // TESSERA_WORKER_DATA_PICTURE_FILES_H_
