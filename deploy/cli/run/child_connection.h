// What a child process has to know where it is the connection to a process of another machine, as ssh is.
//
// Such a child ends with that process's exit code, or 128 and the signal that ended it. One that ends with 255 or by a
// signal of its own has lost the connection, while the process goes on: the child is started again.
#ifndef TESSERA_DEPLOY_CLI_RUN_CHILD_CONNECTION_H_
#define TESSERA_DEPLOY_CLI_RUN_CHILD_CONNECTION_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/time/time.h"

namespace tessera {

// The exit code with which a connection says that it was lost, or was not made.
constexpr int kConnectionLost = 255;
// How often the child's standard input gets a byte, which says that this machine is there.
constexpr absl::Duration kConnectionPing = absl::Seconds(1);
// The bytes that it gets.
constexpr char kPingByte = '.';
constexpr char kTerminateByte = 'T';

// One thread.
class ChildConnection {
 public:
  virtual ~ChildConnection() = default;

  // The arguments with which the child is started again where `log_bytes` of the process's output are there already.
  virtual std::vector<std::string> ArgumentsFrom(int64_t log_bytes) const = 0;
  // What the child has said of the connection last; empty: nothing.
  virtual std::string LastWords() const = 0;
  // How long the process goes on without a connection, which is as long as one is tried.
  virtual absl::Duration grace() const = 0;
};

}  // namespace tessera

#endif  // TESSERA_DEPLOY_CLI_RUN_CHILD_CONNECTION_H_
