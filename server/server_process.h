// One tessera-server: a shard, its services, and on rank 0 the coordinator.
#ifndef TESSERA_SERVER_SERVER_PROCESS_H_
#define TESSERA_SERVER_SERVER_PROCESS_H_

#include <string>
#include <vector>

#include "absl/time/time.h"
#include "proto/status.pb.h"

namespace tessera {

struct ServerOptions {
  std::string job_path;
  // "a.b=v", as given by --set.
  std::vector<std::string> overrides;
  int rank = 0;
  // host:port; empty: this rank's address in cluster.servers.
  std::string listen;
  // host:port of server 0; empty: the first address in cluster.servers, or this server itself on
  // rank 0.
  std::string coordinator;
  // The file to which the address that was taken is written once the server can be reached; empty: none.
  std::string address_file;
  // HOST:PORT where metrics are served over plain HTTP, port 0 for a free one; empty: nowhere.
  std::string metrics;
  // How long the process of the coordinator serves the end of the job there at most, until that is scraped.
  absl::Duration metrics_linger;
  // HOST:PORT where the page for a browser is served, port 0 for a free one; empty: nowhere.
  std::string page;
  // If set, nobody will be started in this process's place. On rank 0 the coordinator's state is then kept
  // nowhere.
  bool no_takeover = false;
  // Rank 0: where the report is written at the end; empty: nowhere.
  std::string report_path;
  // How this process was started, for the report.
  v1::JobOrigin origin;
};

// Serves one job to its end and returns the process's exit code:
//   0  the job ended normally, or the server was asked to leave and could
//   1  it did not; the last log line says why
//   2  wrong job, flag or address, before anybody was told of this server
// SIGTERM and Ctrl-C: this server leaves the job, which goes on, with standbys at once and otherwise from a checkpoint
// once the server is started again; 0. Where neither is there the job finishes its exchange, evaluates and ends. The
// second one ends this process.
int RunServer(const ServerOptions& options);

}  // namespace tessera

#endif  // TESSERA_SERVER_SERVER_PROCESS_H_
