#include "tests/server/monitor/http_client.h"

#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

namespace tessera {

HttpClient::HttpClient(int port) : fd_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  // The library forgets connections that come just when it stops.
  const timeval patience{10, 0};
  setsockopt(fd_, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
  if (connect(fd_, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0) return;
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

std::string Get(int port, const std::string& path) {
  HttpClient client(port);
  client.Send("GET " + path + " HTTP/1.1\r\nHost: here\r\n\r\n");
  return client.ReadAll();
}

}  // namespace tessera
