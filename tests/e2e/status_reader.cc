// Answers many questions for a job's status, where `tessera status --json` answers one: to start a program takes a
// tenth of a second of a core, and tests ask again and again until something has happened. Reads addresses from
// standard input, a line each, and writes the status as a line of JSON, or an empty line where none came.
#include <cstdio>
#include <iostream>
#include <string>

#include "absl/status/statusor.h"
#include "deploy/cli/curves/history_source.h"
#include "proto/status.pb.h"
#include "server/control/status_json.h"

int main() {
  for (std::string address; std::getline(std::cin, address);) {
    const absl::StatusOr<tessera::v1::JobStatus> status = tessera::AskForStatus(address);
    std::printf("%s\n", status.ok() ? tessera::StatusJson(*status).c_str() : "");
    std::fflush(stdout);
  }
  return 0;
}
