// Numbers of things, for people.
#ifndef TESSERA_DEPLOY_CLI_COUNTED_H_
#define TESSERA_DEPLOY_CLI_COUNTED_H_

#include <cstdint>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace tessera {

// "1 server", "2 servers".
inline std::string Counted(int64_t count, absl::string_view thing) {
  return absl::StrCat(count, " ", thing, count == 1 ? "" : "s");
}

}  // namespace tessera

#endif  // TESSERA_DEPLOY_CLI_COUNTED_H_
