// Key sets as messages carry them: each alternative of NamedKeys is written, parsed and checked here.
#ifndef TESSERA_COMMON_RPC_KEY_SET_MESSAGE_H_
#define TESSERA_COMMON_RPC_KEY_SET_MESSAGE_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "common/keyset/key_set.h"
#include "common/keyset/named_keys.h"
#include "proto/parameter_server.pb.h"

namespace tessera {

// Sites of a round that a request may name: their shares fit well into a message's head.
constexpr uint32_t kSitesMax = 4096;

v1::KeySet ToMessage(const NamedKeys& keys);
// What a message names, whether or not the job exchanges such keys. Of a core whose keys follow in the payload `keys`
// is set and empty: their bytes are the message's keys_bytes.
//   kInvalidArgument  the numbers are none that the key set allows
absl::StatusOr<NamedKeys> KeysOf(const v1::KeySet& message);

// What the answer to a read of `asked` says of its entries, whose name is `own` (UnknownKeys: they are not to be had).
// Where a subnet was asked for that is the caller's place, or that exchanges are of the whole model by now; where
// a core was, that it is not known. Returns whether the entries are those that were asked for.
bool SetAnswered(const NamedKeys& asked, const NamedKeys& own, v1::ChunkHeader* header);

v1::SubnetKeys ToMessage(const SubnetPlace& place);
v1::SparseKeys ToMessage(const CoreName& core);
v1::LayerKeys ToMessage(const ParameterRange& layers);
v1::RowKeys ToMessage(const RowRange& rows);

// kInvalidArgument: no place that common/keyset/subnet.h allows.
absl::StatusOr<SubnetPlace> PlaceOf(const v1::SubnetKeys& message);
// kInvalidArgument: the signature has not 16 bytes.
absl::StatusOr<CoreName> CoreOf(const v1::SparseKeys& message);

// `keys`, which are of layers, a fragment or all entries, in a push or a pull.
void SetKeys(const KeySet& keys, v1::KeySet* message);
// What a fetch of `keys`, which are a subnet's, asks for. The caller and the plan are left as they are.
void SetKeys(const KeySet& keys, v1::SubnetRequest* request);
// The place that a fetch asks for. kInvalidArgument: as PlaceOf, or more sites than kSitesMax.
absl::StatusOr<SubnetPlace> AskedPlace(const v1::SubnetRequest& request);

}  // namespace tessera

#endif  // TESSERA_COMMON_RPC_KEY_SET_MESSAGE_H_
