// The file by which a server tells whoever started it where it can be reached (--address-file):
//
//   HOST:PORT    of its services
//   HOST:PORT    of its metrics; without them the line is empty, or not there
//   URL          of its page; no such line where it has none
#ifndef TESSERA_COMMON_BASE_ADDRESS_FILE_H_
#define TESSERA_COMMON_BASE_ADDRESS_FILE_H_

#include <optional>
#include <string>

#include "absl/status/status.h"

namespace tessera {

struct ServerAddresses {
  std::string services;
  std::string metrics;  // empty: none
  std::string page;     // a URL; empty: none
};

// Whether `path`, which --address-file names, can be written: asked before the process does anything that others
// notice. Nothing is there afterwards that was not there. OK for "".
//   kInvalidArgument  it cannot
absl::Status CheckAddressFile(const std::string& path);

// Writes the file, which appears whole or not at all, as somebody waits for it. What is written lies meanwhile
// under a name that is nobody's (OutputFile), so that no file and no link of the caller's is touched.
//   kUnavailable  it cannot be written
absl::Status WriteAddressFile(const std::string& path, const ServerAddresses& addresses);

// Reads the file; nullopt: it is not there yet.
std::optional<ServerAddresses> ReadAddressFile(const std::string& path);

}  // namespace tessera

#endif  // TESSERA_COMMON_BASE_ADDRESS_FILE_H_
