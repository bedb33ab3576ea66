// One request of HTTP/1.1, as far as a page in a browser needs it:
//
//   METHOD SP TARGET SP HTTP/1.x CRLF   METHOD of letters, TARGET from "/" on, printable ASCII
//   (NAME ":" VALUE CRLF)* CRLF         at most kHeadersMax, no folded lines
//   BODY                                Content-Length bytes; no other transfer
//
// Nothing is read beyond the limits, whatever a client sends.
#ifndef TESSERA_SERVER_PAGE_HTTP_REQUEST_H_
#define TESSERA_SERVER_PAGE_HTTP_REQUEST_H_

#include <cstddef>
#include <map>
#include <string>

#include "absl/strings/string_view.h"

namespace tessera {

// The most bytes of the request's line and headers, the most headers, and the most bytes of a body.
constexpr size_t kHttpHeadBytesMax = 16 << 10;
constexpr size_t kHttpHeadersMax = 64;
constexpr size_t kHttpBodyBytesMax = 4 << 10;

struct HttpRequest {
  std::string method;
  // The target up to "?", and what comes behind that.
  std::string path;
  std::string query;
  // By name in small letters. Of a name that comes twice the values are joined by ", ".
  std::map<std::string, std::string> headers;
  std::string body;

  // The value of a header whose name is in small letters; "" where it did not come.
  absl::string_view Header(const std::string& name) const;
};

// Reads one request from the bytes of a connection, as they come.
class HttpReader {
 public:
  // Takes the next bytes. True: the request is whole, or cannot become one.
  bool Take(absl::string_view bytes);
  // Once Take has returned true: 0, or the HTTP status with which the request is to be refused.
  int refusal() const { return refusal_; }
  const HttpRequest& request() const { return request_; }

 private:
  // The head is there, without the empty line. Returns the refusal.
  int ReadHead(absl::string_view head);
  int ReadLine(absl::string_view line);
  int ReadHeader(absl::string_view line);
  // What the body's length is, by the headers. Returns the refusal.
  int ReadLength();

  std::string text_;
  bool has_head_ = false;
  size_t body_bytes_ = 0;
  size_t header_count_ = 0;
  int refusal_ = 0;
  HttpRequest request_;
};

}  // namespace tessera

#endif  // TESSERA_SERVER_PAGE_HTTP_REQUEST_H_
