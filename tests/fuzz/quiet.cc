// For targets whose inputs are refused all the time: no library logs anything, as errors of one input are no news.
#include <google/protobuf/stubs/logging.h>

#include "common/base/log.h"

extern "C" int LLVMFuzzerInitialize(int*, char***) {
  google::protobuf::SetLogHandler(nullptr);
  // Above all levels that there are.
  tessera::SetLogLevel(static_cast<tessera::LogLevel>(4));
  return 0;
}
