#include "server/monitor/metrics_endpoint.h"

#include <netdb.h>
#include <sys/socket.h>
#include <unistd.h>

#include <exception>
#include <thread>
#include <utility>
#include <vector>

#include <CivetServer.h>
#include <prometheus/exposer.h>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "common/base/check.h"
#include "common/base/host_port.h"
#include "common/base/wakeup.h"
#include "server/monitor/health_pages.h"
#include "server/monitor/status_metrics.h"
#include "server/monitor/v6_socket.h"

namespace tessera {
namespace {

// The pause between two nudges of a server that is to stop.
constexpr absl::Duration kNudgeInterval = absl::Milliseconds(10);
constexpr absl::string_view kMetricsPath = "/metrics";

// The address by which civetweb names sockets of IPv4.
constexpr char kV4Loopback[] = "127.0.0.1";

// Reads the flag's address; the error says what it may be.
absl::StatusOr<HostPort> Parse(absl::string_view address) {
  const absl::optional<HostPort> parsed = ParseHostPort(address);
  if (parsed.has_value()) return *parsed;
  return absl::InvalidArgumentError(absl::StrCat(
      "--metrics: got \"", address,
      "\", want HOST:PORT, a name, an IPv4 address or an IPv6 address in brackets, and a port from "
      "0 to 65535; 0 takes a free one"));
}

// What civetweb says on this thread while it starts; it tells callers nothing else.
thread_local std::string* start_log = nullptr;

int OnLog(const mg_connection*, const char* message) {
  if (start_log != nullptr) absl::StrAppend(start_log, message, "\n");
  return 1;
}

absl::Status IsTaken(const HostPort& where) {
  return absl::FailedPreconditionError(
      absl::StrCat("--metrics: port ", where.port, " of \"", where.ToString(),
                   "\" is taken, want a free one; stop its owner or take another"));
}

absl::Status IsUnknown(const HostPort& where) {
  return absl::InvalidArgumentError(absl::StrCat("--metrics: host of \"", where.ToString(),
                                                 "\" is not known, want a name or an IP address"));
}

absl::Status CannotListen(const HostPort& where, absl::string_view why) {
  return absl::FailedPreconditionError(
      absl::StrCat("--metrics: \"", where.ToString(), "\" cannot be listened on: ", why));
}

// The error of a start by what the library logged, as it says nothing else of why.
absl::Status StartError(const HostPort& where, absl::string_view log) {
  if (absl::StrContains(log, "Address already in use")) return IsTaken(where);
  if (absl::StrContains(log, "invalid port spec")) return IsUnknown(where);
  return CannotListen(where, log.substr(0, log.find('\n')));
}

// A socket to listen at, where the library cannot make one; -1: the library knows the address.
absl::StatusOr<int> ListenWhereV6(const HostPort& where) {
  if (!absl::StrContains(where.host, ":") && !IsV6Alone(where.host)) return -1;
  const absl::StatusOr<int> fd = ListenV6(where.host, where.port);
  if (fd.ok()) return fd;
  if (absl::IsNotFound(fd.status())) return IsUnknown(where);
  if (absl::IsAlreadyExists(fd.status())) return IsTaken(where);
  return CannotListen(where, fd.status().message());
}

// What the library asks for metrics, in the middle of each scrape, and on its thread.
class Scrapes final : public prometheus::Collectable {
 public:
  explicit Scrapes(MetricsEndpoint::Options options) : options_(std::move(options)) {}

  std::vector<prometheus::MetricFamily> Collect() const override {
    v1::JobStatus status = options_.status();
    std::vector<prometheus::MetricFamily> metrics = MetricsOf(status, options_.job_name);
    // What was sent is kept until the request has ended, which tells whether it was.
    answered_ = {this, std::move(status)};
    return metrics;
  }

  // Tells that the request which this thread was at is over.
  static void OnAnswered() {
    const auto [scrapes, status] = std::exchange(answered_, {});
    if (scrapes != nullptr && scrapes->options_.on_scraped) scrapes->options_.on_scraped(status);
  }

 private:
  struct Answered {
    const Scrapes* scrapes = nullptr;
    v1::JobStatus status;
  };
  static thread_local Answered answered_;

