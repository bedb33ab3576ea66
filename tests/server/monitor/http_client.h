// A client of HTTP as rude as one may be.
#ifndef TESSERA_TESTS_SERVER_MONITOR_HTTP_CLIENT_H_
#define TESSERA_TESTS_SERVER_MONITOR_HTTP_CLIENT_H_

#include <string>

#include "absl/strings/string_view.h"

namespace tessera {

// One connection to a port of this machine.
class HttpClient {
 public:
  explicit HttpClient(int port, const std::string& host = "127.0.0.1");
  ~HttpClient();
  HttpClient(const HttpClient&) = delete;
  HttpClient& operator=(const HttpClient&) = delete;

  bool connected() const { return fd_ >= 0; }
  void Send(absl::string_view text);
  // All that comes until the other side closes, or is silent for 10 s.
  std::string ReadAll();

 private:
  int fd_ = -1;
};

// The whole answer to `GET path`; empty: nobody answers.
std::string Get(int port, const std::string& path, const std::string& host = "127.0.0.1");

}  // namespace tessera

#endif  // TESSERA_TESTS_SERVER_MONITOR_HTTP_CLIENT_H_
