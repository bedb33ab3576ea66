#include "common/rpc/windows.h"

#include <algorithm>

namespace tessera {
namespace {

Windows current = Windows::kOpen;
// What a connection reads and writes at a time without a limit, both ways: 4 MiB are read, two chunks and the kernel's
// share are written, and malloc holds its arenas' ends.
constexpr int64_t kFreeConnectionBytes = int64_t{32} << 20;

// What the allocator adds to gRPC's pieces.
int64_t WithAllocator(int64_t bytes) { return bytes * 9 / 8; }

}  // namespace

absl::string_view NameOf(Windows windows) {
  switch (windows) {
    case Windows::kNarrow:
      return "narrow";
    case Windows::kBounded:
      return "follow_network_to_32MiB";
    case Windows::kOpen:
      break;
  }
  return "follow_network";
}

void SetWindows(Windows windows) { current = windows; }

Windows CurrentWindows() { return current; }

void WindowPlan::Add(int64_t connections, int64_t bytes) {
  connections_ += connections;
  bounded_ += connections * WithAllocator(std::min(bytes, kBoundedWindowBytes));
  open_ += connections * WithAllocator(bytes);
}

void WindowPlan::Choose(int64_t room) {
  // A message that a bounded window holds whole costs the same with either rule, and then has the open one.
  kind_ = open_ == 0 || bounded_ > room ? Windows::kNarrow
          : open_ > room                ? Windows::kBounded
                                        : Windows::kOpen;
  // What is freed lies between what is in use: twice what comes at a time holds it with room to spare.
  keeps_freed_ =
      kind_ == Windows::kOpen && 2 * open_ + connections_ * kFreeConnectionBytes <= room - open_;
}

int64_t WindowPlan::BytesOf(Windows kind) const {
  switch (kind) {
    case Windows::kNarrow:
      return 0;
    case Windows::kBounded:
      return bounded_;
    case Windows::kOpen:
      break;
  }
  return open_;
}

}  // namespace tessera
