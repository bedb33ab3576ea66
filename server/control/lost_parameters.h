// What to do about parameters that are lost with the server that had them.
#ifndef TESSERA_SERVER_CONTROL_LOST_PARAMETERS_H_
#define TESSERA_SERVER_CONTROL_LOST_PARAMETERS_H_

#include <string>

namespace tessera {

// What in a job decides whether parameters outlive their server.
struct ParameterCopies {
  bool checkpoints = false;
  bool standbys = false;
  int servers = 1;
};

// "start the job again; checkpoint.directory or cluster.replicas: 1 would have kept them": behind "its parameters are
// lost", and the keys are those that the job does not have yet.
std::string LostParametersAdvice(const ParameterCopies& copies);

}  // namespace tessera

#endif  // TESSERA_SERVER_CONTROL_LOST_PARAMETERS_H_
