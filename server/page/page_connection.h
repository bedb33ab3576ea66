// One client of the page: its socket, the TLS on it, the request that it makes and what it has yet to read.
//
//   handshake  TLS, where the job has it
//   request    until it is whole
//   reply      until the client has read it, or, of a stream, for as long as it reads
//   goodbye    our side is closed; what the client still sends is read and dropped, as a reply would be lost where a
//              socket is closed over unread bytes
//   over
//
// Nothing here waits. Each stage has a time by which it must be over, and a client that reads nothing of what lies
// ready for it is ended, too.
#ifndef TESSERA_SERVER_PAGE_PAGE_CONNECTION_H_
#define TESSERA_SERVER_PAGE_PAGE_CONNECTION_H_

#include <openssl/types.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "server/page/http_answer.h"
#include "server/page/http_request.h"

namespace tessera {

// How long a client may take for the handshake and its request, for reading some of what lies ready, and for closing.
constexpr absl::Duration kPageRequestMax = absl::Seconds(5);
constexpr absl::Duration kPageStallMax = absl::Seconds(10);
constexpr absl::Duration kPageGoodbyeMax = absl::Seconds(1);
// The most bytes that are read of a client that has its reply.
constexpr size_t kPageGoodbyeBytesMax = 4 << 20;
// What the system keeps for a client that does not read.
constexpr int kPageSendBufferBytes = 64 << 10;

class PageConnection {
 public:
  // Owns `fd`, which does not block. `tls`: nullptr for plain HTTP.
  PageConnection(int fd, std::string host, SSL_CTX* tls, absl::Time now);
  ~PageConnection();
  PageConnection(const PageConnection&) = delete;
  PageConnection& operator=(const PageConnection&) = delete;

  // Goes as far as it can without waiting.
  void Drive(HttpSite* site, absl::Time now);
  // A message for all streams of the page: of those that a client has no room for the newest stays.
  void Offer(const std::shared_ptr<const std::string>& message);
  // Ends what is over its time.
  void Expire(absl::Time now);
  void End() { stage_ = Stage::kOver; }

  int fd() const { return fd_; }
  const std::string& host() const { return host_; }
  // What to wait for: POLLIN, POLLOUT.
  short wanted() const;
  bool is_over() const { return stage_ == Stage::kOver; }
  // It has yet to say what it wants.
  bool is_silent() const { return stage_ == Stage::kHandshake || stage_ == Stage::kRequest; }
  bool views_page() const {
    return stage_ == Stage::kReply && stream_ == HttpAnswer::Stream::kPage;
  }
  bool follows_events() const {
    return stage_ == Stage::kReply && stream_ == HttpAnswer::Stream::kEvents;
  }
  absl::Time since() const { return since_; }

 private:
  enum class Stage { kHandshake, kRequest, kReply, kGoodbye, kOver };

  void Shake();
  void ReadRequest(HttpSite* site, absl::Time now);
  void Reply(const HttpAnswer& answer, bool is_head, absl::Time now);
  void Write(HttpSite* site, absl::Time now);
  void ReadAndDrop(absl::Time now);
  // Bytes that were read or written; 0: not now. On an end or an error the connection is over.
  size_t Read(char* to, size_t room);
  size_t WriteSome(absl::string_view bytes);
  size_t TlsResult(int result);

  const int fd_;
  const std::string host_;
  SSL* ssl_ = nullptr;
  const absl::Time since_;
  Stage stage_;
  absl::Time deadline_;     // of the stage; of a reply: of the next byte that the client takes
  bool wants_read_ = true;  // what TLS waits for
  bool wants_write_ = false;
  HttpReader reader_;
  HttpAnswer::Stream stream_ = HttpAnswer::Stream::kNone;
  uint64_t after_ = 0;
  std::shared_ptr<const std::string> sending_;  // nullptr: nothing
  size_t sent_ = 0;
  std::shared_ptr<const std::string> next_;
  size_t dropped_ = 0;
};

}  // namespace tessera

#endif  // TESSERA_SERVER_PAGE_PAGE_CONNECTION_H_
