// A job's status and its parts as JSON, for programs: protobuf's JSON mapping with the names of status.proto.
#ifndef TESSERA_SERVER_CONTROL_STATUS_JSON_H_
#define TESSERA_SERVER_CONTROL_STATUS_JSON_H_

#include <string>

#include "proto/status.pb.h"

namespace tessera {

// The status as one JSON object in one line.
std::string StatusJson(const v1::JobStatus& status);

// A small message, such as an event, in the same form.
std::string MessageJson(const google::protobuf::Message& message);

}  // namespace tessera

#endif  // TESSERA_SERVER_CONTROL_STATUS_JSON_H_
