#include "worker/data/text.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/string_view.h"
#include "common/base/check.h"
#include "common/base/utf8.h"
#include "worker/data/byte_source.h"
#include "worker/data/file_format.h"
#include "worker/data/file_head.h"
#include "worker/data/token_table.h"

namespace tessera {
namespace {

constexpr size_t kChunkBytes = size_t{256} << 10;
// UTF-8 has up to four bytes for a character.
constexpr size_t kCharacterBytesMax = 4;
constexpr int32_t kByteOrderMark = 0xFEFF;
constexpr uint32_t kNoToken = UINT32_MAX;

// A text of one character has nothing that could be learned.
absl::Status CheckDiffers(const std::string& path, const TableSpec& spec, int64_t different,
                          absl::string_view unit, const std::string& only) {
  if (!spec.trains || different > 1) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(path, ": every ", unit, " of the text is ", only,
                   ", want at least two different ones: there is nothing to learn"));
}

// Gives the files' content to `take(chunk)`, which returns how many bytes of it were taken: the others come again with
// what is behind them. The last chunk of a file is taken whole.
template <typename Take>
absl::Status ForEachChunk(ByteSource& source, Take take) {
  std::vector<char> buffer(kChunkBytes + kCharacterBytesMax);
  size_t left = 0;
  for (bool ends = false; !ends;) {
    TESSERA_ASSIGN_OR_RETURN(const size_t got, source.Read(buffer.data() + left, kChunkBytes));
    ends = got < kChunkBytes;
    const size_t there = left + got;
    TESSERA_ASSIGN_OR_RETURN(const size_t taken,
                             take(absl::string_view(buffer.data(), there), ends));
    left = there - taken;
    // A character that is cut off at the end of a chunk is what may be left.
    TESSERA_CHECK(left <= kCharacterBytesMax && (left == 0 || !ends));
    std::memmove(buffer.data(), buffer.data() + taken, left);
  }
  return absl::OkStatus();
}

// Where in a file a character stands, both counted from 1.
struct TextPlace {
  int64_t line = 1;
  int64_t column = 1;

  void Pass(int32_t code_point) {
    if (code_point == '\n') {
      ++line;
      column = 1;
    } else {
      ++column;
    }
  }
  std::string In(const std::string& path) const {
    return absl::StrCat(path, ":", line, ":", column);
  }
};

class CharacterReader {
 public:
  CharacterReader(const TableSpec& spec, const std::optional<Characters>& known)
      : spec_(spec), known_(known), token_of_(kCodePointEnd, kNoToken), table_(spec) {
    if (!known) return;
    // The order of known characters gives their tokens.
    uint32_t token = 0;
    for (const int32_t code_point : known->code_points()) {
      token_of_[static_cast<size_t>(code_point)] = token++;
    }
  }

  absl::Status AppendFile(const std::string& path);
  // Numbers the characters in their order, if they are not known. kInvalidArgument: they are too many.
  absl::StatusOr<Characters> Number(const std::string& path);
  absl::StatusOr<Table> Finish(const std::vector<std::string>& paths) {
    return table_.Finish(paths, nullptr);
  }

 private:
  absl::StatusOr<size_t> Take(const std::string& path, absl::string_view chunk, bool ends);
  absl::Status TakeCharacter(const std::string& path, int32_t code_point);
  bool is_too_many() const { return static_cast<int64_t>(found_.size()) > spec_.classes; }

