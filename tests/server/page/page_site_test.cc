#include "server/page/page_site.h"

#include <string>
#include <vector>

#include <catch2/catch.hpp>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace tessera {
namespace {

// A site of a job that trains, and what it was asked to do.
class Site {
 public:
  explicit Site(const Security* security = &Plain(), absl::Status outcome = absl::OkStatus())
      : outcome_(std::move(outcome)) {
    PageSite::Options options;
    options.status = [] {
      v1::JobStatus status;
      status.set_job("digits <b>");
      status.set_state("training");
      status.add_waiting_for("worker 3");
      status.set_event_count(2);
      return status;
    };
    options.events = [](uint64_t after) {
      v1::EventsReply reply;
      for (uint64_t i = after + 1; i <= 2; ++i) {
        v1::JobEvent& event = *reply.add_events();
        event.set_number(i);
        event.set_kind("lost");
        event.set_words("line\nbreak");
      }
      reply.set_event_count(2);
      return std::optional<v1::EventsReply>(reply);
    };
    options.act = [this](PageAction action) {
      acts.push_back(action);
      return outcome_;
    };
    options.security = security;
    options.hosts = {"server-0.example"};
    site_ = std::make_unique<PageSite>(std::move(options));
  }

  HttpAnswer Ask(const std::string& method, const std::string& path,
                 std::map<std::string, std::string> headers = {}) {
    HttpRequest request;
    request.method = method;
    request.path = path;
    request.headers = std::move(headers);
    request.headers.try_emplace("host", "127.0.0.1:9000");
    return site_->Answer(request);
  }
  HttpAnswer Post(const std::string& path, std::map<std::string, std::string> headers = {}) {
    headers.try_emplace("origin", "http://127.0.0.1:9000");
    return Ask("POST", path, std::move(headers));
  }
  PageSite& operator*() { return *site_; }

  std::vector<PageAction> acts;

 private:
  static const Security& Plain() {
    static const auto* const security = new Security;
    return *security;
  }

