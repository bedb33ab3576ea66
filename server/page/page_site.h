// What is served to a browser:
//
//   GET  /                       the page (status_page.h)
//   GET  /live                   its content, anew each second or so, as server-sent events "page"
//   GET  /api/status             the status as JSON, as `tessera status --json` has it
//   GET  /api/history            its evaluations: {"history": [...]}
//   GET  /api/events?after=N     what happens, as server-sent events "event", from the one behind number N on
//   POST /checkpoint /drain /stop
//
// Whoever may make a call of gRPC may have what is here of it: the token comes as HTTP's Basic password or as Bearer.
// Requests that name another host than this one, or that another page makes, are refused, as a browser would add the
// token to those, too. Nothing is read from a disk.
#ifndef TESSERA_SERVER_PAGE_PAGE_SITE_H_
#define TESSERA_SERVER_PAGE_PAGE_SITE_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/rpc/security.h"
#include "proto/status.pb.h"
#include "server/page/http_answer.h"
#include "server/page/rate_samples.h"

namespace tessera {

enum class PageAction { kCheckpoint, kDrain, kStop };

class PageSite final : public HttpSite {
 public:
  struct Options {
    // The job's status; asked at most each second, and the more seldom the longer it takes.
    std::function<v1::JobStatus()> status;
    // Status.Events; nullopt: the coordinator is elsewhere.
    std::function<std::optional<v1::EventsReply>(uint64_t after)> events;
    // Does what a button says, and returns within some seconds; nullptr: this server never has the coordinator.
    std::function<absl::Status(PageAction)> act;
    // Who may do what; outlives the site.
    const Security* security = nullptr;
    // Names by which browsers reach it, beside IP addresses and "localhost".
    std::vector<std::string> hosts;
  };
  explicit PageSite(Options options);

  HttpAnswer Answer(const HttpRequest& request) override;
  HttpAnswer Refuse(int code) override;
  std::shared_ptr<const std::string> Update(bool has_viewers, absl::Time now) override;
  std::string Events(uint64_t* after) override;

 private:
  // Why the request is refused; nullopt: it is not.
  std::optional<HttpAnswer> CheckHost(const HttpRequest& request);
  std::optional<HttpAnswer> CheckOrigin(const HttpRequest& request);
  std::optional<HttpAnswer> CheckToken(const HttpRequest& request, absl::string_view call);
  HttpAnswer Get(const HttpRequest& request);
  HttpAnswer Post(const HttpRequest& request, PageAction action, const char* call);
  HttpAnswer Plain(int code, absl::string_view text);
  HttpAnswer WithHeaders(HttpAnswer answer);
  // A status that is young enough, from which the content and the samples are.
  const v1::JobStatus& Status(absl::Time now, absl::Duration age_max);
  std::string Content();
  std::string Page();
  std::vector<v1::JobEvent> LastEvents();

  const Options options_;
  const std::string scheme_;
  std::string content_policy_;
  v1::JobStatus status_;
  absl::Time looked_ = absl::InfinitePast();  // when status_ was asked for
  absl::Duration cost_;                       // of that, and of its content
  RateSamples samples_;
  absl::Time updated_ = absl::InfinitePast();
};

}  // namespace tessera

#endif  // TESSERA_SERVER_PAGE_PAGE_SITE_H_
