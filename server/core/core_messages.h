// The words of a core's selection, as messages carry them.
#ifndef TESSERA_SERVER_CORE_CORE_MESSAGES_H_
#define TESSERA_SERVER_CORE_CORE_MESSAGES_H_

#include "proto/coordinator.pb.h"
#include "server/core/core_words.h"

namespace tessera {

v1::CoreReport ToMessage(const CoreReport& report);
v1::CoreQuestion ToMessage(const CoreQuestion& question);
// A stage that there is none of becomes kDone, in a report of which there is nothing to be made.
CoreReport FromMessage(const v1::CoreReport& message);
CoreQuestion FromMessage(const v1::CoreQuestion& message);

}  // namespace tessera

#endif  // TESSERA_SERVER_CORE_CORE_MESSAGES_H_
