#include "common/config/named_path.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace tessera {

std::string WhyNoFile(const std::string& path) {
  struct stat info;
  if (stat(path.c_str(), &info) != 0) return std::strerror(errno);
  if (!S_ISREG(info.st_mode)) return "not a file";
  if (access(path.c_str(), R_OK) != 0) return std::strerror(errno);
  return "";
}

std::string WhyNoFolder(const std::string& path) {
  struct stat info;
  if (stat(path.c_str(), &info) != 0) return std::strerror(errno);
  return S_ISDIR(info.st_mode) ? "" : std::strerror(ENOTDIR);
}

}  // namespace tessera
