#include "deploy/cli/sample/spelling.h"

#include <optional>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "common/base/check.h"
#include "common/base/printable.h"
#include "common/base/utf8.h"
#include "worker/data/characters.h"

namespace tessera {
namespace {

constexpr int64_t kBytes = 256;
constexpr char kReplacement[] = "\xEF\xBF\xBD";  // U+FFFD

class CharacterSpelling final : public Spelling {
 public:
  explicit CharacterSpelling(std::vector<int32_t> code_points)
      : characters_(std::move(code_points)) {}

  int64_t tokens() const override { return characters_.size(); }

  absl::StatusOr<std::vector<int32_t>> Read(absl::string_view prompt) const override {
    std::vector<int32_t> tokens;
    while (!prompt.empty()) {
      const size_t bytes = Utf8CharacterBytes(prompt);
      if (bytes == 0) {
        return absl::InvalidArgumentError(
            absl::StrFormat("byte %02x behind %d characters begins no character, want UTF-8",
                            static_cast<uint8_t>(prompt[0]), tokens.size()));
      }
      const int32_t code_point = CodePointOf(prompt.substr(0, bytes));
      const std::optional<uint32_t> token = characters_.TokenOf(code_point);
      if (!token) {
        return absl::InvalidArgumentError(absl::StrCat(
            "character ", CharacterText(code_point), " is none of the ", characters_.size(),
            " that the model was trained on, want only those: ", ToPrintable(All())));
      }
      tokens.push_back(static_cast<int32_t>(*token));
      prompt.remove_prefix(bytes);
    }
    return tokens;
  }

  int32_t Start() const override {
    return static_cast<int32_t>(characters_.TokenOf('\n').value_or(0));
  }

  std::string Write(int32_t token) override {
    std::string text;
    AppendUtf8(characters_.code_points()[static_cast<size_t>(token)], &text);
    return text;
  }

 private:
  std::string All() const {
    std::string all;
    for (const int32_t code_point : characters_.code_points()) AppendUtf8(code_point, &all);
    constexpr size_t kListedMax = 400;
    return CutText(all, kListedMax);
  }

  const Characters characters_;
};

class ByteSpelling final : public Spelling {
 public:
  int64_t tokens() const override { return kBytes; }

  absl::StatusOr<std::vector<int32_t>> Read(absl::string_view prompt) const override {
    std::vector<int32_t> tokens;
    for (const char byte : prompt) tokens.push_back(static_cast<uint8_t>(byte));
    return tokens;
  }

  int32_t Start() const override { return '\n'; }

  std::string Write(int32_t token) override {
    pending_.push_back(static_cast<char>(token));
    std::string text;
    while (!pending_.empty()) {
      const size_t bytes = Utf8CharacterBytes(pending_);
      if (bytes == 0 && MayBecomeOne()) break;
      absl::StrAppend(&text, bytes == 0 ? kReplacement : pending_.substr(0, bytes));
      pending_.erase(0, bytes == 0 ? 1 : bytes);
    }
    return text;
  }

 private:
  // Whether there are bytes that make a character of those that are pending.
  bool MayBecomeOne() const {
    // Which second bytes there may be depends on the first one; all others are alike.
    for (const char* const next : {"\x80\x80\x80", "\x90\x80\x80", "\xA0\x80\x80"}) {
      if (Utf8CharacterBytes(absl::StrCat(pending_, next)) > pending_.size()) return true;
    }
    return false;
  }

  std::string pending_;
};

class NumberSpelling final : public Spelling {
 public:
  explicit NumberSpelling(int64_t vocabulary) : vocabulary_(vocabulary) {}

  int64_t tokens() const override { return vocabulary_; }

  absl::StatusOr<std::vector<int32_t>> Read(absl::string_view prompt) const override {
    std::vector<int32_t> tokens;
    for (const absl::string_view word :
         absl::StrSplit(prompt, absl::ByAnyChar(" ,\t\n"), absl::SkipEmpty())) {
      int64_t token = 0;
      if (!absl::SimpleAtoi(word, &token) || token < 0 || token >= vocabulary_) {
        return absl::InvalidArgumentError(absl::StrCat(
            "\"", ToPrintable(word), "\" is no token, want numbers from 0 to ", vocabulary_ - 1,
            " with blanks between them: the model was trained on numbered tokens"));
      }
      tokens.push_back(static_cast<int32_t>(token));
    }
    return tokens;
  }

  int32_t Start() const override { return 0; }

  std::string Write(int32_t token) override {
    std::string text = absl::StrCat(is_first_ ? "" : " ", token);
    is_first_ = false;
    return text;
  }

 private:
  const int64_t vocabulary_;
  bool is_first_ = true;
};

}  // namespace

std::unique_ptr<Spelling> SpellCharacters(std::vector<int32_t> code_points) {
  return std::make_unique<CharacterSpelling>(std::move(code_points));
}

std::unique_ptr<Spelling> SpellBytes() { return std::make_unique<ByteSpelling>(); }

std::unique_ptr<Spelling> SpellNumbers(int64_t vocabulary) {
  return std::make_unique<NumberSpelling>(vocabulary);
}

}  // namespace tessera
