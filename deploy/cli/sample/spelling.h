// How tokens are written: as characters, as bytes of UTF-8, or as numbers.
#ifndef TESSERA_DEPLOY_CLI_SAMPLE_SPELLING_H_
#define TESSERA_DEPLOY_CLI_SAMPLE_SPELLING_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace tessera {

// One thread.
class Spelling {
 public:
  virtual ~Spelling() = default;

  // How many tokens may be written: those from 0 on. A vocabulary may have more, which no text has.
  virtual int64_t tokens() const = 0;
  // The tokens of what a person wrote. kInvalidArgument: a part of it is no token; the message says which.
  virtual absl::StatusOr<std::vector<int32_t>> Read(absl::string_view prompt) const = 0;
  // The token that a text without a prompt begins behind: the end of a line, or the first token.
  virtual int32_t Start() const = 0;
  // What `token` adds to the text: whole characters of UTF-8, so that bytes wait for those behind them.
  virtual std::string Write(int32_t token) = 0;
};

// Token i is the character of the i-th code point.
std::unique_ptr<Spelling> SpellCharacters(std::vector<int32_t> code_points);
// Token i is byte i. Bytes that are no characters are written as U+FFFD.
std::unique_ptr<Spelling> SpellBytes();
// Tokens are numbers, with blanks between them.
std::unique_ptr<Spelling> SpellNumbers(int64_t vocabulary);

}  // namespace tessera

#endif  // TESSERA_DEPLOY_CLI_SAMPLE_SPELLING_H_