  const MetricsEndpoint::Options options_;
};

thread_local Scrapes::Answered Scrapes::answered_;

void OnEndOfRequest(const mg_connection*, int) { Scrapes::OnAnswered(); }

// Answers what the library does not, which knows GET alone. 0: the request is left to the library.
int OnRequest(mg_connection* connection) {
  // civetweb asks this for every request; 0 leaves it to the library's own pages.
  if (const int answered = AnswerHealth(connection); answered != 0) return answered;
  const mg_request_info& request = *mg_get_request_info(connection);
  const absl::string_view method = request.request_method;
  if (absl::string_view(request.local_uri) != kMetricsPath || method == "GET") return 0;
  if (method == "HEAD") {
    mg_printf(connection,
              "HTTP/1.1 200 OK\r\nContent-Type: text/plain; charset=utf-8\r\n"
              "Connection: close\r\n\r\n");
    return 200;
  }
  mg_printf(connection,
            "HTTP/1.1 405 Method Not Allowed\r\nAllow: GET, HEAD\r\nContent-Length: 0\r\n"
            "Connection: close\r\n\r\n");
  return 405;
}

// Connects and closes at once: the library's thread wakes up and looks whether it is to stop.
void Nudge(const std::string& host, int port) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found) != 0) return;
  for (const addrinfo* to = found; to != nullptr; to = to->ai_next) {
    const int fd = socket(to->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0) continue;
    (void)connect(fd, to->ai_addr, to->ai_addrlen);
    close(fd);
  }
  freeaddrinfo(found);
}

}  // namespace

absl::StatusOr<std::unique_ptr<MetricsEndpoint>> MetricsEndpoint::Start(Options options) {
  TESSERA_ASSIGN_OR_RETURN(const HostPort where, Parse(options.address));
  TESSERA_ASSIGN_OR_RETURN(const int v6, ListenWhereV6(where));
  std::unique_ptr<MetricsEndpoint> endpoint(new MetricsEndpoint);
  std::function<bool()> serves = std::move(options.serves);
  endpoint->scrapes_ = std::make_shared<Scrapes>(std::move(options));
  std::string log;
  // civetweb logs its reason on this thread, and there is no other way to learn it.
  start_log = &log;
  CivetCallbacks callbacks;
  callbacks.log_message = OnLog;
  callbacks.begin_request = OnRequest;
  callbacks.end_request = OnEndOfRequest;
  const HealthPages health(std::move(serves), &callbacks);
  bool has_started = false;
  try {
    // prometheus-cpp throws where it cannot listen.
    endpoint->exposer_ = std::make_unique<prometheus::Exposer>(
        std::vector<std::string>{"listening_ports",
                                 (v6 < 0 ? where : HostPort{kV4Loopback, 0}).ToString(),
                                 "num_threads", absl::StrCat(kScrapesMax), "request_timeout_ms",
                                 absl::StrCat(kScrapeStallMs)},
        &callbacks);
    endpoint->exposer_->RegisterCollectable(endpoint->scrapes_, std::string(kMetricsPath));
    endpoint->port_ = endpoint->exposer_->GetListeningPorts().at(0);
    has_started = true;
  } catch (const std::exception& error) {
    absl::StrAppend(&log, error.what());
  }
  start_log = nullptr;
  if (!has_started) {
    if (v6 >= 0) close(v6);
    return StartError(where, log);
  }
  if (v6 >= 0) {
    // The library cannot listen at an IPv6 address: it begins on loopback, and its socket is replaced.
    const int v4_port = std::exchange(endpoint->port_, PortOfSocket(v6));
    TESSERA_CHECK(ReplaceListener(v4_port, v6));
    // The library's thread may wait at the socket that is gone, for 2 s or until somebody connects. Woken there, the
    // kernel looks at the new one, and waits on where nobody has connected to that.
    Nudge(where.host, endpoint->port_);
    Nudge(kV4Loopback, v4_port);
  }
  endpoint->host_ = where.host;
  endpoint->address_ = HostPort{where.host, endpoint->port_}.ToString();
  return endpoint;
}

absl::Status MetricsEndpoint::Check(const std::string& address) {
  // Starting and stopping is the check: nothing else knows whether civetweb can listen there.
  if (address.empty()) return absl::OkStatus();
  const absl::Status taken = Start({address, [] { return v1::JobStatus(); }, "", nullptr}).status();
  return taken.ok() ? taken : absl::InvalidArgumentError(taken.message());
}

MetricsEndpoint::~MetricsEndpoint() { Stop(); }

void MetricsEndpoint::Stop() {
  if (exposer_ == nullptr) return;
  // civetweb looks every 2 s whether it is to stop, or when somebody connects.
  Wakeup stopped;
  // The library's end waits for its thread, which the nudges wake up.
  std::thread stopping([this, &stopped] {
    exposer_.reset();
    stopped.Notify();
  });
  do {
    Nudge(host_, port_);
  } while (!stopped.WaitFor(kNudgeInterval));
  stopping.join();
  scrapes_.reset();
}

}  // namespace tessera
