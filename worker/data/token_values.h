// A sequence of tokens in memory, in numbers that are no wider than the vocabulary needs.
#ifndef TESSERA_WORKER_DATA_TOKEN_VALUES_H_
#define TESSERA_WORKER_DATA_TOKEN_VALUES_H_

#include <cstdint>
#include <variant>
#include <vector>

#include "absl/types/span.h"
#include "worker/data/number_array.h"

namespace tessera {

class TokenValues {
 public:
  // Reads values as tokens in [0, vocabulary).
  explicit TokenValues(int64_t vocabulary = 1);

  // Throws std::bad_alloc where there is no memory.
  void Append(absl::Span<const uint32_t> tokens);
  // Makes every token t number_of[t].
  void Renumber(const std::vector<uint32_t>& number_of);
  void shrink_to_fit();

  // The memory of one token.
  static int64_t TokenBytes(int64_t vocabulary);
  int64_t size() const;
  int64_t bytes() const;
  // Writes the tokens [begin, begin + count).
  void Read(int64_t begin, int64_t count, float* out) const;
  void Read(int64_t begin, int64_t count, int32_t* out) const;

 private:
  std::variant<NumberArray<uint8_t>, NumberArray<uint16_t>, NumberArray<uint32_t>> tokens_;
};

}  // namespace tessera

#endif  // TESSERA_WORKER_DATA_TOKEN_VALUES_H_
