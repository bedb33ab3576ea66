#include "server/page/http_request.h"

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace tessera {
namespace {

constexpr int kBadRequest = 400;
constexpr int kTooLargeBody = 413;
constexpr int kTooLargeHead = 431;
constexpr int kNotImplemented = 501;
constexpr int kWrongVersion = 505;
constexpr char kHeadEnd[] = "\r\n\r\n";
constexpr size_t kHeadEndBytes = sizeof(kHeadEnd) - 1;

// What RFC 9110 calls a token: nothing that could end a name or a line.
bool IsToken(absl::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](unsigned char c) {
    return absl::ascii_isalnum(c) || absl::StrContains("!#$%&'*+-.^_`|~", std::string(1, c));
  });
}

bool IsPrintable(absl::string_view text) {
  return std::all_of(text.begin(), text.end(), [](unsigned char c) { return c > ' ' && c < 0x7f; });
}

}  // namespace

absl::string_view HttpRequest::Header(const std::string& name) const {
  const auto found = headers.find(name);
  return found == headers.end() ? absl::string_view() : absl::string_view(found->second);
}

bool HttpReader::Take(absl::string_view bytes) {
  // What is too long is not kept, as it is refused anyway.
  const size_t most = kHttpHeadBytesMax + kHttpBodyBytesMax + kHeadEndBytes;
  text_.append(bytes.data(), std::min(bytes.size(), most - std::min(most, text_.size())));
  if (!has_head_) {
    const size_t end = text_.find(kHeadEnd);
    if (end == std::string::npos && text_.size() <= kHttpHeadBytesMax) return false;
    if (end == std::string::npos || end > kHttpHeadBytesMax) {
      refusal_ = kTooLargeHead;
      return true;
    }
    refusal_ = ReadHead(absl::string_view(text_).substr(0, end));
    if (refusal_ == 0) refusal_ = ReadLength();
    if (refusal_ != 0) return true;
    has_head_ = true;
    text_.erase(0, end + kHeadEndBytes);
  }
  if (text_.size() < body_bytes_) return false;
  request_.body = text_.substr(0, body_bytes_);
  return true;
}

int HttpReader::ReadHead(absl::string_view head) {
  const std::vector<absl::string_view> lines = absl::StrSplit(head, "\r\n");
  int refusal = ReadLine(lines.front());
  for (size_t i = 1; refusal == 0 && i < lines.size(); ++i) refusal = ReadHeader(lines[i]);
  return refusal;
}

int HttpReader::ReadLine(absl::string_view line) {
  const std::vector<absl::string_view> parts = absl::StrSplit(line, ' ');
  if (parts.size() != 3 || !IsToken(parts[0])) return kBadRequest;
  if (parts[1].empty() || parts[1][0] != '/' || !IsPrintable(parts[1])) return kBadRequest;
  if (!absl::StartsWith(parts[2], "HTTP/")) return kBadRequest;
  if (parts[2] != "HTTP/1.1" && parts[2] != "HTTP/1.0") return kWrongVersion;
  request_.method = std::string(parts[0]);
  const std::pair<absl::string_view, absl::string_view> target =
      absl::StrSplit(parts[1], absl::MaxSplits('?', 1));
  request_.path = std::string(target.first);
  request_.query = std::string(target.second);
  return 0;
}

int HttpReader::ReadHeader(absl::string_view line) {
  if (++header_count_ > kHttpHeadersMax) return kTooLargeHead;
  const size_t colon = line.find(':');
  // A name with a space behind it, and a line that goes on another one, have led proxies astray.
  if (colon == absl::string_view::npos || !IsToken(line.substr(0, colon))) return kBadRequest;
  const absl::string_view value = absl::StripAsciiWhitespace(line.substr(colon + 1));
  if (std::any_of(value.begin(), value.end(),
                  [](unsigned char c) { return (c < ' ' && c != '\t') || c == 0x7f; })) {
    return kBadRequest;
  }
  std::string& kept = request_.headers[absl::AsciiStrToLower(line.substr(0, colon))];
  absl::StrAppend(&kept, kept.empty() ? "" : ", ", value);
  return 0;
}

int HttpReader::ReadLength() {
  if (request_.headers.count("transfer-encoding") > 0) return kNotImplemented;
  const absl::string_view length = request_.Header("content-length");
  if (length.empty()) return 0;
  uint64_t bytes = 0;
  const bool is_number = std::all_of(length.begin(), length.end(), absl::ascii_isdigit);
  if (!is_number || !absl::SimpleAtoi(length, &bytes)) return kBadRequest;
  if (bytes > kHttpBodyBytesMax) return kTooLargeBody;
  body_bytes_ = bytes;
  return 0;
}

}  // namespace tessera
