#include "common/rpc/frame_limits.h"

#include <algorithm>

namespace tessera {
namespace {

// RFC 9113, section 6.
enum FrameType : uint8_t {
  kData = 0,
  kHeaders = 1,
  kRstStream = 3,
  kSettings = 4,
  kPing = 6,
  kGoAway = 7,
  kWindowUpdate = 8,
  kContinuation = 9,
};
constexpr uint8_t kEndStream = 1;  // DATA, HEADERS
constexpr uint8_t kAck = 1;        // SETTINGS, PING
constexpr uint8_t kEndHeaders = 4;
constexpr int kHeadBytes = 9;
constexpr int kErrorBytes = 4;
// "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"; gRPC refuses who says something else.
constexpr int64_t kPrefaceBytes = 24;
constexpr int64_t kSmallBytes = 1024;

uint32_t Number(const uint8_t* bytes) {
  return uint32_t{bytes[0]} << 24 | uint32_t{bytes[1]} << 16 | uint32_t{bytes[2]} << 8 | bytes[3];
}

}  // namespace

ConnectionFrames::ConnectionFrames(const FrameLimits& limits) : limits_(limits) {
  from_client_.skip = kPrefaceBytes;
}

template <typename OnFrame>
const char* ConnectionFrames::Walk(Place* place, absl::Span<const uint8_t> bytes,
                                   OnFrame on_frame) {
  const uint8_t* at = bytes.data();
  const uint8_t* const end = at + bytes.size();
  while (at < end) {
    if (place->skip > 0) {
      // Contents of frames are passed over, whatever they are: nine bytes of head are enough to count.
      const int64_t skipped = std::min<int64_t>(place->skip, end - at);
      place->skip -= skipped;
      at += skipped;
      continue;
    }
    place->head[place->have++] = *at++;
    if (place->have < kHeadBytes) continue;
    Frame frame;
    // The length has 24 bits, in front of the type.
    frame.length = Number(place->head) >> 8;
    frame.type = place->head[3];
    frame.flags = place->head[4];
    frame.stream = Number(place->head + 5) & 0x7fffffff;
    // RST_STREAM's error is read as well, as an answer that is complete ends with NO_ERROR.
    const int error_bytes =
        frame.type == kRstStream && frame.length >= kErrorBytes ? kErrorBytes : 0;
    if (place->have < kHeadBytes + error_bytes) continue;
    if (error_bytes > 0) frame.error = Number(place->head + kHeadBytes);
    place->skip = frame.length - error_bytes;
    place->have = 0;
    if (const char* why = on_frame(frame); why != nullptr) return why;
  }
  return nullptr;
}

const char* ConnectionFrames::Received(absl::Span<const uint8_t> bytes, absl::Time now) {
  Refill(now);
  if (!has_acknowledged_) bytes_unacknowledged_ += static_cast<int64_t>(bytes.size());
  const char* why =
      Walk(&from_client_, bytes, [this](const Frame& frame) { return OnClientFrame(frame); });
  if (why == nullptr && !has_acknowledged_ &&
      bytes_unacknowledged_ > limits_.bytes_unacknowledged_max) {
    why = "too many bytes of a client that has not acknowledged SETTINGS";
  }
  return why;
}

const char* ConnectionFrames::Sent(absl::Span<const uint8_t> bytes, absl::Time now) {
  Refill(now);
  return Walk(&from_server_, bytes, [this](const Frame& frame) { return OnServerFrame(frame); });
}

const char* ConnectionFrames::OnClientFrame(const Frame& frame) {
  // Every frame costs its head and a wakeup, however little it carries: small ones have a pace of their own.
  if (frame.length < kSmallBytes && !Spend(&small_)) return "too many small frames";
  bool is_control = false;
  switch (frame.type) {
    case kData:
      if (frame.flags & kEndStream) {
        EndStream(frame.stream, true);
      } else {
        // DATA without bytes and without an end does nothing but cost.
        is_control = frame.length == 0;
      }
      break;
    case kHeaders:
      return OnHeaders(frame);
    case kContinuation:
      // CONTINUATION frames go on with a block of headers that gRPC must keep until it ends (CVE-2024-27316 and
      // others).
      block_bytes_ += frame.length;
      if (++continuations_ > limits_.continuations_max) return "too many CONTINUATION frames";
      if (block_bytes_ > limits_.header_block_bytes_max) return "too many bytes of headers";
      break;
    case kRstStream:
      RemoveStream(frame.stream);
      // A call that is reset at once costs the server its work: rapid reset, CVE-2023-44487.
      if (!Spend(&resets_)) return "too many calls are reset";
      break;
    case kSettings:
      if (frame.flags & kAck) {
        has_acknowledged_ = true;
      } else {
        is_control = true;
      }
      break;
    case kPing:
      is_control = (frame.flags & kAck) == 0;
      break;
    case kWindowUpdate:
    case kGoAway:
      break;
    default:  // PRIORITY, PUSH_PROMISE, and those that no one knows.
      is_control = true;
  }
  if (is_control && !Spend(&control_)) return "too many PING, SETTINGS or empty frames";
  return nullptr;
}

const char* ConnectionFrames::OnHeaders(const Frame& frame) {
  block_bytes_ = frame.length;
  continuations_ = 0;
  if (block_bytes_ > limits_.header_block_bytes_max) return "too many bytes of headers";
  // Other HEADERS than a new stream's are trailers.
  if (frame.stream > last_stream_) {
    last_stream_ = frame.stream;
    streams_.push_back({frame.stream, false, false});
    if (streams() > limits_.streams_max) return "too many calls at once";
    if (++streams_begun_ > limits_.streams_unacknowledged_max && !has_acknowledged_) {
      return "too many calls of a client that has not acknowledged SETTINGS";
    }
  }
  if (frame.flags & kEndStream) EndStream(frame.stream, true);
  return nullptr;
}

const char* ConnectionFrames::OnServerFrame(const Frame& frame) {
  if ((frame.type == kData || frame.type == kHeaders) && (frame.flags & kEndStream)) {
    EndStream(frame.stream, false);
  } else if (frame.type == kRstStream) {
    RemoveStream(frame.stream);
    // NO_ERROR says that the answer is complete though the question is not.
    if (frame.error != 0 && !Spend(&resets_)) return "too many calls are reset for errors";
  }
  return nullptr;
}

void ConnectionFrames::EndStream(uint32_t id, bool by_client) {
  for (Stream& stream : streams_) {
    if (stream.id != id) continue;
    (by_client ? stream.client_has_ended : stream.server_has_ended) = true;
    if (stream.client_has_ended && stream.server_has_ended) RemoveStream(id);
    return;
  }
}

void ConnectionFrames::RemoveStream(uint32_t id) {
  for (Stream& stream : streams_) {
    if (stream.id != id) continue;
    // The order of streams does not matter, so the last one takes the place.
    stream = streams_.back();
    streams_.pop_back();
    return;
  }
}

void ConnectionFrames::Refill(absl::Time now) {
  const double seconds = absl::ToDoubleSeconds(now - refilled_);
  refilled_ = now;
  const auto refill = [seconds](Budget* budget, const FramePace& pace) {
    // A budget fills with time up to what may come at once, as a token bucket does.
    budget->left = std::min(pace.at_once, budget->left + seconds * pace.per_second);
  };
  refill(&resets_, limits_.resets);
  refill(&control_, limits_.control);
  refill(&small_, limits_.small);
}

bool ConnectionFrames::Spend(Budget* budget) {
  budget->left -= 1;
  return budget->left >= 0;
}

}  // namespace tessera
