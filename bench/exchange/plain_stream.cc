#include "bench/exchange/plain_stream.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <thread>

#include "common/base/check.h"

// Defined by copy_counter.so.
extern "C" __attribute__((weak)) uint64_t tessera_copied_bytes();

namespace tessera {
namespace {

void SetUp(int fd) {
  const int on = 1;
  TESSERA_CHECK(setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on)) == 0);
}

sockaddr_in Loopback(int port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return address;
}

bool SendAll(int fd, const char* data, int64_t size) {
  while (size > 0) {
    const ssize_t sent = send(fd, data, size, MSG_NOSIGNAL);
    if (sent <= 0) return false;
    data += sent;
    size -= sent;
  }
  return true;
}

bool ReceiveAll(int fd, char* data, int64_t size) {
  while (size > 0) {
    const ssize_t received = recv(fd, data, size, 0);
    if (received <= 0) return false;
    data += received;
    size -= received;
  }
  return true;
}

// The other end of the plain socket: sends and receives as many bytes as the benchmark does.
void Serve(int listening, int64_t bytes) {
  const int fd = accept(listening, nullptr, nullptr);
  close(listening);
  if (fd < 0) return;
  SetUp(fd);
  std::vector<char> buffer(bytes, 1);
  char what = 0;
  while (ReceiveAll(fd, &what, 1)) {
    const uint64_t copied = CopiedBytes();
    bool ok = false;
    if (what == 's') ok = SendAll(fd, buffer.data(), bytes);
    if (what == 'r') ok = ReceiveAll(fd, buffer.data(), bytes) && SendAll(fd, &what, 1);
    if (what == 'c') ok = SendAll(fd, reinterpret_cast<const char*>(&copied), sizeof(copied));
    if (!ok) break;
  }
  close(fd);
}

}  // namespace

uint64_t CopiedBytes() { return tessera_copied_bytes == nullptr ? 0 : tessera_copied_bytes(); }

int ServePlainStream(int64_t bytes) {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address = Loopback(0);
  socklen_t size = sizeof(address);
  TESSERA_CHECK(bind(fd, reinterpret_cast<sockaddr*>(&address), size) == 0);
  TESSERA_CHECK(listen(fd, 1) == 0);
  TESSERA_CHECK(getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size) == 0);
  std::thread(Serve, fd, bytes).detach();
  return ntohs(address.sin_port);
}

PlainStreamClient::PlainStreamClient(int port, int64_t bytes)
    : fd_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)), buffer_(bytes, 1) {
  const sockaddr_in address = Loopback(port);
  TESSERA_CHECK(connect(fd_, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0);
  SetUp(fd_);
}

PlainStreamClient::~PlainStreamClient() { close(fd_); }

void PlainStreamClient::Request(char what) { TESSERA_CHECK(SendAll(fd_, &what, 1)); }

void PlainStreamClient::Receive() {
  Request('s');
  TESSERA_CHECK(ReceiveAll(fd_, buffer_.data(), buffer_.size()));
}

void PlainStreamClient::Send() {
  Request('r');
  char done = 0;
  TESSERA_CHECK(SendAll(fd_, buffer_.data(), buffer_.size()) && ReceiveAll(fd_, &done, 1));
}

uint64_t PlainStreamClient::ServerCopiedBytes() {
  Request('c');
  uint64_t copied = 0;
  TESSERA_CHECK(ReceiveAll(fd_, reinterpret_cast<char*>(&copied), sizeof(copied)));
  return copied;
}

}  // namespace tessera