  const TableSpec& spec_;
  const std::optional<Characters>& known_;
  // By code point. Of characters that are not known: numbered as they are found.
  std::vector<uint32_t> token_of_;
  std::vector<int32_t> found_;
  TokenTable table_;
  TextPlace place_;
  bool at_begin_ = true;
  std::vector<uint32_t> code_points_;
  std::vector<uint32_t> tokens_;
};

absl::Status CharacterReader::TakeCharacter(const std::string& path, int32_t code_point) {
  // Only in front of a file's first character is it a mark, elsewhere it is a character.
  const bool is_mark = at_begin_ && code_point == kByteOrderMark;
  at_begin_ = false;
  if (is_mark) return absl::OkStatus();
  uint32_t& token = token_of_[static_cast<size_t>(code_point)];
  if (token == kNoToken && known_) {
    return absl::InvalidArgumentError(
        absl::StrCat(place_.In(path), ": character ", CharacterText(code_point), " is none of the ",
                     known_->size(),
                     " that the model is trained on, want no others; add such text to "
                     "data.train before training, or set data.tokenizer to bytes"));
  }
  if (token == kNoToken) {
    token = static_cast<uint32_t>(found_.size());
    found_.push_back(code_point);
  }
  code_points_.push_back(static_cast<uint32_t>(code_point));
  tokens_.push_back(token);
  place_.Pass(code_point);
  return absl::OkStatus();
}

absl::StatusOr<size_t> CharacterReader::Take(const std::string& path, absl::string_view chunk,
                                             bool ends) {
  code_points_.clear();
  tokens_.clear();
  size_t at = 0;
  while (at < chunk.size()) {
    const absl::string_view rest = chunk.substr(at);
    const size_t bytes = Utf8CharacterBytes(rest);
    // The character may go on in the next chunk.
    if (bytes == 0 && !ends && rest.size() < kCharacterBytesMax) break;
    if (bytes == 0) {
      return absl::InvalidArgumentError(absl::StrFormat(
          "%s: byte %02x begins no character of UTF-8, want UTF-8; convert the file with iconv -t "
          "utf-8, or set data.tokenizer to bytes",
          place_.In(path), static_cast<uint8_t>(rest[0])));
    }
    TESSERA_RETURN_IF_ERROR(TakeCharacter(path, CodePointOf(rest.substr(0, bytes))));
    at += bytes;
  }
  // The text is summed by its code points, which do not depend on how characters are numbered.
  table_.Count(code_points_);
  // The files are read on to tell how many there are.
  if (!is_too_many()) TESSERA_RETURN_IF_ERROR(table_.Hold(path, tokens_));
  return at;
}

absl::Status CharacterReader::AppendFile(const std::string& path) {
  place_ = TextPlace();
  at_begin_ = true;
  TESSERA_ASSIGN_OR_RETURN(const auto source, ByteSource::Open(path, ByteSource::Kinds::kAnyText));
  return ForEachChunk(*source,
                      [&](absl::string_view chunk, bool ends) { return Take(path, chunk, ends); });
}

absl::StatusOr<Characters> CharacterReader::Number(const std::string& path) {
  if (known_) return *known_;
  const auto count = static_cast<int64_t>(found_.size());
  if (count > spec_.classes) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": the text has ", count, " different characters, want at most ",
                     spec_.classes, ", which is model.input.tokens.vocabulary; set it to ", count));
  }
  if (count > 0) {
    TESSERA_RETURN_IF_ERROR(
        CheckDiffers(path, spec_, count, "character", CharacterText(found_[0])));
  }
  // Numbered by code point at the end, so that the order in which files are named does not matter.
  std::vector<int32_t> sorted = found_;
  std::sort(sorted.begin(), sorted.end());
  Characters characters(std::move(sorted));
  std::vector<uint32_t> number_of;
  for (const int32_t code_point : found_) number_of.push_back(*characters.TokenOf(code_point));
  table_.held().Renumber(number_of);
  return characters;
}

}  // namespace

