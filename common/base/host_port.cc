#include "common/base/host_port.h"

#include <arpa/inet.h>
#include <netinet/in.h>

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"

namespace tessera {
namespace {

bool IsV6(const std::string& host) { return host.find(':') != std::string::npos; }

bool IsNameLetter(char c) {
  return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '.' || c == '-' || c == '_';
}

bool IsName(absl::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), IsNameLetter);
}

// Parses an IPv6 address: "fe80::1", "fe80::1%eth0".
bool ParseV6(absl::string_view text, in6_addr* address) {
  const size_t percent = text.find('%');
  if (percent != absl::string_view::npos && !IsName(text.substr(percent + 1))) return false;
  return inet_pton(AF_INET6, std::string(text.substr(0, percent)).c_str(), address) == 1;
}

}  // namespace

std::string HostPort::ToString() const {
  return IsV6(host) ? absl::StrCat("[", host, "]:", port) : absl::StrCat(host, ":", port);
}

absl::optional<HostPort> ParseHostPort(absl::string_view address) {
  // An IPv6 address has colons itself: the last one precedes the port.
  const size_t colon = address.rfind(':');
  if (colon == absl::string_view::npos) return absl::nullopt;
  const absl::string_view port = address.substr(colon + 1);
  HostPort result;
  // The port is checked digit by digit, as SimpleAtoi takes blanks and signs, too.
  const bool has_port = !port.empty() &&
                        std::all_of(port.begin(), port.end(), absl::ascii_isdigit) &&
                        absl::SimpleAtoi(port, &result.port) && result.port <= 65535;
  if (!has_port) return absl::nullopt;
  const absl::string_view host = address.substr(0, colon);
  if (host.size() > 2 && host.front() == '[' && host.back() == ']') {
    result.host = std::string(host.substr(1, host.size() - 2));
    in6_addr parsed;
    if (!ParseV6(result.host, &parsed)) return absl::nullopt;
    return result;
  }
  if (!IsName(host)) return absl::nullopt;
  result.host = std::string(host);
  return result;
}

bool IsHostPort(absl::string_view address) {
  const absl::optional<HostPort> parsed = ParseHostPort(address);
  return parsed.has_value() && parsed->port > 0;
}

bool IsLoopback(absl::string_view address) {
  const absl::optional<HostPort> parsed = ParseHostPort(address);
  if (!parsed.has_value()) return false;
  in_addr v4;
  if (inet_pton(AF_INET, parsed->host.c_str(), &v4) == 1) return ntohl(v4.s_addr) >> 24 == 127;
  in6_addr v6;
  if (ParseV6(parsed->host, &v6)) return IN6_IS_ADDR_LOOPBACK(&v6);
  // A name may end with the dot of DNS's root.
  return absl::AsciiStrToLower(absl::StripSuffix(parsed->host, ".")) == "localhost";
}

bool IsAnyAddress(absl::string_view address) {
  const absl::optional<HostPort> parsed = ParseHostPort(address);
  if (!parsed.has_value()) return false;
  in_addr v4;
  if (inet_pton(AF_INET, parsed->host.c_str(), &v4) == 1) return v4.s_addr == htonl(INADDR_ANY);
  in6_addr v6;
  return ParseV6(parsed->host, &v6) && IN6_IS_ADDR_UNSPECIFIED(&v6);
}

}  // namespace tessera
