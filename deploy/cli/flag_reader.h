// Flags that describe machines: text and numbers to what they mean, or to everything that is wrong with them.
#ifndef TESSERA_DEPLOY_CLI_FLAG_READER_H_
#define TESSERA_DEPLOY_CLI_FLAG_READER_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/strings/string_view.h"

namespace tessera {

// Bytes per second: bits as "1Gbit" or "250kbit", or bytes as a size ("100MB", "1GiB"). nullopt:
// neither, or a number other than 0 without a unit.
std::optional<int64_t> ParseBandwidth(absl::string_view text);

// Everything that is wrong with the flags, one line each, as of flags that the parser refuses
// (common/config/command_line.h). What a wrong one means is of no use.
class FlagReader {
 public:
  // `program` is what errors begin with: "tessera plan".
  explicit FlagReader(absl::string_view program) : program_(program) {}

  // A bandwidth in bytes per second; 0: no limit.
  int64_t Bandwidth(absl::string_view flag, const std::string& text);
  // A duration in nanoseconds. `or_else` follows what is wanted in the error.
  int64_t Duration(absl::string_view flag, const std::string& text, const char* or_else);
  double Share(absl::string_view flag, double value);
  double Rate(absl::string_view flag, double value);
  int Count(absl::string_view flag, int value);
  // An integer in bounds. A flag that was not given is right; nullopt stands for a wrong one, too.
  std::optional<int> Between(absl::string_view flag, const std::optional<int>& value, int least,
                             int most);
  // A number in bounds.
  double Number(absl::string_view flag, double value, double least, double most);
  const std::string& errors() const { return errors_; }

 private:
  void Refuse(absl::string_view flag, const std::string& got, absl::string_view want);

  const std::string program_;
  std::string errors_;
};

}  // namespace tessera

#endif  // TESSERA_DEPLOY_CLI_FLAG_READER_H_
