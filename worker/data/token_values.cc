#include "worker/data/token_values.h"

#include <algorithm>

namespace tessera {
namespace {

template <typename Token, typename Out>
void Copy(const NumberArray<Token>& tokens, int64_t begin, int64_t count, Out* out) {
  const Token* const from = tokens.data() + begin;
  for (int64_t i = 0; i < count; ++i) out[i] = static_cast<Out>(from[i]);
}

}  // namespace

TokenValues::TokenValues(int64_t vocabulary) {
  switch (TokenBytes(vocabulary)) {
    case 1:
      tokens_.emplace<NumberArray<uint8_t>>();
      break;
    case 2:
      tokens_.emplace<NumberArray<uint16_t>>();
      break;
    default:
      tokens_.emplace<NumberArray<uint32_t>>();
  }
}

int64_t TokenValues::TokenBytes(int64_t vocabulary) {
  // The narrowest type that has all tokens: a text of bytes takes a byte for each.
  return vocabulary <= int64_t{1} << 8 ? 1 : vocabulary <= int64_t{1} << 16 ? 2 : 4;
}

void TokenValues::Append(absl::Span<const uint32_t> tokens) {
  std::visit(
      [tokens](auto& all) {
        using Token = typename std::decay_t<decltype(all)>::value_type;
        for (const uint32_t token : tokens) all.push_back(static_cast<Token>(token));
      },
      tokens_);
}

void TokenValues::Renumber(const std::vector<uint32_t>& number_of) {
  std::visit(
      [&number_of](auto& all) {
        using Token = typename std::decay_t<decltype(all)>::value_type;
        for (Token& token : all) token = static_cast<Token>(number_of[token]);
      },
      tokens_);
}

void TokenValues::shrink_to_fit() {
  std::visit([](auto& all) { all.shrink_to_fit(); }, tokens_);
}

int64_t TokenValues::size() const {
  return std::visit([](const auto& all) { return static_cast<int64_t>(all.size()); }, tokens_);
}

int64_t TokenValues::bytes() const {
  return std::visit(
      [](const auto& all) { return static_cast<int64_t>(all.size() * sizeof(*all.data())); },
      tokens_);
}

void TokenValues::Read(int64_t begin, int64_t count, float* out) const {
  std::visit([=](const auto& all) { Copy(all, begin, count, out); }, tokens_);
}

void TokenValues::Read(int64_t begin, int64_t count, int32_t* out) const {
  std::visit([=](const auto& all) { Copy(all, begin, count, out); }, tokens_);
}

}  // namespace tessera
