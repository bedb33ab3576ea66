// Numbers, durations and sizes as people write them in a job, and back.
//
// Parsing gives nothing for text of another form or out of the type's range. Formatting is the
// shortest text that parses to the same value, the same on every machine: the job digest is made of
// it.
#ifndef TESSERA_COMMON_CONFIG_QUANTITY_H_
#define TESSERA_COMMON_CONFIG_QUANTITY_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/strings/string_view.h"

namespace tessera {

// Parses a decimal integer with an optional sign.
std::optional<int64_t> ParseInteger(absl::string_view text);
std::optional<uint64_t> ParseUnsigned(absl::string_view text);

// Parses a finite decimal number: "0.1", "1e-5". Minus zero becomes zero.
std::optional<double> ParseNumber(absl::string_view text);
std::string FormatNumber(double value);

// Parses a duration into nanoseconds: "5s", "200ms", "1m30s", "1.5h"; plain "0".
std::optional<int64_t> ParseDuration(absl::string_view text);
std::string FormatDuration(int64_t nanoseconds);

// Parses a size into bytes: "4MiB", "1GB", "512" (B, kB, MB, GB, TB in powers of 1000, KiB, MiB, GiB, TiB in
// powers of 1024).
std::optional<int64_t> ParseSize(absl::string_view text);
// What a message wants where a size is none.
constexpr absl::string_view kSizeUnits = "in whole B, kB, MB, GB, TB, KiB, MiB, GiB or TiB";
std::string FormatSize(int64_t bytes);

}  // namespace tessera

#endif  // TESSERA_COMMON_CONFIG_QUANTITY_H_
