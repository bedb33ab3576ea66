// Which of a server's entries a push, a pull or an answer is about, as both ends name it. What a name stands for both
// ends derive, so that no index is sent. A message's form of it: common/rpc/key_set_message.h.
#ifndef TESSERA_COMMON_KEYSET_NAMED_KEYS_H_
#define TESSERA_COMMON_KEYSET_NAMED_KEYS_H_

#include <optional>
#include <string>
#include <variant>

#include "common/keyset/rows.h"
#include "common/keyset/sparse_keys.h"
#include "common/keyset/subnet.h"
#include "common/layout/fragment.h"
#include "common/layout/layer_cut.h"

namespace tessera {

// All that the server owns.
struct AllEntries {};

// The entries of this core and of the caller's explorer. `keys` are the core's, in the form that
// common/keyset/entry_keys.h numbers, where they came with the name.
struct NamedCore {
  CoreName name;
  int key_form = 0;
  std::optional<std::string> keys;
};

// A message that names no key set, or one that this program does not know.
struct UnknownKeys {};

// A subnet is named by its site's place in a round, layers by the range of their parameters.
using NamedKeys = std::variant<AllEntries, SubnetPlace, NamedCore, ParameterRange, RowRange,
                               Fragment, UnknownKeys>;

// "dense", "a subnet's": the kind of key set in the words of messages.
const char* KeysWord(const NamedKeys& keys);

}  // namespace tessera

#endif  // TESSERA_COMMON_KEYSET_NAMED_KEYS_H_
