// `GET /healthz` and `GET /readyz` beside the metrics, over plain HTTP, for who asks a process whether it is well and
// speaks no TLS, as Kubernetes' probes:
//
//   /healthz  200 while the process answers
//   /readyz   200 while the server serves, as the gRPC health service says it; 503 before and after
#ifndef TESSERA_SERVER_MONITOR_HEALTH_PAGES_H_
#define TESSERA_SERVER_MONITOR_HEALTH_PAGES_H_

#include <functional>

struct CivetCallbacks;
struct mg_connection;

namespace tessera {

// While the object is there, the HTTP server that this thread starts gets the pages, until that server ends.
class HealthPages {
 public:
  // Gives the pages their answer: `serves` is asked on the HTTP server's threads, several at once; empty: yes.
  HealthPages(std::function<bool()> serves, CivetCallbacks* callbacks);
  ~HealthPages();
  HealthPages(const HealthPages&) = delete;
  HealthPages& operator=(const HealthPages&) = delete;
};

// The HTTP status with which one of the pages was answered; 0: the request is for something else. For
// mg_callbacks.begin_request.
int AnswerHealth(mg_connection* connection);

}  // namespace tessera

#endif  // TESSERA_SERVER_MONITOR_HEALTH_PAGES_H_
