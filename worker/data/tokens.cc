#include "worker/data/tokens.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "worker/data/byte_source.h"
#include "worker/data/file_format.h"
#include "worker/data/file_head.h"
#include "worker/data/token_files.h"
#include "worker/data/token_table.h"

namespace tessera {
namespace {

static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "tokens are loaded as they lie");

// Tokens that are read and checked at a time.
constexpr int64_t kChunkTokens = int64_t{64} << 10;

int BytesOf(TokenType type) { return type == TokenType::kUint16 ? 2 : 4; }

// What a token that is none may come of.
std::string Advice(TokenType type, int64_t at, uint32_t token) {
  // Two numbers of 16 bits in the place of one.
  if (type == TokenType::kUint32 && token > 0xFFFF) {
    return "; if the file's tokens are of 16 bits, set data.type to uint16";
  }
  return at == 0 ? "; a file of tokens has no header" : "";
}

class TokenReader {
 public:
  TokenReader(const TableSpec& spec, TokenType type, bool stays)
      : spec_(spec), type_(type), bytes_(BytesOf(type)), stays_(stays), table_(spec) {}

  absl::Status AppendFile(const std::string& path);
  absl::StatusOr<Table> Finish(const std::vector<std::string>& paths);

 private:
  absl::Status Take(const std::string& path, int64_t first, absl::Span<const uint8_t> bytes);

  const TableSpec& spec_;
  const TokenType type_;
  const int bytes_;
  const bool stays_;
  TokenTable table_;
  std::vector<TokenFiles::File> files_;
  std::vector<uint32_t> tokens_;
};

absl::Status TokenReader::Take(const std::string& path, int64_t first,
                               absl::Span<const uint8_t> bytes) {
  const auto count = static_cast<int64_t>(bytes.size()) / bytes_;
  tokens_.assign(static_cast<size_t>(count), 0);
  for (int64_t i = 0; i < count; ++i) {
    uint32_t& token = tokens_[static_cast<size_t>(i)];
    std::memcpy(&token, bytes.data() + i * bytes_, static_cast<size_t>(bytes_));
    // A token beyond the vocabulary would be an index outside the embedding.
    if (token < static_cast<uint64_t>(spec_.classes)) continue;
    const int64_t at = (first + i) * bytes_;
    return absl::InvalidArgumentError(absl::StrCat(path, ": byte ", at, ": token ", first + i,
                                                   " is ", token, ", want 0 to ", spec_.classes - 1,
                                                   ", as model.input.tokens.vocabulary is ",
                                                   spec_.classes, Advice(type_, at, token)));
  }
  table_.Count(tokens_);
  if (stays_) return absl::OkStatus();
  // A file's bytes are checked against the room as they come, since compressed ones do not say how many there are.
  const int64_t held = table_.count() * TokenValues::TokenBytes(spec_.classes);
  if (held > spec_.held_bytes_max) {
    return absl::ResourceExhaustedError(absl::StrCat(
        path, ": has more than the ", spec_.held_bytes_max,
        " bytes of tokens that data.memory has room for; gunzip all files: compressed files "
        "cannot be read in place"));
  }
  return table_.Hold(path, tokens_);
}

absl::Status TokenReader::AppendFile(const std::string& path) {
  TESSERA_ASSIGN_OR_RETURN(const auto source, ByteSource::Open(path));
  std::vector<uint8_t> chunk(static_cast<size_t>(kChunkTokens * bytes_));
  int64_t tokens = 0;
  for (bool ends = false; !ends;) {
    TESSERA_ASSIGN_OR_RETURN(const size_t got, source->Read(chunk.data(), chunk.size()));
    // Short reads happen only at the end of a file.
    ends = got < chunk.size();
    // Only the last chunk may be of any length.
    if (got % static_cast<size_t>(bytes_) != 0) {
      return absl::InvalidArgumentError(absl::StrCat(path, ": content is ", source->offset(),
                                                     " bytes, want a multiple of ", bytes_,
                                                     ", as data.type is uint", 8 * bytes_));
    }
    TESSERA_RETURN_IF_ERROR(Take(path, tokens, absl::MakeConstSpan(chunk.data(), got)));
    tokens += static_cast<int64_t>(got) / bytes_;
  }
  files_.push_back({path, tokens});
  return absl::OkStatus();
}

absl::StatusOr<Table> TokenReader::Finish(const std::vector<std::string>& paths) {
  StoredValues stored;
  // Tokens that stay on disk are read again from where they lie, at each use.
  if (stays_) {
    TESSERA_ASSIGN_OR_RETURN(stored,
                             TokenFiles::Open(files_, bytes_, spec_.classes, table_.windows()));
  }
  return table_.Finish(paths, std::move(stored));
}

// Whether the tokens are more than may be held, and no file is compressed.
absl::StatusOr<bool> Stays(const std::vector<std::string>& paths, const TableSpec& spec,
                           TokenType type) {
  // No limit was given: everything is held.
  if (spec.held_bytes_max == TableSpec().held_bytes_max) return false;
  int64_t tokens = 0;
  for (const std::string& path : paths) {
    TESSERA_ASSIGN_OR_RETURN(const auto source, ByteSource::Open(path));
    // A compressed file cannot be read from the middle.
    if (source->compressed()) return false;
    tokens += source->content_bytes_max() / BytesOf(type);
  }
  return tokens * TokenValues::TokenBytes(spec.classes) > spec.held_bytes_max;
}

}  // namespace

absl::StatusOr<Table> ReadTokens(const std::vector<std::string>& paths, const TableSpec& spec,
                                 TokenType type) {
  TESSERA_ASSIGN_OR_RETURN(const bool stays, Stays(paths, spec, type));
  TokenReader reader(spec, type, stays);
  for (const std::string& path : paths) TESSERA_RETURN_IF_ERROR(reader.AppendFile(path));
  return reader.Finish(paths);
}

namespace {

// A file that is called so, as its bytes may be anything.
absl::StatusOr<bool> IsTokens(const FileHead& head) {
  if (head.is_text() || !absl::EndsWith(head.name(), ".bin")) return false;
  TESSERA_ASSIGN_OR_RETURN(const int64_t bytes, head.ContentBytes());
  return bytes % 2 == 0;
}

// The largest token, of 16 bits each.
absl::Status LookAtTokens(const std::vector<std::string>& train_paths,
                          const std::vector<std::string>& test_paths, RowsLook* look) {
  TESSERA_ASSIGN_OR_RETURN(const std::string train, ContentOf(train_paths));
  TESSERA_ASSIGN_OR_RETURN(const std::string test, ContentOf(test_paths));
  look->tokens = static_cast<int64_t>(train.size() / 2);
  look->test_tokens = static_cast<int64_t>(test.size() / 2);
  int64_t largest = 1;
  for (const std::string* const each : {&train, &test}) {
    for (size_t i = 0; i + 1 < each->size(); i += 2) {
      largest = std::max<int64_t>(largest, static_cast<unsigned char>((*each)[i]) |
                                               static_cast<unsigned char>((*each)[i + 1]) << 8);
    }
  }
  look->vocabulary = largest + 1;
  return absl::OkStatus();
}

absl::StatusOr<Table> ReadTokenFiles(const TableFiles& files, const TableSpec& spec,
                                     TrainingConventions*) {
  // The job reader has checked the word, which leaves uint16.
  return ReadTokens(files.features, spec,
                    files.data.type() == "uint32" ? TokenType::kUint32 : TokenType::kUint16);
}

}  // namespace

extern const FileFormat kTokensFormat = {"tokens", IsTokens, LookAtTokens, ReadTokenFiles};

}  // namespace tessera
