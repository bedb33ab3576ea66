#include "server/monitor/metrics_endpoint.h"

#include <algorithm>
#include <atomic>
#include <catch2/catch.hpp>
#include <cstdio>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/base/steady_clock.h"
#include "tests/server/monitor/http_client.h"

namespace tessera {
namespace {

using absl::StrContains;

v1::JobStatus Named(const std::string& method) {
  v1::JobStatus status;
  status.set_job("digits");
  status.set_method(method);
  status.set_state("training");
  return status;
}

std::unique_ptr<MetricsEndpoint> Serve(std::function<v1::JobStatus()> status) {
  auto endpoint = MetricsEndpoint::Start({"127.0.0.1:0", std::move(status), "digits", nullptr});
  REQUIRE(endpoint.ok());
  return std::move(endpoint).value();
}

int PortOf(const MetricsEndpoint& endpoint) {
  int port = 0;
  REQUIRE(absl::SimpleAtoi(endpoint.address().substr(endpoint.address().rfind(':') + 1), &port));
  return port;
}

// By itself the library looks every 2 s for what it has to do.
constexpr absl::Duration kPromptly = absl::Seconds(1);

// Measures how long the first scrape of an endpoint takes, and its end. A busy machine may hold up any of them: until
// both are prompt other endpoints are tried, of which the quickest count.
struct Quickest {
  explicit Quickest(const std::string& address, const std::string& host = "127.0.0.1") {
    for (int tries = 0; tries < 5 && std::max(scrape, stop) >= kPromptly; ++tries) {
      const auto endpoint = MetricsEndpoint::Start({address, [] { return Named("x"); }});
      REQUIRE(endpoint.ok());
      const absl::Time begin = SteadyNow();
      CHECK(StrContains(Get(PortOf(**endpoint), "/metrics", host), "method=\"x\""));
      const absl::Time scraped = SteadyNow();
      (*endpoint)->Stop();
      scrape = std::min(scrape, scraped - begin);
      stop = std::min(stop, SteadyNow() - scraped);
    }
  }
  absl::Duration scrape = absl::InfiniteDuration(), stop = absl::InfiniteDuration();
};

TEST_CASE("each scrape is answered with the status of its moment", "[monitor]") {
  std::atomic<int> asked{0};
  const auto endpoint = Serve([&] { return Named(absl::StrCat("job ", ++asked)); });
  CHECK(absl::StartsWith(endpoint->address(), "127.0.0.1:"));
  const int port = PortOf(*endpoint);
  CHECK(port > 0);
  const std::string first = Get(port, "/metrics");
  CHECK(absl::StartsWith(first, "HTTP/1.1 200"));
  CHECK(StrContains(first, "Content-Type: text/plain"));
  CHECK(StrContains(first, "method=\"job 1\""));
  CHECK(StrContains(Get(port, "/metrics"), "method=\"job 2\""));
  CHECK(absl::StartsWith(Get(port, "/elsewhere"), "HTTP/1.1 404"));
  CHECK(asked == 2);
}

TEST_CASE(
    "HEAD is answered as GET without the metrics, other methods are not allowed, older HTTP is",
    "[monitor]") {
  std::atomic<int> asked{0};
  const auto endpoint = Serve([&] { return Named(absl::StrCat("job ", ++asked)); });
  const int port = PortOf(*endpoint);
  const auto ask = [port](const std::string& request) {
    HttpClient client(port);
    client.Send(request);
    return client.ReadAll();
  };
  const std::string host = " HTTP/1.1\r\nHost: here\r\nContent-Length: 0\r\n\r\n";
  const std::string head = ask("HEAD /metrics" + host);
  CHECK(absl::StartsWith(head, "HTTP/1.1 200"));
  CHECK(StrContains(head, "Content-Type: text/plain"));
  CHECK(absl::EndsWith(head, "\r\n\r\n"));
  CHECK_FALSE(StrContains(head, "tessera_"));
  CHECK(asked == 0);
  for (const char* method : {"POST", "PUT", "DELETE", "OPTIONS", "PATCH"}) {
    const std::string answer = ask(method + (" /metrics" + host));
    INFO(method << ": " << answer);
    CHECK(absl::StartsWith(answer, "HTTP/1.1 405"));
    CHECK(StrContains(answer, "Allow: GET, HEAD\r\n"));
  }
  CHECK(asked == 0);
  CHECK(StrContains(ask("GET /metrics?name[]=tessera_job_step" + host), "method=\"job 1\""));
  CHECK(StrContains(ask("GET /metrics HTTP/1.0\r\n\r\n"), "method=\"job 2\""));
  for (const char* path : {"HEAD /elsewhere", "HEAD /metricsandmore"}) {
    INFO(path);
    CHECK(absl::StartsWith(ask(path + host), "HTTP/1.1 404"));
  }
  // The library packs what may be packed.
  const std::string packed =
      ask("GET /metrics HTTP/1.1\r\nHost: here\r\nAccept-Encoding: gzip\r\n\r\n");
  CHECK(StrContains(packed, "Content-Encoding: gzip\r\n"));
  CHECK(StrContains(packed, "\x1f\x8b"));
}

TEST_CASE("who scraped is told of with the status that was sent, and of HEAD nothing is",
          "[monitor]") {
  std::atomic<int> asked{0};
  absl::Mutex mutex;
  std::vector<std::string> told;
  const auto endpoint = MetricsEndpoint::Start(
      {"127.0.0.1:0", [&] { return Named(absl::StrCat("job ", ++asked)); }, "digits",
       [&](const v1::JobStatus& status) {
         absl::MutexLock lock(&mutex);
         told.push_back(status.method());
       }});
  REQUIRE(endpoint.ok());
  const int port = PortOf(**endpoint);
  Get(port, "/metrics");
  Get(port, "/elsewhere");
  HttpClient head(port);
  head.Send("HEAD /metrics HTTP/1.0\r\n\r\n");
  head.ReadAll();
  Get(port, "/metrics");
  (*endpoint)->Stop();
  CHECK(told == std::vector<std::string>{"job 1", "job 2"});
}

TEST_CASE("an address that is none is refused with what is wanted", "[monitor]") {
  for (const char* address :
       {"", "127.0.0.1", ":9400", "127.0.0.1:", "127.0.0.1:x", "127.0.0.1:-1", "127.0.0.1:+1",
        "127.0.0.1:65536", "127.0.0.1:99999999999999999999", "127.0.0.1:9400s",
        "127.0.0.1:0,127.0.0.1:0", "::1:0", "[::1]", "[::g]:0", "a b:0", "127.0.0.1: 0"}) {
    const auto status = MetricsEndpoint::Start({address, [] { return Named("x"); }}).status();
    INFO(address << " " << status.message());
    CHECK(absl::IsInvalidArgument(status));
    CHECK(StrContains(status.message(),
                      absl::StrCat("--metrics: got \"", address, "\", want HOST:PORT")));
    CHECK(status.message().find('\n') == absl::string_view::npos);
  }
}

TEST_CASE("a host that nobody knows or that is not this machine is refused by name", "[monitor]") {
  const auto unknown =
      MetricsEndpoint::Start({"no-such-host.invalid:0", [] { return Named("x"); }, "", nullptr})
          .status();
  CHECK(absl::IsInvalidArgument(unknown));
  CHECK(unknown.message() ==
        "--metrics: host of \"no-such-host.invalid:0\" is not known, want a name or an IP address");
  // Of a network that is for documentation.
  const auto elsewhere =
      MetricsEndpoint::Start({"192.0.2.1:0", [] { return Named("x"); }, "", nullptr}).status();
  CHECK(absl::IsFailedPrecondition(elsewhere));
  CHECK(StrContains(elsewhere.message(), "--metrics: \"192.0.2.1:0\" cannot be listened on: "));
  CHECK(elsewhere.message().find('\n') == absl::string_view::npos);
}

TEST_CASE("metrics are served on an IPv6 address as on any other", "[monitor]") {
  auto endpoint = MetricsEndpoint::Start({"[::1]:0", [] { return Named("six"); }});
  if (!endpoint.ok() && StrContains(endpoint.status().message(), "Cannot assign")) {
    std::puts("skipped: this machine has no IPv6");
    return;
  }
  REQUIRE(endpoint.ok());
  CHECK(absl::StartsWith((*endpoint)->address(), "[::1]:"));
  const int port = PortOf(**endpoint);
  CHECK(StrContains(Get(port, "/metrics", "::1"), "method=\"six\""));
  CHECK(Get(port, "/metrics").empty());
  CHECK(absl::IsFailedPrecondition(
      MetricsEndpoint::Start({(*endpoint)->address(), [] { return Named("x"); }}).status()));
  (*endpoint)->Stop();
  const Quickest quickest("[::1]:0", "::1");
  CHECK(quickest.scrape < kPromptly);
  CHECK(quickest.stop < kPromptly);
  CHECK(MetricsEndpoint::Check((*endpoint)->address()).ok());
  // All addresses of the machine, of both kinds.
  const auto all = MetricsEndpoint::Start({"[::]:0", [] { return Named("all"); }});
  REQUIRE(all.ok());
  CHECK(StrContains(Get(PortOf(**all), "/metrics", "::1"), "method=\"all\""));
  CHECK(StrContains(Get(PortOf(**all), "/metrics"), "method=\"all\""));
  // A documentation address is nobody's.
  const auto elsewhere = MetricsEndpoint::Start({"[2001:db8::1]:0", [] { return Named("x"); }});
  CHECK(StrContains(elsewhere.status().message(), "--metrics: \"[2001:db8::1]:0\" cannot be"));
}

TEST_CASE("whether a server serves is asked over HTTP, too", "[monitor]") {
  std::atomic<bool> serves{false};
  MetricsEndpoint::Options options;
  options.address = "127.0.0.1:0";
  options.status = [] { return Named("x"); };
  options.serves = [&] { return serves.load(); };
  const auto endpoint = MetricsEndpoint::Start(std::move(options));
  REQUIRE(endpoint.ok());
  const int port = PortOf(**endpoint);
  CHECK(absl::StartsWith(Get(port, "/healthz"), "HTTP/1.1 200 OK\r\n"));
  CHECK(absl::StartsWith(Get(port, "/readyz"), "HTTP/1.1 503 "));
  CHECK(absl::EndsWith(Get(port, "/readyz"), "\r\n\r\nnot serving\n"));
  serves = true;
  CHECK(absl::StartsWith(Get(port, "/readyz"), "HTTP/1.1 200 OK\r\n"));
  CHECK(absl::StartsWith(Get(port, "/readyz2"), "HTTP/1.1 404"));
  // Each has its own.
  const auto other = Serve([] { return Named("y"); });
  serves = false;
  CHECK(absl::StartsWith(Get(PortOf(*other), "/readyz"), "HTTP/1.1 200 OK\r\n"));
  CHECK(absl::StartsWith(Get(port, "/readyz"), "HTTP/1.1 503 "));
}

TEST_CASE("a port that is taken is refused, and is free once its endpoint has stopped",
          "[monitor]") {
  auto first = Serve([] { return Named("first"); });
  const std::string address = first->address();
  const auto taken =
      MetricsEndpoint::Start({address, [] { return Named("second"); }, "", nullptr}).status();
  CHECK(absl::IsFailedPrecondition(taken));
  CHECK(taken.message() ==
        absl::StrCat("--metrics: port ", PortOf(*first), " of \"", address,
                     "\" is taken, want a free one; stop its owner or take another"));
  CHECK(absl::IsInvalidArgument(MetricsEndpoint::Check(address)));
  first->Stop();
  CHECK(MetricsEndpoint::Check(address).ok());
  CHECK(MetricsEndpoint::Check("").ok());
  const auto second =
      MetricsEndpoint::Start({address, [] { return Named("second"); }, "", nullptr});
  REQUIRE(second.ok());
  CHECK(StrContains(Get(PortOf(**second), "/metrics"), "method=\"second\""));
}

TEST_CASE("nobody is asked for a status once Stop has returned, however often it is called",
          "[monitor]") {
  std::atomic<bool> stopped{false}, asked_late{false};
  auto endpoint = Serve([&] {
    if (stopped) asked_late = true;
    return Named("x");
  });
  const int port = PortOf(*endpoint);
  std::atomic<bool> enough{false};
  std::vector<std::thread> scrapers;
  for (int i = 0; i < 3; ++i) {
    scrapers.emplace_back([&] {
      while (!enough) Get(port, "/metrics");
    });
  }
  while (!StrContains(Get(port, "/metrics"), "job_name")) {
  }
  endpoint->Stop();
  stopped = true;
  CHECK_FALSE(HttpClient(port).connected());
  endpoint->Stop();
  enough = true;
  for (std::thread& scraper : scrapers) scraper.join();
  CHECK_FALSE(asked_late);
}

TEST_CASE("an endpoint that is idle stops at once", "[monitor]") {
  CHECK(Quickest("127.0.0.1:0").stop < kPromptly);
}

TEST_CASE(
    "clients that send nothing, half a request or never read hold up neither others nor the end",
    "[monitor]") {
  // More than the system holds for a client that does not read.
  const std::string long_name(16 << 20, 'x');
  auto endpoint = Serve([&] { return Named(long_name); });
  const int port = PortOf(*endpoint);
  std::vector<std::unique_ptr<HttpClient>> rude;
  for (int i = 0; i < kScrapesMax - 1; ++i) rude.push_back(std::make_unique<HttpClient>(port));
  rude[0]->Send("GET /met");
  rude[1]->Send("GET /metrics HTTP/1.1\r\nHost: here\r\n\r\n");
  CHECK(Get(port, "/metrics").size() > long_name.size());
  const absl::Time begin = SteadyNow();
  endpoint->Stop();
  // A stalled client is cut off after kScrapeStallMs; the rest of the bound is for a busy machine.
  CHECK(SteadyNow() - begin < absl::Seconds(20));
}

TEST_CASE("a request that comes drop by drop is cut off as one that does not come", "[monitor]") {
  const auto endpoint = Serve([] { return Named("x"); });
  HttpClient slow(PortOf(*endpoint));
  slow.Send("GET /metrics HTTP/1.1\r\nHost: here\r\n");
  const absl::Time begin = SteadyNow();
  std::atomic<bool> is_over{false};
  std::thread drips([&] {
    while (!is_over) {
      slow.Send("X: y\r\n");
      absl::SleepFor(absl::Milliseconds(kScrapeStallMs / 10));
    }
  });
  CHECK_FALSE(absl::StartsWith(slow.ReadAll(), "HTTP/1.1 200"));
  // A client that was not cut off would give up by itself after 10 s.
  CHECK(SteadyNow() - begin < absl::Milliseconds(8 * kScrapeStallMs));
  is_over = true;
  drips.join();
}

}  // namespace
}  // namespace tessera
