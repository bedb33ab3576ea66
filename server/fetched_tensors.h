// The file of a job of tensors on a server that has none of its own: a copy of the coordinator's.
#ifndef TESSERA_SERVER_FETCHED_TENSORS_H_
#define TESSERA_SERVER_FETCHED_TENSORS_H_

#include <grpcpp/channel.h>

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace tessera {

// Owns a file without a name in the folder for temporary files, so that nothing is left behind however the process
// ends. One thread.
class FetchedTensors {
 public:
  // Copies the file piece by piece from the coordinator at the other end of `channel`. One that does not answer is
  // asked again for `patience` from its last answer on.
  //   kUnavailable    it did not answer for so long
  //   kAborted        its file changed its size meanwhile
  //   FileError's     there is no room for the copy, or no right to write it; and what the coordinator refuses with
  static absl::StatusOr<std::unique_ptr<FetchedTensors>> Fetch(
      const std::shared_ptr<grpc::Channel>& channel, absl::Duration patience);
  ~FetchedTensors();

  // Where this process, and no other, finds the copy while this object is there.
  std::string path() const;

 private:
  explicit FetchedTensors(int fd) : fd_(fd) {}
  absl::Status CopyFrom(const std::shared_ptr<grpc::Channel>& channel, absl::Duration patience);

  const int fd_;
};

}  // namespace tessera

#endif  // TESSERA_SERVER_FETCHED_TENSORS_H_
