// One field of a text file: a number, or what to say about it when it is none.
#ifndef TESSERA_WORKER_DATA_FIELD_H_
#define TESSERA_WORKER_DATA_FIELD_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/strings/string_view.h"

namespace tessera {

// The whole field as a decimal number, rounded to the nearest float; one sign is allowed. Absent
// where it is no number, not finite, or beyond the range of a float. What is too small becomes 0 or
// subnormal.
std::optional<float> ParseFloatField(absl::string_view field);

// The whole field as an integer. A fraction of zeros ("3.0") is allowed.
std::optional<int64_t> ParseIntegerField(absl::string_view field);

// Reads a class's number, which np.savetxt writes as "3.000000000000000000e+00".
std::optional<int64_t> ParseLabelField(absl::string_view field);

// Returns the field in quotation marks, escaped and cut to a length that fits in a message.
std::string QuotedField(absl::string_view field);

}  // namespace tessera

#endif  // TESSERA_WORKER_DATA_FIELD_H_
