// A status in which everything is there that a status can have.
#ifndef TESSERA_TESTS_SERVER_MONITOR_WHOLE_STATUS_H_
#define TESSERA_TESTS_SERVER_MONITOR_WHOLE_STATUS_H_

#include "proto/status.pb.h"

namespace tessera {

// Two servers. Worker 0 trains; worker 1 was lost, has joined again and trains; worker 2 has left.
v1::JobStatus WholeStatus();

}  // namespace tessera

#endif  // TESSERA_TESTS_SERVER_MONITOR_WHOLE_STATUS_H_
