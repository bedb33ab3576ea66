#include "common/base/steady_clock.h"

#include <unistd.h>

#include <fstream>

namespace tessera {

const std::string& SteadyClockName() {
  static const std::string* const name = [] {
    auto* const found = new std::string;
    std::ifstream("/proc/sys/kernel/random/boot_id") >> *found;
    // The clock's name has the time namespace in it, as a container may count from a moment of its own.
    char space[64];
    const ssize_t length = readlink("/proc/self/ns/time", space, sizeof space);
    if (!found->empty() && length > 0) {
      found->append(" ").append(space, static_cast<size_t>(length));
    }
    return found;
  }();
  return *name;
}

}  // namespace tessera