  const absl::Status outcome_;
  std::unique_ptr<PageSite> site_;
};

std::string HeaderOf(const HttpAnswer& answer, const std::string& name) {
  for (const auto& [header, value] : answer.headers) {
    if (header == name) return value;
  }
  return "";
}

TEST_CASE("the page can be read without scripts, and is small", "[page]") {
  Site site;
  const HttpAnswer answer = site.Ask("GET", "/");
  CHECK(answer.code == 200);
  CHECK(answer.type == "text/html; charset=utf-8");
  CHECK(answer.body.size() < 100 << 10);
  CHECK(absl::StrContains(answer.body, "It waits for <b>worker 3</b>"));
  CHECK(absl::StrContains(answer.body, "digits &lt;b&gt;"));
  CHECK_FALSE(absl::StrContains(answer.body, "digits <b>"));
  CHECK(absl::StrContains(answer.body, "action=\"/drain\""));
  CHECK_FALSE(absl::StrContains(answer.body, "{{"));
  CHECK_FALSE(absl::StrContains(answer.body, "://"));
}

TEST_CASE("a browser may load nothing but the page itself", "[page][security]") {
  Site site;
  for (const char* path : {"/", "/live", "/api/status", "/no"}) {
    const HttpAnswer answer = site.Ask("GET", path);
    const std::string policy = HeaderOf(answer, "Content-Security-Policy");
    CHECK(absl::StartsWith(policy, "default-src 'none';"));
    CHECK(absl::StrContains(policy, "script-src 'sha256-"));
    CHECK_FALSE(absl::StrContains(policy, "unsafe"));
    CHECK(absl::StrContains(policy, "frame-ancestors 'none'"));
    CHECK(HeaderOf(answer, "X-Content-Type-Options") == "nosniff");
    CHECK(HeaderOf(answer, "Cache-Control") == "no-store");
  }
}

TEST_CASE("paths are names, and nothing is read by them", "[page][security]") {
  Site site;
  for (const char* path : {"/../../etc/passwd", "/..%2f..%2fetc/passwd", "//", "/api", "/api/",
                           "/page.css", "/.", "/index.html", "/api/status/"}) {
    INFO(path);
    CHECK(site.Ask("GET", path).code == 404);
  }
  CHECK(site.Ask("PUT", "/").code == 405);
  CHECK(HeaderOf(site.Ask("GET", "/drain"), "Allow") == "POST");
  CHECK(site.Ask("POST", "/").code == 405);
  CHECK(site.acts.empty());
}

TEST_CASE("buttons do what they say, and lead back to the page", "[page]") {
  Site site;
  for (const char* path : {"/checkpoint", "/drain", "/stop"}) {
    const HttpAnswer answer = site.Post(path);
    CHECK(answer.code == 303);
    CHECK(HeaderOf(answer, "Location") == "/");
  }
  CHECK(site.acts ==
        std::vector<PageAction>{PageAction::kCheckpoint, PageAction::kDrain, PageAction::kStop});
  Site refuses(&*std::make_unique<Security>().release(),
               absl::FailedPreconditionError("checkpoint: the job has no directory"));
  const HttpAnswer refused = refuses.Post("/checkpoint");
  CHECK(refused.code == 409);
  CHECK(refused.body == "checkpoint: the job has no directory\n");
}

TEST_CASE("a request that another page makes does nothing", "[page][security]") {
  Site site;
  CHECK(site.Post("/stop", {{"origin", "http://evil.example"}}).code == 403);
  CHECK(site.Post("/stop", {{"origin", "null"}}).code == 403);
  CHECK(site.Post("/stop", {{"origin", ""}}).code == 403);
  CHECK(site.Post("/stop", {{"origin", "https://127.0.0.1:9000"}}).code == 403);
  CHECK(site.Post("/stop", {{"origin", "http://127.0.0.1:9001"}}).code == 403);
  CHECK(site.Post("/stop", {{"sec-fetch-site", "cross-site"}}).code == 403);
  CHECK(site.Ask("POST", "/stop").code == 403);
  CHECK(site.acts.empty());
  CHECK(site.Post("/stop", {{"sec-fetch-site", "same-origin"}}).code == 303);
}

TEST_CASE("a name that leads here and is not this server's is refused", "[page][security]") {
  Site site;
  for (const char* host : {"evil.example", "evil.example:9000", "", "localhost.evil.example",
                           "127.0.0.1.evil.example"}) {
    INFO(host);
    CHECK(site.Ask("GET", "/", {{"host", host}}).code == 421);
    CHECK(site.Ask("POST", "/stop", {{"host", host}, {"origin", absl::StrCat("http://", host)}})
              .code == 421);
  }
  CHECK(site.acts.empty());
  for (const char* host : {"127.0.0.1", "localhost:9000", "[::1]:9000", "10.1.2.3:80",
                           "server-0.example:9000", "SERVER-0.example"}) {
    INFO(host);
    CHECK(site.Ask("GET", "/", {{"host", host}}).code == 200);
  }
}

TEST_CASE("events come as server-sent events, each in one message", "[page][events]") {
  Site site;
  uint64_t after = 0;
  const std::string text = (*site).Events(&after);
  CHECK(after == 2);
  CHECK(absl::StartsWith(text, "event: event\nid: 1\ndata: {\"number\":\"1\""));
  CHECK(absl::StrContains(text, "line\\nbreak"));
  CHECK((*site).Events(&after).empty());
  CHECK(site.Ask("GET", "/api/events").stream == HttpAnswer::Stream::kEvents);
  CHECK(site.Ask("GET", "/api/events", {{"last-event-id", "7"}}).after == 7);
}

TEST_CASE("the content is sent anew each second to those who look", "[page]") {
  Site site;
  const absl::Time now = absl::FromUnixSeconds(1000);
  const auto first = (*site).Update(true, now);
  REQUIRE(first != nullptr);
  CHECK(absl::StartsWith(*first, "event: page\ndata: <header>"));
  CHECK((*site).Update(true, now + absl::Milliseconds(500)) == nullptr);
  CHECK((*site).Update(true, now + absl::Seconds(20)) != nullptr);
  CHECK((*site).Update(false, now + absl::Seconds(60)) == nullptr);
}

}  // namespace
}  // namespace tessera
