#include "tests/server/monitor/http_client.h"

#include <netdb.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

namespace tessera {

HttpClient::HttpClient(int port, const std::string& host) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICHOST;
  addrinfo* found = nullptr;
  if (getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found) != 0) return;
  fd_ = socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
  // The library forgets connections that come just when it stops.
  const timeval patience{10, 0};
  setsockopt(fd_, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
  const bool connected = connect(fd_, found->ai_addr, found->ai_addrlen) == 0;
  freeaddrinfo(found);
  if (connected) return;
  close(fd_);
  fd_ = -1;
}

HttpClient::~HttpClient() {
  if (fd_ >= 0) close(fd_);
}

void HttpClient::Send(absl::string_view text) {
  if (fd_ >= 0) (void)send(fd_, text.data(), text.size(), MSG_NOSIGNAL);
}

std::string HttpClient::ReadAll() {
  std::string all;
  char buffer[4096];
  ssize_t count = 0;
  while (fd_ >= 0 && (count = recv(fd_, buffer, sizeof(buffer), 0)) > 0) all.append(buffer, count);
  return all;
}

std::string Get(int port, const std::string& path, const std::string& host) {
  HttpClient client(port, host);
  client.Send("GET " + path + " HTTP/1.1\r\nHost: here\r\n\r\n");
  return client.ReadAll();
}

}  // namespace tessera
