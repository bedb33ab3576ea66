#include "common/keyset/named_keys.h"

namespace tessera {
namespace {

// One entry for each alternative of NamedKeys, in their order.
constexpr const char* kWords[] = {"dense", "a subnet's",   "sparse",           "some layers'",
                                  "rows",  "a fragment's", "absent or unknown"};
static_assert(std::variant_size_v<NamedKeys> == sizeof(kWords) / sizeof(kWords[0]),
              "each key set has its word");

}  // namespace

const char* KeysWord(const NamedKeys& keys) { return kWords[keys.index()]; }

}  // namespace tessera
