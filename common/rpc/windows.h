// How much a peer may have sent before anybody has read it: HTTP/2's windows, and what they cost a process whose memory
// is limited.
//
// A connection carries at most a window for each round trip. gRPC 1.51 can measure the product of rate and delay and
// follow it, up to 32 MiB, or leave windows as they are. Which it is, is one decision for a process.
#ifndef TESSERA_COMMON_RPC_WINDOWS_H_
#define TESSERA_COMMON_RPC_WINDOWS_H_

#include <cstdint>

#include "absl/strings/string_view.h"

namespace tessera {

enum class Windows {
  // The rest of the message that is being read and 64 KiB more: a chunk for each round trip, whatever the link carries.
  kNarrow,
  // Twice the product of rate and delay, from 4 MiB to kWindowBytesMax.
  kFollowing,
};

// What a connection has in flight, at most, while its windows are narrow, and while they follow the network.
constexpr int64_t kNarrowWindowBytes = int64_t{1} << 20;
constexpr int64_t kWindowBytesMax = int64_t{32} << 20;

// The most connections that one call may go on (common/rpc/striping/striping.h).
constexpr int kStripesMax = 8;

// "narrow", "follow_network".
absl::string_view NameOf(Windows windows);

// The windows of this process's connections: they follow the network until it is told otherwise, which must be before
// the first connection, as gRPC asks once.
void SetWindows(Windows windows);
Windows CurrentWindows();

// The connections that one call to or from this process may go on, 1 to kStripesMax: kStripesMax until it is told
// otherwise, which must be before the first connection.
void SetStripes(int stripes);
int CurrentStripes();

// What windows take of a limited memory: nobody may have read what they let come.
class WindowPlan {
 public:
  // `connections` more, on each of which messages of `bytes` in all come at a time.
  void Add(int64_t connections, int64_t bytes);
  // The widest that `room` bytes are enough for, and whether they are enough for much more.
  void Choose(int64_t room);

  Windows kind() const { return kind_; }
  // How many connections a call may go on in place of one: as many as keeps_freed has room for.
  int stripes() const { return stripes_; }
  // Whether there is room for all messages three times over, as they come and as they were read and freed, and for
  // pieces as large as without a limit: nothing need then be spared, and nothing given back to the system message by
  // message.
  bool keeps_freed() const { return keeps_freed_; }
  // The bytes of the windows that were chosen, beyond LimitedConnectionBytes (transport.h); narrow ones have none. What
  // is kept is not in them: it is what the limit has beyond all that is planned.
  int64_t bytes() const;
  // Of windows that follow the network, chosen or not. 0: nothing is planned, and they are narrow under any limit.
  int64_t following_bytes() const { return following_bytes_; }

 private:
  Windows kind_ = Windows::kNarrow;
  bool keeps_freed_ = false;
  int stripes_ = 1;
  int64_t connections_ = 0;
  int64_t following_bytes_ = 0;
  int64_t message_bytes_ = 0;
};

}  // namespace tessera

#endif  // TESSERA_COMMON_RPC_WINDOWS_H_
