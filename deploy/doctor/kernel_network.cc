#include "deploy/doctor/kernel_network.h"

#include <algorithm>
#include <fstream>
#include <iterator>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/rpc/striping/striping.h"
#include "deploy/cli/counted.h"

namespace tessera {
namespace {

// What a link of a gigabit carries.
constexpr double kWantedRate = 125e6;
// A way on which a round trip more in each exchange is worth a word.
constexpr absl::Duration kLongWay = absl::Milliseconds(10);
// What a connection sends before the first answer: ten segments of an Ethernet (RFC 6928).
constexpr int64_t kFirstBytes = 10 * 1448;
// Three numbers in tcp_wmem and tcp_rmem: the least, the first, the most.
constexpr size_t kBufferNumbers = 3;

std::vector<int64_t> NumbersOf(const std::string& path) {
  std::ifstream file(path);
  return {std::istream_iterator<int64_t>(file), {}};
}

std::optional<int64_t> BufferMax(const std::string& path) {
  const std::vector<int64_t> numbers = NumbersOf(path);
  if (numbers.size() != kBufferNumbers) return std::nullopt;
  return numbers.back();
}

// The least power of two that keeps a link of a gigabit busy with half of it, as the kernel counts its own books, too.
int64_t WantedBuffer(absl::Duration round_trip) {
  const double in_flight = kWantedRate * absl::ToDoubleSeconds(round_trip);
  int64_t wanted = 1 << 20;
  while (static_cast<double>(wanted) < 2 * in_flight) wanted *= 2;
  return wanted;
}

// Round trips in which so many bytes are there, when each carries twice what the last one did.
int SlowRoundTrips(int64_t bytes) {
  int round_trips = 0;
  int64_t window = kFirstBytes;
  for (int64_t sent = 0; sent < bytes; sent += window, window *= 2) ++round_trips;
  return round_trips;
}

}  // namespace

KernelNetwork ReadKernelNetwork(const std::string& folder) {
  KernelNetwork kernel;
  kernel.send_buffer_max = BufferMax(absl::StrCat(folder, "/tcp_wmem"));
  kernel.receive_buffer_max = BufferMax(absl::StrCat(folder, "/tcp_rmem"));
  const std::vector<int64_t> slow = NumbersOf(absl::StrCat(folder, "/tcp_slow_start_after_idle"));
  if (slow.size() == 1) kernel.slow_start_after_idle = slow[0] != 0;
  return kernel;
}

Findings CheckKernelNetwork(const KernelNetwork& kernel, const MeasuredDelay& delay,
                            int64_t exchanged_bytes, int connections_max) {
  Findings findings;
  const int connections = StripesFor(exchanged_bytes, connections_max);
  const double seconds = absl::ToDoubleSeconds(delay.round_trip);
  const std::string way = absl::StrFormat("%s is %.0f ms away: ", delay.address, seconds * 1e3);
  const auto buffers = [&](absl::string_view which, const char* key, std::optional<int64_t> most,
                           int first) {
    if (!most || static_cast<double>(*most * connections) >= kWantedRate * seconds) return;
    findings.push_back(
        {Finding::Kind::kNote,
         absl::StrCat(way,
                      connections == 1
                          ? "a connection carries"
                          : absl::StrCat("a call's ", connections, " connections carry"),
                      " at most ", Bytes(static_cast<double>(*most * connections) / seconds),
                      " a second there, as this machine's ", which, " buffers end at ",
                      Bytes(static_cast<double>(*most)), " (net.ipv4.", key, ")"),
         absl::StrFormat("where the network carries more, as root on all machines: sysctl -w "
                         "net.ipv4.%s=\"4096 %d %d\"",
                         key, first, WantedBuffer(delay.round_trip))});
  };
  buffers("send", "tcp_wmem", kernel.send_buffer_max, 16384);
  buffers("receive", "tcp_rmem", kernel.receive_buffer_max, 131072);
  const int round_trips = SlowRoundTrips(exchanged_bytes / connections);
  if (kernel.slow_start_after_idle.value_or(false) && delay.round_trip >= kLongWay &&
      round_trips > 1) {
    findings.push_back(
        {Finding::Kind::kNote,
         absl::StrCat(way, "a connection that was idle begins slowly anew, so that the ",
                      Bytes(static_cast<double>(exchanged_bytes)), " of an exchange take up to ",
                      round_trips, " round trips (net.ipv4.tcp_slow_start_after_idle)"),
         "where steps take longer than a round trip, as root on all machines: sysctl -w "
         "net.ipv4.tcp_slow_start_after_idle=0"});
  }
  return findings;
}

}  // namespace tessera
