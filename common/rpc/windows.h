// How much a peer may have sent before anybody has read it: HTTP/2's windows, and what they cost a process whose memory
// is limited.
//
// A connection carries at most a window for each round trip. gRPC 1.51 measures the product of rate and delay and
// follows it, by one of two rules: one that ends at 32 MiB, and one that has no end (its "memory_pressure_controller",
// which later versions have always), and it can leave windows as they are. Which it is, is one decision for a process.
#ifndef TESSERA_COMMON_RPC_WINDOWS_H_
#define TESSERA_COMMON_RPC_WINDOWS_H_

#include <cstdint>

#include "absl/strings/string_view.h"

namespace tessera {

enum class Windows {
  // The rest of the message that is being read and 64 KiB more: a chunk for each round trip, whatever the link carries.
  kNarrow,
  // The product of rate and delay, from 4 MiB to kBoundedWindowBytes.
  kBounded,
  // The product of rate and delay, from 16 MiB on: as much as a peer has to send.
  kOpen,
};

// What a connection has in flight, at most, while its windows are narrow.
constexpr int64_t kNarrowWindowBytes = int64_t{1} << 20;
constexpr int64_t kBoundedWindowBytes = int64_t{32} << 20;

// "narrow", "follow_network_to_32MiB", "follow_network".
absl::string_view NameOf(Windows windows);

// The windows of this process's connections: open ones until it is told otherwise, which must be before the first
// connection, as gRPC asks once.
void SetWindows(Windows windows);
Windows CurrentWindows();

// What windows take of a limited memory: nobody may have read what they let come.
class WindowPlan {
 public:
  // `connections` more, on each of which messages of `bytes` in all come at a time.
  void Add(int64_t connections, int64_t bytes);
  // The widest that `room` bytes are enough for, and whether they are enough for much more.
  void Choose(int64_t room);

  Windows kind() const { return kind_; }
  // Whether open windows leave as much room again for what has been read and freed, and for pieces as large as without
  // a limit: nothing need then be spared, and nothing given back to the system message by message.
  bool keeps_freed() const { return keeps_freed_; }
  // The bytes of the windows that were chosen, beyond LimitedConnectionBytes (transport.h); narrow ones have none. What
  // is kept is not in them: it is what the limit has beyond all that is planned.
  int64_t bytes() const { return BytesOf(kind_); }
  int64_t BytesOf(Windows kind) const;

 private:
  Windows kind_ = Windows::kNarrow;
  bool keeps_freed_ = false;
  int64_t connections_ = 0;
  int64_t bounded_ = 0;
  int64_t open_ = 0;
};

}  // namespace tessera

#endif  // TESSERA_COMMON_RPC_WINDOWS_H_
