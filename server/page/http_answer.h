// What a site of pages answers, and what it has for those who stay connected.
#ifndef TESSERA_SERVER_PAGE_HTTP_ANSWER_H_
#define TESSERA_SERVER_PAGE_HTTP_ANSWER_H_

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "server/page/http_request.h"

namespace tessera {

struct HttpAnswer {
  // kPage and kEvents: the head is sent, and then what comes, as server-sent events, until somebody ends it.
  enum class Stream { kNone, kPage, kEvents };

  int code = 200;
  std::string type = "text/plain; charset=utf-8";
  std::vector<std::pair<std::string, std::string>> headers;
  std::string body;
  Stream stream = Stream::kNone;
  // kEvents: the number of the last event that the client has.
  uint64_t after = 0;
};

// The bytes of an answer. To HEAD they are those of GET without the body.
std::string HttpText(const HttpAnswer& answer, bool is_head);

// One message of a stream of server-sent events. `data` may have several lines.
std::string SentEvent(absl::string_view name, absl::string_view id, absl::string_view data);

// Asked on one thread, that of the server.
class HttpSite {
 public:
  virtual ~HttpSite() = default;
  virtual HttpAnswer Answer(const HttpRequest& request) = 0;
  // The answer to what is no request, with one of HttpReader's refusals.
  virtual HttpAnswer Refuse(int code) = 0;
  // The message that all streams of the page are sent now; `has_viewers`: there are such. nullptr: none.
  virtual std::shared_ptr<const std::string> Update(bool has_viewers, absl::Time now) = 0;
  // The messages of what has happened behind event `after`, which becomes the last of them; "": nothing.
  virtual std::string Events(uint64_t* after) = 0;
};

}  // namespace tessera

#endif  // TESSERA_SERVER_PAGE_HTTP_ANSWER_H_
