#include "common/rpc/striping/striping.h"

#include <algorithm>
#include <random>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/rpc/windows.h"

namespace tessera {
namespace {

constexpr size_t kCallDigits = 32;

}  // namespace

// Exchanges of 64 MiB over 100 and 200 ms were faster with 8 MiB each than by a plain socket (docs/design/transfer.md).
int StripesFor(int64_t bytes, int most) {
  return static_cast<int>(std::clamp<int64_t>(bytes / kStripeBytes, 1, std::max(most, 1)));
}

std::string NewStripedCall() {
  std::random_device device;
  std::string call;
  // Eight digits a number, as random_device draws 32 bits at a time.
  while (call.size() < kCallDigits) {
    absl::StrAppend(&call, absl::Hex(device() & 0xffffffffu, absl::kZeroPad8));
  }
  return call;
}

std::string ToMetadata(const StripeName& name) {
  return absl::StrCat(name.call, " ", name.number, " ", name.count);
}

absl::StatusOr<StripeName> ParseStripeName(absl::string_view text) {
  const std::vector<absl::string_view> parts = absl::StrSplit(text, ' ');
  StripeName name;
  const bool is_name = parts.size() == 3 && parts[0].size() == kCallDigits &&
                       std::all_of(parts[0].begin(), parts[0].end(),
                                   [](char c) { return absl::ascii_isxdigit(c); }) &&
                       absl::SimpleAtoi(parts[1], &name.number) &&
                       absl::SimpleAtoi(parts[2], &name.count) && name.count >= 2 &&
                       name.count <= kStripesMax && name.number >= 0 && name.number < name.count;
  if (!is_name) {
    // What a stranger wrote is escaped and cut.
    return absl::InvalidArgumentError(absl::StrCat(
        kStripeKey, ": is \"", absl::CHexEscape(text.substr(0, 64)),
        "\", want 32 hexadecimal digits, a number and how many there are, 2 to ", kStripesMax));
  }
  name.call = std::string(parts[0]);
  return name;
}

}  // namespace tessera
