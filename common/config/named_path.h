// Whether what a job names is there, for messages of a job that cannot be run here.
#ifndef TESSERA_COMMON_CONFIG_NAMED_PATH_H_
#define TESSERA_COMMON_CONFIG_NAMED_PATH_H_

#include <string>

namespace tessera {

// The reason why `path` cannot be read as a file; empty when it can.
std::string WhyNoFile(const std::string& path);

// The reason why `path` is no folder; empty when it is one.
std::string WhyNoFolder(const std::string& path);

}  // namespace tessera

#endif  // TESSERA_COMMON_CONFIG_NAMED_PATH_H_
