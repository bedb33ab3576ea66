#include "server/page/http_answer.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace tessera {
namespace {

struct Reason {
  int code;
  const char* words;
};

constexpr Reason kReasons[] = {
    {200, "OK"},
    {303, "See Other"},
    {400, "Bad Request"},
    {401, "Unauthorized"},
    {403, "Forbidden"},
    {404, "Not Found"},
    {405, "Method Not Allowed"},
    {409, "Conflict"},
    {413, "Content Too Large"},
    {421, "Misdirected Request"},
    {431, "Request Header Fields Too Large"},
    {501, "Not Implemented"},
    {503, "Service Unavailable"},
    {505, "HTTP Version Not Supported"},
};

absl::string_view ReasonOf(int code) {
  for (const Reason& reason : kReasons) {
    if (reason.code == code) return reason.words;
  }
  return "";
}

}  // namespace

std::string HttpText(const HttpAnswer& answer, bool is_head) {
  std::string text = absl::StrCat("HTTP/1.1 ", answer.code, " ", ReasonOf(answer.code), "\r\n",
                                  "Content-Type: ", answer.type, "\r\nConnection: close\r\n");
  for (const auto& [name, value] : answer.headers) {
    absl::StrAppend(&text, name, ": ", value, "\r\n");
  }
  if (answer.stream != HttpAnswer::Stream::kNone) return text + "\r\n";
  absl::StrAppend(&text, "Content-Length: ", answer.body.size(), "\r\n\r\n");
  return is_head ? text : text + answer.body;
}

std::string SentEvent(absl::string_view name, absl::string_view id, absl::string_view data) {
  std::string text = absl::StrCat("event: ", name, "\n");
  if (!id.empty()) absl::StrAppend(&text, "id: ", id, "\n");
  for (const absl::string_view line : absl::StrSplit(data, '\n')) {
    absl::StrAppend(&text, "data: ", line, "\n");
  }
  return text + "\n";
}

}  // namespace tessera
