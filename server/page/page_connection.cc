#include "server/page/page_connection.h"

#include <openssl/err.h>
#include <openssl/ssl.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "common/base/check.h"

namespace tessera {
namespace {

constexpr size_t kReadBytes = 16 << 10;
// Reads of one client before the others have their turn.
constexpr int kReadsPerTurn = 8;

}  // namespace

PageConnection::PageConnection(int fd, std::string host, SSL_CTX* tls, absl::Time now)
    : fd_(fd),
      host_(std::move(host)),
      since_(now),
      stage_(tls != nullptr ? Stage::kHandshake : Stage::kRequest),
      deadline_(now + kPageRequestMax) {
  setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &kPageSendBufferBytes, sizeof(kPageSendBufferBytes));
  if (tls == nullptr) return;
  ssl_ = SSL_new(tls);
  TESSERA_CHECK(ssl_ != nullptr && SSL_set_fd(ssl_, fd) == 1);
  SSL_set_accept_state(ssl_);
}

PageConnection::~PageConnection() {
  if (ssl_ != nullptr) SSL_free(ssl_);
  close(fd_);
}

short PageConnection::wanted() const {
  short wanted = 0;
  if (ssl_ != nullptr && stage_ != Stage::kGoodbye) {
    if (wants_read_) wanted |= POLLIN;
    if (wants_write_) wanted |= POLLOUT;
  }
  switch (stage_) {
    case Stage::kHandshake:
      break;
    case Stage::kRequest:
    case Stage::kGoodbye:
      wanted |= POLLIN;
      break;
    case Stage::kReply:
      // The client of a stream that closes is noticed while nothing is sent to it.
      if (stream_ != HttpAnswer::Stream::kNone) wanted |= POLLIN;
      if (sending_ != nullptr && !wants_read_) wanted |= POLLOUT;
      break;
    case Stage::kOver:
      break;
  }
  return wanted;
}

void PageConnection::Drive(HttpSite* site, absl::Time now) {
  if (stage_ == Stage::kHandshake) Shake();
  if (stage_ == Stage::kRequest) ReadRequest(site, now);
  if (stage_ == Stage::kReply) Write(site, now);
  if (stage_ == Stage::kGoodbye) ReadAndDrop(now);
}

void PageConnection::Shake() {
  if (TlsResult(SSL_accept(ssl_)) > 0) stage_ = Stage::kRequest;
}

void PageConnection::ReadRequest(HttpSite* site, absl::Time now) {
  char bytes[kReadBytes];
  for (int i = 0; i < kReadsPerTurn && stage_ == Stage::kRequest; ++i) {
    const size_t size = Read(bytes, sizeof(bytes));
    if (size == 0) return;
    if (!reader_.Take({bytes, size})) continue;
    if (reader_.refusal() != 0) return Reply(site->Refuse(reader_.refusal()), false, now);
    return Reply(site->Answer(reader_.request()), reader_.request().method == "HEAD", now);
  }
}

void PageConnection::Reply(const HttpAnswer& answer, bool is_head, absl::Time now) {
  stage_ = Stage::kReply;
  stream_ = is_head ? HttpAnswer::Stream::kNone : answer.stream;
  after_ = answer.after;
  sending_ = std::make_shared<const std::string>(HttpText(answer, is_head));
  sent_ = 0;
  deadline_ = now + kPageStallMax;
}

void PageConnection::Offer(const std::shared_ptr<const std::string>& message) {
  if (views_page()) next_ = message;
}

void PageConnection::Write(HttpSite* site, absl::Time now) {
  // What a client sends behind its request is nobody's, but its end is the stream's end.
  char byte;
  while (stage_ == Stage::kReply && stream_ != HttpAnswer::Stream::kNone && Read(&byte, 1) > 0) {
    if (++dropped_ > kReadBytes) return End();
  }
  while (stage_ == Stage::kReply) {
    if (sending_ == nullptr && follows_events()) {
      std::string events = site->Events(&after_);
      if (!events.empty()) next_ = std::make_shared<const std::string>(std::move(events));
    }
    if (sending_ == nullptr) {
      if (next_ == nullptr) return;
      sending_ = std::exchange(next_, nullptr);
      sent_ = 0;
      deadline_ = now + kPageStallMax;
    }
    const size_t written = WriteSome(absl::string_view(*sending_).substr(sent_));
    if (written == 0) return;
    sent_ += written;
    deadline_ = now + kPageStallMax;
    if (sent_ < sending_->size()) continue;
    sending_ = nullptr;
    if (stream_ != HttpAnswer::Stream::kNone) continue;
    if (ssl_ != nullptr) SSL_shutdown(ssl_);
    ERR_clear_error();
    shutdown(fd_, SHUT_WR);
    stage_ = Stage::kGoodbye;
    deadline_ = now + kPageGoodbyeMax;
  }
}

void PageConnection::ReadAndDrop(absl::Time now) {
  char bytes[kReadBytes];
  for (int i = 0; i < kReadsPerTurn; ++i) {
    // The bytes are no longer decrypted, as nobody looks at them.
    const ssize_t size = recv(fd_, bytes, sizeof(bytes), MSG_DONTWAIT);
    if (size < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (size <= 0) return End();
    dropped_ += static_cast<size_t>(size);
    if (dropped_ > kPageGoodbyeBytesMax) return End();
  }
}

void PageConnection::Expire(absl::Time now) {
  // A stream for which nothing lies ready may last.
  const bool is_idle_stream =
      stage_ == Stage::kReply && stream_ != HttpAnswer::Stream::kNone && sending_ == nullptr;
  if (!is_idle_stream && now >= deadline_) End();
}

size_t PageConnection::TlsResult(int result) {
  wants_read_ = wants_write_ = false;
  if (result > 0) return static_cast<size_t>(result);
  const int error = SSL_get_error(ssl_, result);
  ERR_clear_error();
  if (error == SSL_ERROR_WANT_READ) {
    wants_read_ = true;
  } else if (error == SSL_ERROR_WANT_WRITE) {
    wants_write_ = true;
  } else {
    End();
  }
  return 0;
}

size_t PageConnection::Read(char* to, size_t room) {
  if (ssl_ != nullptr) {
    const size_t size = TlsResult(SSL_read(ssl_, to, static_cast<int>(room)));
    // A stream that waits for its client's end does not wait to write.
    if (stage_ == Stage::kReply) wants_read_ = false;
    return size;
  }
  const ssize_t size = recv(fd_, to, room, MSG_DONTWAIT);
  if (size > 0) return static_cast<size_t>(size);
  if (size == 0 || (errno != EAGAIN && errno != EINTR)) End();
  return 0;
}

size_t PageConnection::WriteSome(absl::string_view bytes) {
  if (ssl_ != nullptr) {
    return TlsResult(SSL_write(ssl_, bytes.data(), static_cast<int>(bytes.size())));
  }
  const ssize_t size = send(fd_, bytes.data(), bytes.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
  if (size > 0) return static_cast<size_t>(size);
  if (size < 0 && errno != EAGAIN && errno != EINTR) End();
  return 0;
}

}  // namespace tessera
