// How long payloads will be, as far as it is known before there are entries.
#ifndef TESSERA_COMMON_CODEC_FORECAST_H_
#define TESSERA_COMMON_CODEC_FORECAST_H_

#include <cstdint>
#include <string>

namespace tessera {

struct PayloadForecast {
  enum class Certainty { kExact, kAbout, kAtMost, kUnknown };
  int64_t bytes = 0;
  Certainty certainty = Certainty::kExact;

  // Where it is kUnknown: what is sent, the key of codec.push that makes it so with its value, and what would help.
  std::string sent, because, advice;
};

}  // namespace tessera

#endif  // TESSERA_COMMON_CODEC_FORECAST_H_
