// A small HTTP server for a page in a browser: one thread, so many clients, and none that it waits for.
//
// A server of parameters has better things to do than to serve pages: whoever floods this one, reads nothing or says
// nothing takes a bounded number of descriptors, a bounded memory and part of one thread's time.
#ifndef TESSERA_SERVER_PAGE_HTTP_SERVER_H_
#define TESSERA_SERVER_PAGE_HTTP_SERVER_H_

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/time/time.h"
#include "server/page/http_answer.h"
#include "server/page/page_connection.h"
#include "server/page/page_port.h"

namespace tessera {

// Clients at once, and those of one host. Beyond it the one of that host that has been silent for longest makes room,
// or the new one is closed.
constexpr int kPageClientsMax = 64;
constexpr int kPageClientsPerHostMax = 40;
// New connections of one host a second, and at once after a pause; what comes beyond is closed.
constexpr double kPageNewPerSecond = 32;
constexpr double kPageNewAtOnce = 64;

// Owns its port and a thread, from construction to its end.
class HttpServer {
 public:
  // `site` outlives it. `tls`: nullptr for plain HTTP.
  HttpServer(std::unique_ptr<PagePort> port, PageTls tls, HttpSite* site);
  ~HttpServer();

  // Connections that were closed as they came, or to make room.
  uint64_t refused() const { return refused_.load(std::memory_order_relaxed); }
  // What the thread has computed.
  absl::Duration cpu_time() const { return absl::Nanoseconds(cpu_ns_.load()); }

 private:
  // New connections that a host may have by now.
  struct Pace {
    double left = kPageNewAtOnce;
    absl::Time refilled;
  };

  void Run();
  void Accept(int listening, absl::Time now);
  bool IsInTurn(const std::string& host, absl::Time now);
  // Makes room for another client of the host. False: there is none.
  bool MakeRoom(const std::string& host);
  void Update(absl::Time now);

  const std::unique_ptr<PagePort> port_;
  const PageTls tls_;
  HttpSite& site_;
  const int wake_;  // an eventfd: the end
  std::vector<std::unique_ptr<PageConnection>> clients_;
  std::map<std::string, Pace> paces_;
  std::atomic<uint64_t> refused_{0};
  std::atomic<int64_t> cpu_ns_{0};
  std::thread thread_;
};

}  // namespace tessera

#endif  // TESSERA_SERVER_PAGE_HTTP_SERVER_H_
