// A call of somebody who compresses, which none of our clients does: its message is small on the wire, and unpacked
// takes kUnpackedBytes.
#ifndef TESSERA_TESTS_COMMON_RPC_COMPRESSED_CALL_H_
#define TESSERA_TESTS_COMMON_RPC_COMPRESSED_CALL_H_

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>
#include <zlib.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <string>

#include <catch2/catch.hpp>

#include "common/metrics/process_memory.h"

namespace tessera {

constexpr int64_t kUnpackedBytes = int64_t{48} << 20;
// Of what a process takes for a call anyway, and far below what would be unpacked.
constexpr int64_t kCallBytesMax = int64_t{16} << 20;

// A message that any protobuf would take, with an unknown field full of zeros, as gzip.
inline std::string CompressedMessage() {
  std::string zeros("\xc2\x3e", 2);  // field 1000, bytes
  for (int64_t size = kUnpackedBytes;; size >>= 7) {
    zeros.push_back(static_cast<char>((size & 0x7f) | (size >= 0x80 ? 0x80 : 0)));
    if (size < 0x80) break;
  }
  zeros.append(kUnpackedBytes, '\0');
  std::string packed(1 << 20, '\0');
  z_stream stream{};
  REQUIRE(deflateInit2(&stream, 9, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY) == Z_OK);
  stream.next_in = reinterpret_cast<Bytef*>(&zeros[0]);
  stream.avail_in = static_cast<uInt>(zeros.size());
  stream.next_out = reinterpret_cast<Bytef*>(&packed[0]);
  stream.avail_out = static_cast<uInt>(packed.size());
  REQUIRE(deflate(&stream, Z_FINISH) == Z_STREAM_END);
  packed.resize(stream.total_out);
  deflateEnd(&stream);
  return packed;
}

// HTTP/2 by hand: gRPC's own client would hold what it compresses, in this same process.
class CompressedCall {
 public:
  explicit CompressedCall(int port) : fd_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.sin_port = htons(static_cast<uint16_t>(port));
    REQUIRE(connect(fd_, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0);
  }
  ~CompressedCall() { close(fd_); }

  // Sends `message` to a path such as "/tessera.v1.Status/Get". All that the server says until it has ended the
  // call, its text among HTTP/2's other bytes.
  std::string Answer(const std::string& path, const std::string& message) {
    std::string headers;
    for (const auto& [key, value] : {std::pair<std::string, std::string>{":method", "POST"},
                                     {":scheme", "http"},
                                     {":path", path},
                                     {":authority", "here"},
                                     {"te", "trailers"},
                                     {"content-type", "application/grpc"},
                                     {"grpc-encoding", "gzip"}}) {
      headers += '\0' + Text(key) + Text(value);
    }
    // One byte that says that it is compressed, and its size.
    std::string data(5, '\1');
    for (int i = 0; i < 4; ++i) data[4 - i] = static_cast<char>(message.size() >> (8 * i));
    data += message;
    REQUIRE(data.size() <= kWindowBytes);
    Send("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + Frame(4, 0, 0, "") +
         Frame(1, kEndHeaders, 1, headers));
    for (size_t begin = 0; begin < data.size(); begin += kFrameBytes) {
      const bool is_last = begin + kFrameBytes >= data.size();
      Send(Frame(0, is_last ? kEndStream : 0, 1, data.substr(begin, kFrameBytes)));
    }
    return Hear();
  }

 private:
  // What a server takes before it has said that it takes more.
  static constexpr size_t kWindowBytes = 65535;
  static constexpr size_t kFrameBytes = 16384;
  static constexpr int kEndStream = 1;
  static constexpr int kEndHeaders = 4;
  static constexpr int kWaitMs = 20000;

  static std::string Text(const std::string& text) {
    REQUIRE(text.size() < 127);
    return static_cast<char>(text.size()) + text;
  }

  static std::string Frame(int type, int flags, int stream, const std::string& bytes) {
    std::string frame;
    for (int shift : {16, 8, 0}) frame.push_back(static_cast<char>(bytes.size() >> shift));
    frame +=
        {static_cast<char>(type), static_cast<char>(flags), 0, 0, 0, static_cast<char>(stream)};
    return frame + bytes;
  }

  void Send(const std::string& bytes) {
    // A server that has ended the call may have closed.
    (void)send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
  }

  std::string Hear() {
    std::string heard;
    size_t at = 0;
    char buffer[4096];
    while (true) {
      pollfd waiting{fd_, POLLIN, 0};
      if (poll(&waiting, 1, kWaitMs) != 1) return heard;
      const ssize_t count = recv(fd_, buffer, sizeof(buffer), 0);
      if (count <= 0) return heard;
      heard.append(buffer, static_cast<size_t>(count));
      for (; heard.size() >= at + 9;) {
        const auto byte = [&](size_t i) { return static_cast<unsigned char>(heard[at + i]); };
        const size_t end = at + 9 + (size_t{byte(0)} << 16 | size_t{byte(1)} << 8 | byte(2));
        if (heard.size() < end) break;
        // The stream's end, by trailers or by a reset.
        if (byte(8) == 1 && ((byte(3) == 1 && (byte(4) & kEndStream) != 0) || byte(3) == 3)) {
          return heard;
        }
        at = end;
      }
    }
  }

  const int fd_;
};

// The process holds hardly more at any moment of such a call, and the caller hears why it is refused.
inline void CheckThatNothingIsUnpacked(int port, const std::string& path) {
  INFO(path);
  const std::string message = CompressedMessage();
  // What was the peak so far is no peak any more.
  std::FILE* const refs = std::fopen("/proc/self/clear_refs", "w");
  REQUIRE(refs != nullptr);
  std::fputs("5", refs);
  std::fclose(refs);
  const ProcessMemory before = ReadProcessMemory();
  const std::string answer = CompressedCall(port).Answer(path, message);
  const ProcessMemory after = ReadProcessMemory();
  CHECK(answer.find("Compression algorithm 'gzip' is disabled") != std::string::npos);
  CHECK(static_cast<int64_t>(after.peak_rss_bytes) - static_cast<int64_t>(before.rss_bytes) <
        kCallBytesMax);
}

}  // namespace tessera

#endif  // TESSERA_TESTS_COMMON_RPC_COMPRESSED_CALL_H_