absl::StatusOr<Table> ReadBytes(const std::vector<std::string>& paths, const TableSpec& spec) {
  if (spec.classes < kByteTokens) {
    return absl::InvalidArgumentError(
        absl::StrCat("model.input.tokens.vocabulary: is ", spec.classes, ", want at least ",
                     kByteTokens, " with data.tokenizer bytes: each byte is a token"));
  }
  TokenTable table(spec);
  std::vector<uint32_t> tokens;
  std::vector<bool> occurs(kByteTokens);
  for (const std::string& path : paths) {
    TESSERA_ASSIGN_OR_RETURN(const auto source,
                             ByteSource::Open(path, ByteSource::Kinds::kAnyText));
    TESSERA_RETURN_IF_ERROR(
        ForEachChunk(*source, [&](absl::string_view chunk, bool) -> absl::StatusOr<size_t> {
          tokens.clear();
          for (const char byte : chunk) {
            tokens.push_back(static_cast<uint8_t>(byte));
            occurs[static_cast<uint8_t>(byte)] = true;
          }
          table.Count(tokens);
          TESSERA_RETURN_IF_ERROR(table.Hold(path, tokens));
          return chunk.size();
        }));
  }
  const int64_t different = std::count(occurs.begin(), occurs.end(), true);
  if (different > 0) {
    const auto only = std::find(occurs.begin(), occurs.end(), true) - occurs.begin();
    TESSERA_RETURN_IF_ERROR(
        CheckDiffers(paths[0], spec, different, "byte", absl::StrFormat("%02x", only)));
  }
  return table.Finish(paths, nullptr);
}

absl::StatusOr<Table> ReadCharacters(const std::vector<std::string>& paths, const TableSpec& spec,
                                     std::optional<Characters>* characters) {
  CharacterReader reader(spec, *characters);
  for (const std::string& path : paths) TESSERA_RETURN_IF_ERROR(reader.AppendFile(path));
  TESSERA_ASSIGN_OR_RETURN(Characters numbered, reader.Number(paths[0]));
  TESSERA_ASSIGN_OR_RETURN(Table table, reader.Finish(paths));
  if (!*characters) *characters = std::move(numbered);
  return table;
}

namespace {

absl::StatusOr<bool> IsText(const FileHead& head) {
  return head.is_text() && !head.lines().empty();
}

// The different characters of a text; nullopt: it is no UTF-8, or has more than a small model tells apart.
std::optional<std::set<std::string>> CharactersOf(absl::string_view text) {
  constexpr size_t kMost = 4096;
  std::set<std::string> characters;
  while (!text.empty()) {
    const size_t bytes = Utf8CharacterBytes(text);
    if (bytes == 0) return std::nullopt;
    characters.emplace(text.substr(0, bytes));
    if (characters.size() > kMost) return std::nullopt;
    text.remove_prefix(bytes);
  }
  return characters;
}

absl::Status LookAtText(const std::vector<std::string>& train_paths,
                        const std::vector<std::string>& test_paths, RowsLook* look) {
  TESSERA_ASSIGN_OR_RETURN(const std::string train, ContentOf(train_paths));
  TESSERA_ASSIGN_OR_RETURN(const std::string test, ContentOf(test_paths));
  look->tokens = static_cast<int64_t>(train.size());
  look->test_tokens = static_cast<int64_t>(test.size());
  const auto known = CharactersOf(train), asked = CharactersOf(test);
  // A character of the test text that the training text has not has no number.
  const bool fits =
      known && asked && std::includes(known->begin(), known->end(), asked->begin(), asked->end());
  look->own_value = fits ? "characters" : "bytes";
  look->vocabulary = fits ? std::max<int64_t>(2, static_cast<int64_t>(known->size())) : kByteTokens;
  return absl::OkStatus();
}

absl::StatusOr<Table> ReadTextFiles(const TableFiles& files, const TableSpec& spec,
                                    TrainingConventions* conventions) {
  return files.data.tokenizer() == "bytes"
             ? ReadBytes(files.features, spec)
             : ReadCharacters(files.features, spec, &conventions->characters);
}

}  // namespace

extern const FileFormat kTextFormat = {"text", IsText, LookAtText, ReadTextFiles};

}  // namespace tessera
