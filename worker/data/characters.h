// The characters of a text, numbered from 0 in the order of their code points: the vocabulary of data.tokenizer
// characters.
#ifndef TESSERA_WORKER_DATA_CHARACTERS_H_
#define TESSERA_WORKER_DATA_CHARACTERS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace tessera {

// Constant after construction.
class Characters {
 public:
  // `code_points` ascend, each once.
  explicit Characters(std::vector<int32_t> code_points) : code_points_(std::move(code_points)) {}

  int64_t size() const { return static_cast<int64_t>(code_points_.size()); }
  const std::vector<int32_t>& code_points() const { return code_points_; }
  // The token that a character is; nullopt: it is none of them.
  std::optional<uint32_t> TokenOf(int32_t code_point) const;

 private:
  std::vector<int32_t> code_points_;
};

// A character for messages: "e" (U+0065).
std::string CharacterText(int32_t code_point);

}  // namespace tessera

#endif  // TESSERA_WORKER_DATA_CHARACTERS_H_
