#include "common/rpc/windows.h"

#include <algorithm>

namespace tessera {
namespace {

Windows current = Windows::kFollowing;
// As many as a process has room for without a limit.
int current_stripes = kStripesMax;
// What a connection reads and writes at a time without a limit, both ways: 4 MiB are read, two chunks and the kernel's
// share are written, and malloc holds its arenas' ends.
constexpr int64_t kFreeConnectionBytes = int64_t{32} << 20;

// What the allocator adds to gRPC's pieces.
int64_t WithAllocator(int64_t bytes) { return bytes * 9 / 8; }

}  // namespace

absl::string_view NameOf(Windows windows) {
  return windows == Windows::kNarrow ? "narrow" : "follow_network";
}

void SetWindows(Windows windows) { current = windows; }

Windows CurrentWindows() { return current; }

void SetStripes(int stripes) { current_stripes = stripes; }

int CurrentStripes() { return current_stripes; }

void WindowPlan::Add(int64_t connections, int64_t bytes) {
  connections_ += connections;
  following_bytes_ += connections * WithAllocator(std::min(bytes, kWindowBytesMax));
  message_bytes_ += connections * WithAllocator(bytes);
}

void WindowPlan::Choose(int64_t room) {
  kind_ = following_bytes_ == 0 || following_bytes_ > room ? Windows::kNarrow : Windows::kFollowing;
  // What is freed lies between what is in use: twice what comes at a time holds it with room to spare.
  const int64_t left = room - 3 * message_bytes_;
  const int64_t connection_bytes = connections_ * kFreeConnectionBytes;
  keeps_freed_ = kind_ == Windows::kFollowing && left >= connection_bytes;
  stripes_ =
      keeps_freed_ ? static_cast<int>(std::min<int64_t>(left / connection_bytes, kStripesMax)) : 1;
}

int64_t WindowPlan::bytes() const {
  // Where a call has several connections, their windows hold no more than what comes, for which keeps_freed has room.
  return kind_ == Windows::kNarrow ? 0 : following_bytes_;
}

}  // namespace tessera
