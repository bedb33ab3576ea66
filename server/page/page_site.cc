#include "server/page/page_site.h"

#include <arpa/inet.h>
#include <openssl/sha.h>

#include <algorithm>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/strip.h"
#include "common/base/steady_clock.h"
#include "server/control/status_json.h"
#include "server/page/html.h"
#include "server/page/page_files.h"
#include "server/page/status_page.h"

namespace tessera {
namespace {

// How often the page's content is sent, and how old a status may be where nobody looks.
constexpr absl::Duration kUpdateInterval = absl::Seconds(1);
constexpr absl::Duration kSampleInterval = absl::Seconds(5);
// A status is shown for so many times as long as it took to make, so that pages take a hundredth of one core.
constexpr int kShownPerCost = 100;
// A page that is asked for shares a status of this age.
constexpr absl::Duration kSharedAge = absl::Milliseconds(250);
constexpr absl::Duration kSharedAgeMax = absl::Seconds(5);
constexpr char kJson[] = "application/json";
constexpr char kHtml[] = "text/html; charset=utf-8";
constexpr char kEventStream[] = "text/event-stream";
constexpr char kViewerCall[] = "/tessera.v1.Status/Get";

// A source of a content security policy: this text and no other.
std::string HashSource(absl::string_view text) {
  unsigned char digest[SHA256_DIGEST_LENGTH];
  SHA256(reinterpret_cast<const unsigned char*>(text.data()), text.size(), digest);
  std::string base64;
  absl::Base64Escape({reinterpret_cast<const char*>(digest), sizeof(digest)}, &base64);
  return absl::StrCat("'sha256-", base64, "'");
}

// The host of a Host header, without the port and the brackets of an IPv6 address.
std::string HostNamed(absl::string_view header) {
  if (absl::StartsWith(header, "[")) return std::string(header.substr(1, header.find(']') - 1));
  return absl::AsciiStrToLower(header.substr(0, header.find(':')));
}

bool IsIpAddress(const std::string& host) {
  unsigned char address[sizeof(in6_addr)];
  return inet_pton(AF_INET, host.c_str(), address) == 1 ||
         inet_pton(AF_INET6, host.c_str(), address) == 1;
}

// The token of an Authorization header: a Bearer's, or the password, or without one the name, of Basic. "": none.
std::string TokenOf(absl::string_view authorization) {
  if (absl::StartsWithIgnoreCase(authorization, "Bearer ")) {
    return std::string(authorization.substr(7));
  }
  std::string pair;
  if (!absl::StartsWithIgnoreCase(authorization, "Basic ") ||
      !absl::Base64Unescape(absl::StripAsciiWhitespace(authorization.substr(6)), &pair)) {
    return "";
  }
  const size_t colon = pair.find(':');
  if (colon == std::string::npos) return pair;
  return colon + 1 < pair.size() ? pair.substr(colon + 1) : pair.substr(0, colon);
}

// The number behind "after=" in a query; 0: none.
uint64_t AfterIn(absl::string_view query) {
  uint64_t after = 0;
  if (!absl::ConsumePrefix(&query, "after=") || !absl::SimpleAtoi(query, &after)) return 0;
  return after;
}

}  // namespace

PageSite::PageSite(Options options)
    : options_(std::move(options)),
      scheme_(options_.security->serves_tls() ? "https://" : "http://"),
      content_policy_(absl::StrCat(
          "default-src 'none'; style-src ", HashSource(PageStyle()), "; script-src ",
          HashSource(PageScript()),
          "; connect-src 'self'; img-src data:; form-action 'self'; frame-ancestors 'none'; "
          "base-uri 'none'")) {}

HttpAnswer PageSite::WithHeaders(HttpAnswer answer) {
  const std::pair<const char*, absl::string_view> headers[] = {
      {"Content-Security-Policy", content_policy_},
      {"Cache-Control", "no-store"},
      {"X-Content-Type-Options", "nosniff"},
      {"X-Frame-Options", "DENY"},
      {"Cross-Origin-Opener-Policy", "same-origin"},
      {"Cross-Origin-Resource-Policy", "same-origin"},
      // Without a referrer policy of the same origin a form's request would not say where it is from.
      {"Referrer-Policy", "same-origin"},
  };
  for (const auto& [name, value] : headers) answer.headers.emplace_back(name, std::string(value));
  return answer;
}

HttpAnswer PageSite::Plain(int code, absl::string_view text) {
  HttpAnswer answer;
  answer.code = code;
  answer.body = absl::StrCat(text, "\n");
  return WithHeaders(std::move(answer));
}

HttpAnswer PageSite::Refuse(int code) { return Plain(code, "this is no request for the page"); }

std::optional<HttpAnswer> PageSite::CheckHost(const HttpRequest& request) {
  // A name that a stranger's server has led here would make this page the stranger's.
  const std::string host = HostNamed(request.Header("host"));
  const auto is_known = [&host](const std::string& name) {
    return absl::EqualsIgnoreCase(host, name);
  };
  if (IsIpAddress(host) || host == "localhost" ||
      std::any_of(options_.hosts.begin(), options_.hosts.end(), is_known)) {
    return std::nullopt;
  }
  return Plain(421, absl::StrCat("host: got \"", Escaped(host, 60),
                                 "\", want an IP address, or the server's name in --page, in "
                                 "cluster.servers or of its machine"));
}

std::optional<HttpAnswer> PageSite::CheckOrigin(const HttpRequest& request) {
  const std::string own = absl::StrCat(scheme_, request.Header("host"));
  const absl::string_view site = request.Header("sec-fetch-site");
  if (absl::EqualsIgnoreCase(request.Header("origin"), own) &&
      (site.empty() || site == "same-origin")) {
    return std::nullopt;
  }
  return Plain(403,
               "origin: the request is not from this page; open the page, or use tessera "
               "checkpoint, drain or stop");
}

std::optional<HttpAnswer> PageSite::CheckToken(const HttpRequest& request, absl::string_view call) {
  if (!options_.security->has_tokens()) return std::nullopt;
  const std::string token = TokenOf(request.Header("authorization"));
  const absl::Status may = options_.security->MayCall(call, token);
  if (may.ok()) return std::nullopt;
  // A browser asks for another token in place of one that is not enough.
  HttpAnswer answer =
      Plain(401, token.empty() ? "token: give one of the job's as the password" : may.message());
  answer.headers.emplace_back("WWW-Authenticate",
                              absl::StrCat("Basic realm=\"tessera, ",
                                           call == kViewerCall ? "a token" : "an operator's token",
                                           " as the password\", charset=\"UTF-8\""));
  return answer;
}

HttpAnswer PageSite::Answer(const HttpRequest& request) {
  if (auto refused = CheckHost(request)) return *std::move(refused);
  struct Button {
    const char* path;
    PageAction action;
    const char* call;
  };
  constexpr Button kButtons[] = {
      {"/checkpoint", PageAction::kCheckpoint, "/tessera.v1.Admin/Checkpoint"},
      {"/drain", PageAction::kDrain, "/tessera.v1.Admin/Drain"},
      {"/stop", PageAction::kStop, "/tessera.v1.Admin/Stop"},
  };
  for (const Button& button : kButtons) {
    if (request.path != button.path) continue;
    if (request.method == "POST") return Post(request, button.action, button.call);
    HttpAnswer answer = Plain(405, "want POST, from the page");
    answer.headers.emplace_back("Allow", "POST");
    return answer;
  }
  if (request.method != "GET" && request.method != "HEAD") {
    HttpAnswer answer = Plain(405, "want GET");
    answer.headers.emplace_back("Allow", "GET, HEAD");
    return answer;
  }
  if (auto refused = CheckToken(request, kViewerCall)) return *std::move(refused);
  return Get(request);
}

HttpAnswer PageSite::Get(const HttpRequest& request) {
  HttpAnswer answer;
  if (request.path == "/") {
    answer.type = kHtml;
    answer.body = Page();
  } else if (request.path == "/live") {
    answer.type = kEventStream;
    answer.stream = HttpAnswer::Stream::kPage;
  } else if (request.path == "/api/events") {
    answer.type = kEventStream;
    answer.stream = HttpAnswer::Stream::kEvents;
    answer.after = AfterIn(request.query);
    // A browser that connects again says what it had.
    uint64_t last = 0;
    if (absl::SimpleAtoi(request.Header("last-event-id"), &last)) answer.after = last;
  } else if (request.path == "/api/status") {
    answer.type = kJson;
    answer.body = StatusJson(Status(SteadyNow(), kSharedAge)) + "\n";
  } else if (request.path == "/api/history") {
    answer.type = kJson;
    std::string entries;
    for (const v1::HistoryEntry& entry : Status(SteadyNow(), kSharedAge).history()) {
      absl::StrAppend(&entries, entries.empty() ? "" : ",", MessageJson(entry));
    }
    answer.body = absl::StrCat("{\"history\":[", entries, "]}\n");
  } else {
    return Plain(404, "there is no such page; want /");
  }
  return WithHeaders(std::move(answer));
}

HttpAnswer PageSite::Post(const HttpRequest& request, PageAction action, const char* call) {
  // Who is another's page need not learn whether its reader has a token here.
  if (auto refused = CheckOrigin(request)) return *std::move(refused);
  if (auto refused = CheckToken(request, call)) return *std::move(refused);
  if (options_.act == nullptr) return Plain(409, "the coordinator is not on this server");
  const absl::Status done = options_.act(action);
  if (!done.ok()) return Plain(absl::IsUnavailable(done) ? 503 : 409, done.message());
  HttpAnswer answer;
  answer.code = 303;
  answer.headers.emplace_back("Location", "/");
  return WithHeaders(std::move(answer));
}

const v1::JobStatus& PageSite::Status(absl::Time now, absl::Duration age_max) {
  const absl::Duration shown = std::min(kSharedAgeMax, kShownPerCost / 5 * cost_);
  if (now - looked_ < std::max(age_max, shown)) return status_;
  const absl::Time begin = SteadyNow();
  status_ = options_.status();
  samples_.Add(status_);
  cost_ = SteadyNow() - begin;
  looked_ = now;
  return status_;
}

std::vector<v1::JobEvent> PageSite::LastEvents() {
  const uint64_t count = status_.event_count();
  const uint64_t after = count > kPageEventsMax ? count - kPageEventsMax : 0;
  const std::optional<v1::EventsReply> reply =
      options_.events == nullptr ? std::nullopt : options_.events(after);
  if (reply.has_value()) return {reply->events().begin(), reply->events().end()};
  return {status_.events().begin(), status_.events().end()};
}

std::string PageSite::Content() { return PageContent(status_, samples_.samples(), LastEvents()); }

std::string PageSite::Page() {
  const v1::JobStatus& status = Status(SteadyNow(), kSharedAge);
  const bool can_act = options_.act != nullptr && status.state() != "done";
  std::string title =
      absl::StrCat(status.job().empty() ? "server" : Escaped(status.job(), 60), " – tessera");
  // What is filled in is not looked at again, whatever it looks like.
  return absl::StrReplaceAll(PageFrame(), {{"{{title}}", title},
                                           {"{{style}}", PageStyle()},
                                           {"{{content}}", Content()},
                                           {"{{actions}}", can_act ? PageActions() : ""},
                                           {"{{script}}", PageScript()}});
}

std::shared_ptr<const std::string> PageSite::Update(bool has_viewers, absl::Time now) {
  const absl::Duration interval =
      std::max(has_viewers ? kUpdateInterval : kSampleInterval, kShownPerCost * cost_);
  if (now - updated_ < interval) return nullptr;
  updated_ = now;
  const absl::Time begin = SteadyNow();
  Status(now, kSharedAge);
  if (!has_viewers) return nullptr;
  auto update = std::make_shared<const std::string>(SentEvent("page", "", Content()));
  cost_ = std::max(cost_, SteadyNow() - begin);
  return update;
}

std::string PageSite::Events(uint64_t* after) {
  std::string text;
  const std::optional<v1::EventsReply> reply =
      options_.events == nullptr ? std::nullopt : options_.events(*after);
  if (!reply.has_value()) return text;
  for (const v1::JobEvent& event : reply->events()) {
    *after = event.number();
    absl::StrAppend(&text, SentEvent("event", absl::StrCat(event.number()), MessageJson(event)));
  }
  return text;
}

}  // namespace tessera
