// Striping: a call of the data plane whose messages go on several connections in turn, as one connection carries no
// more than a window for each round trip (windows.h), and over a long way often less. GridFTP's parallel streams are
// the same idea (Allcock et al., Data management and transfer in high-performance computational grid environments).
//
// The call itself is on the first connection: Pull, Push or FetchSubnet. On each of the others the caller opens a call
// to Stripe. All of them name the call and their own number in their metadata (kStripeKey). Message m, counted from 0,
// is on connection m modulo their number, and the messages have ended where the connection whose turn it is has none.
// Neither side needs numbers of messages, nor memory for those that come too early: a connection that is not read
// stands still. A push's reply, a pull's request and the call's status are on the first connection.
#ifndef TESSERA_COMMON_RPC_STRIPING_STRIPING_H_
#define TESSERA_COMMON_RPC_STRIPING_STRIPING_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace tessera {

// A call is striped over so many connections that each of them has as many bytes or more.
constexpr int64_t kStripeBytes = int64_t{8} << 20;

// The connections for a call of so many bytes, where it may have `most`.
int StripesFor(int64_t bytes, int most);

// The metadata that name a connection's part in a striped call.
constexpr char kStripeKey[] = "tessera-stripe";

struct StripeName {
  // The call: 32 random hexadecimal digits, which only its caller knows.
  std::string call;
  // This connection, from 0, below how many there are: 2 to kStripesMax.
  int number = 0;
  int count = 0;
};

// A call that has no name yet, by the system's random numbers.
std::string NewStripedCall();
// "0123456789abcdef0123456789abcdef 1 4": the second of four connections.
std::string ToMetadata(const StripeName& name);
// kInvalidArgument: the text names none
absl::StatusOr<StripeName> ParseStripeName(absl::string_view text);

}  // namespace tessera

#endif  // TESSERA_COMMON_RPC_STRIPING_STRIPING_H_
