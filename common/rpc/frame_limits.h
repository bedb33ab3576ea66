// What the HTTP/2 frames of one connection may ask of the server behind it.
//
// gRPC 1.51 holds its clients to few bounds below its calls. It enforces the number of calls at once only on clients
// that have acknowledged its SETTINGS, reads header blocks of any length and number of CONTINUATION frames, and takes
// a call that is reset at once for the next one. A connection that goes beyond these limits, with room for what any
// library does, is closed before gRPC sees the frames.
//
// Both directions are followed, by the frames' heads alone: 9 bytes of each frame, and the error of an RST_STREAM.
#ifndef TESSERA_COMMON_RPC_FRAME_LIMITS_H_
#define TESSERA_COMMON_RPC_FRAME_LIMITS_H_

#include <cstdint>
#include <vector>

#include "absl/time/time.h"
#include "absl/types/span.h"
#include "common/rpc/transport.h"

namespace tessera {

// How often a kind of frame may come: `per_second` in the long run, and `at_once` of them behind a pause.
struct FramePace {
  double per_second = 0;
  double at_once = 0;
};

struct FrameLimits {
  // The calls that are open. gRPC itself ends a connection that has more than kStreamsPerConnectionMax once these are
  // acknowledged; the double of it is room for calls whose end is on its way to the client.
  int streams_max = 2 * kStreamsPerConnectionMax;
  // What a client may send before it has acknowledged the server's SETTINGS. The protocol's first window is 64 KiB,
  // and who has been told of a larger one has been told of the SETTINGS, too.
  int streams_unacknowledged_max = kStreamsPerConnectionMax + 8;
  int64_t bytes_unacknowledged_max = 256 << 10;
  // HEADERS with their CONTINUATION frames; gRPC takes 8 KiB of metadata.
  int64_t header_block_bytes_max = 64 << 10;
  int continuations_max = 8;
  // Calls that were reset, by the client, or by the server for the client's error.
  FramePace resets = {50, 100};
  // PING, SETTINGS, PRIORITY, frames of unknown types, and DATA that are empty and no end.
  FramePace control = {200, 1000};
  // Frames of less than a kibibyte, of all types.
  FramePace small = {100000, 200000};
};

// Follows one connection. One thread at a time.
class ConnectionFrames {
 public:
  explicit ConnectionFrames(const FrameLimits& limits = FrameLimits());

  // The bytes that the client sent, in the order of the connection. Why the connection is to be closed, in words for
  // the log; nullptr: it goes on.
  const char* Received(absl::Span<const uint8_t> bytes, absl::Time now);
  // The bytes that the server sent.
  const char* Sent(absl::Span<const uint8_t> bytes, absl::Time now);

  int streams() const { return static_cast<int>(streams_.size()); }

 private:
  struct Frame {
    int64_t length = 0;
    uint8_t type = 0;
    uint8_t flags = 0;
    uint32_t stream = 0;
    uint32_t error = 0;  // of RST_STREAM
  };
  // Where one direction stands.
  struct Place {
    int64_t skip = 0;  // bytes of a payload that are not looked at
    int have = 0;      // of head
    uint8_t head[13] = {};
  };
  struct Stream {
    uint32_t id = 0;
    bool client_has_ended = false;
    bool server_has_ended = false;
  };
  struct Budget {
    double left = 0;
  };

  // Calls on_frame for each frame whose head is complete, until it returns a reason.
  template <typename OnFrame>
  const char* Walk(Place* place, absl::Span<const uint8_t> bytes, OnFrame on_frame);
  const char* OnClientFrame(const Frame& frame);
  const char* OnServerFrame(const Frame& frame);
  const char* OnHeaders(const Frame& frame);
  void EndStream(uint32_t id, bool by_client);
  void RemoveStream(uint32_t id);
  void Refill(absl::Time now);
  static bool Spend(Budget* budget);

  const FrameLimits limits_;
  Place from_client_;
  Place from_server_;
  std::vector<Stream> streams_;
  uint32_t last_stream_ = 0;
  int64_t streams_begun_ = 0;
  bool has_acknowledged_ = false;
  int64_t bytes_unacknowledged_ = 0;
  int64_t block_bytes_ = 0;
  int continuations_ = 0;
  absl::Time refilled_ = absl::InfinitePast();
  Budget resets_;
  Budget control_;
  Budget small_;
};

}  // namespace tessera

#endif  // TESSERA_COMMON_RPC_FRAME_LIMITS_H_
