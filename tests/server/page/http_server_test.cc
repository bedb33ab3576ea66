// The page's server against clients that are rude.
#include "server/page/http_server.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <memory>
#include <string>
#include <vector>

#include <catch2/catch.hpp>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/base/host_port.h"
#include "common/base/steady_clock.h"
#include "tests/server/monitor/http_client.h"

namespace tessera {
namespace {

// Answers that come at once may take so long on a busy machine.
constexpr absl::Duration kSoon = absl::Seconds(30);

// Says what it was asked; its streams have a message of 64 KiB each time.
class EchoSite final : public HttpSite {
 public:
  HttpAnswer Answer(const HttpRequest& request) override {
    HttpAnswer answer;
    answer.body = absl::StrCat(request.method, " ", request.path, "\n");
    if (request.path == "/live") answer.stream = HttpAnswer::Stream::kPage;
    if (request.path == "/events") answer.stream = HttpAnswer::Stream::kEvents;
    return answer;
  }
  HttpAnswer Refuse(int code) override {
    HttpAnswer answer;
    answer.code = code;
    return answer;
  }
  std::shared_ptr<const std::string> Update(bool has_viewers, absl::Time now) override {
    if (!has_viewers) return nullptr;
    return std::make_shared<const std::string>(SentEvent("page", "", std::string(64 << 10, 'x')));
  }
  std::string Events(uint64_t* after) override {
    if (*after >= 3) return "";
    ++*after;
    return SentEvent("event", absl::StrCat(*after), "e");
  }
};

class Served {
 public:
  Served() {
    auto port = PagePort::Listen("127.0.0.1:0");
    REQUIRE(port.ok());
    port_ = ParseHostPort((*port)->address())->port;
    server_ = std::make_unique<HttpServer>(*std::move(port), nullptr, &site_);
  }
  int port() const { return port_; }
  HttpServer& operator*() { return *server_; }
  std::string Ask(const std::string& text) const {
    HttpClient client(port_);
    client.Send(text);
    return client.ReadAll();
  }
  std::string Get(const std::string& path) const {
    return Ask(absl::StrCat("GET ", path, " HTTP/1.1\r\nHost: x\r\n\r\n"));
  }
  // Asks until there is an answer, as a client beyond the limits is closed.
  bool Answers(absl::Duration patience) const {
    const absl::Time end = SteadyNow() + patience;
    while (SteadyNow() < end) {
      if (absl::StartsWith(Get("/"), "HTTP/1.1 200 OK")) return true;
      absl::SleepFor(absl::Milliseconds(100));
    }
    return false;
  }

 private:
  EchoSite site_;
  int port_ = 0;
  std::unique_ptr<HttpServer> server_;
};

TEST_CASE("a request is answered, and the connection closed", "[page][http]") {
  Served served;
  const std::string answer = served.Get("/a?b");
  CHECK(absl::StartsWith(answer, "HTTP/1.1 200 OK\r\n"));
  CHECK(absl::EndsWith(answer, "\r\n\r\nGET /a\n"));
  const std::string head = served.Ask("HEAD /a HTTP/1.1\r\n\r\n");
  CHECK(absl::StrContains(head, "Content-Length: 8\r\n"));
  CHECK(absl::EndsWith(head, "\r\n\r\n"));
}

TEST_CASE("a megabyte of headers is refused, and the refusal arrives", "[page][http][strangers]") {
  Served served;
  const std::string answer =
      served.Ask("GET / HTTP/1.1\r\nA: " + std::string(1 << 20, 'x') + "\r\n\r\n");
  CHECK(absl::StartsWith(answer, "HTTP/1.1 431 "));
  CHECK(served.Answers(kSoon));
}

TEST_CASE("bytes that are no HTTP are refused", "[page][http][strangers]") {
  Served served;
  CHECK(absl::StartsWith(served.Ask("\x16\x03\x01 hello\r\n\r\n"), "HTTP/1.1 400 "));
  CHECK(absl::StartsWith(served.Ask("PRI * HTTP/2.0\r\n\r\n"), "HTTP/1.1 400 "));
}

TEST_CASE("events come as they are, and the stream stays", "[page][http]") {
  Served served;
  HttpClient client(served.port());
  client.Send("GET /events HTTP/1.1\r\n\r\n");
  // The end of the server is the stream's.
  absl::SleepFor(absl::Milliseconds(600));
  CHECK(served.Answers(kSoon));
}

TEST_CASE("two hundred clients that say nothing do not keep others out",
          "[page][http][strangers]") {
  Served served;
  std::vector<std::unique_ptr<HttpClient>> silent;
  for (int i = 0; i < 200; ++i) silent.push_back(std::make_unique<HttpClient>(served.port()));
  CHECK(served.Answers(kSoon));
  CHECK((*served).refused() > 0);
}

TEST_CASE("two hundred streams that nobody reads are ended, and cost little",
          "[page][http][strangers]") {
  Served served;
  std::vector<std::unique_ptr<HttpClient>> stalled;
  for (int i = 0; i < 200; ++i) {
    stalled.push_back(std::make_unique<HttpClient>(served.port()));
    stalled.back()->Send("GET /live HTTP/1.1\r\n\r\n");
  }
  const absl::Time begin = SteadyNow();
  // Those that got a place hold it until they have read nothing for kPageStallMax.
  CHECK(served.Answers(3 * kPageStallMax));
  const absl::Duration passed = SteadyNow() - begin;
  CHECK((*served).cpu_time() < std::max(absl::Seconds(1), passed / 4));
}

TEST_CASE("a port that is taken or no address is said", "[page][http]") {
  Served served;
  const auto taken = PagePort::Listen(absl::StrCat("127.0.0.1:", served.port()));
  CHECK(absl::IsFailedPrecondition(taken.status()));
  CHECK(absl::StrContains(taken.status().message(), "is taken"));
  CHECK(absl::IsInvalidArgument(PagePort::Listen("nonsense").status()));
  CHECK(absl::IsInvalidArgument(PagePort::Listen("no.such.host.invalid:1").status()));
}

}  // namespace
}  // namespace tessera
