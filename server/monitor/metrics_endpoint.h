// `GET /metrics` over plain HTTP, for Prometheus: each answer is the status of that moment (status_metrics.h). The
// pages of health_pages.h are beside it.
//
// prometheus-cpp's Exposer does the serving, with civetweb's threads. Neither they nor their exceptions get
// further than this file.
#ifndef TESSERA_SERVER_MONITOR_METRICS_ENDPOINT_H_
#define TESSERA_SERVER_MONITOR_METRICS_ENDPOINT_H_

#include <functional>
#include <memory>
#include <string>

#include <prometheus/collectable.h>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/status.pb.h"

namespace prometheus {
class Exposer;
}  // namespace prometheus

namespace tessera {

// Scrapes that are answered at once. Others wait for one of these to end, or are closed.
constexpr int kScrapesMax = 4;
// A client whose request is not whole by then, or that neither sends nor reads anything for so long, is cut off. The
// end of a server may wait for it.
constexpr int kScrapeStallMs = 1000;

// Serves from Start until Stop or its end.
class MetricsEndpoint {
 public:
  struct Options {
    // HOST:PORT, where HOST is a name, an IPv4 address or an IPv6 address in brackets; port 0 takes a free one.
    std::string address;
    // Asked from the threads of scrapes, several at once; must not block for long.
    std::function<v1::JobStatus()> status;
    // Whether the server serves, for /readyz (health_pages.h); as `status`. Empty: it does.
    std::function<bool()> serves = nullptr;
  };

  // Messages name --metrics, the flag that the address is from.
  //   kInvalidArgument     the address is none, or its host is not known
  //   kFailedPrecondition  the port is taken, or the address is not this machine's
  static absl::StatusOr<std::unique_ptr<MetricsEndpoint>> Start(Options options);
  ~MetricsEndpoint();

  // HOST:PORT with the port that was taken.
  const std::string& address() const { return address_; }

  // Whether Start would take this address, which is given back at once; OK for "".
  //   kInvalidArgument  it would not, for whatever reason
  static absl::Status Check(const std::string& address);

  // Nobody asks for a status any more, and the port is free, once it returns: soon, or after kScrapeStallMs
  // where a client is stalled. Connections that come meanwhile may stay open until the process ends.
  void Stop();

 private:
  MetricsEndpoint() = default;

  std::string address_;
  std::string host_;
  int port_ = 0;
  std::shared_ptr<prometheus::Collectable> collectable_;
  std::unique_ptr<prometheus::Exposer> exposer_;
};

}  // namespace tessera

#endif  // TESSERA_SERVER_MONITOR_METRICS_ENDPOINT_H_
