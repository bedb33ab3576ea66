#include "worker/data/file_head.h"

#include <algorithm>
#include <filesystem>

#include "absl/strings/ascii.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "common/base/check.h"
#include "common/base/utf8.h"
#include "worker/data/byte_source.h"

namespace tessera {
namespace {

// The first bytes of a file that are looked at.
constexpr size_t kHeadBytes = 64 << 10;
// A character has up to so many bytes.
constexpr size_t kCharacterBytesMax = 4;

}  // namespace

absl::StatusOr<FileHead> FileHead::Read(const std::string& path) {
  FileHead head;
  head.path_ = path;
  const std::string lower = absl::AsciiStrToLower(std::filesystem::path(path).filename().string());
  head.name_ = std::string(absl::StripSuffix(lower, ".gz"));
  TESSERA_ASSIGN_OR_RETURN(const auto source, ByteSource::Open(path, ByteSource::Kinds::kAnyText));
  head.bytes_.resize(kHeadBytes);
  TESSERA_ASSIGN_OR_RETURN(const size_t got, source->Read(&head.bytes_[0], kHeadBytes));
  head.is_whole_ = got < kHeadBytes;
  head.bytes_.resize(got);
  return head;
}

bool FileHead::is_text() const {
  if (bytes_.empty() || bytes_.find('\0') != std::string::npos) return false;
  // A character may be cut off where the head ends.
  return Utf8PrefixBytes(bytes_) + (is_whole_ ? 0 : kCharacterBytesMax) >
         bytes_.size() - (is_whole_ ? 1 : 0);
}

std::vector<absl::string_view> FileHead::lines() const {
  std::vector<absl::string_view> lines = absl::StrSplit(bytes_, '\n');
  // The last line of what was read may be cut off.
  if (!is_whole_ && lines.size() > 1) lines.pop_back();
  lines.erase(std::remove_if(lines.begin(), lines.end(),
                             [](absl::string_view line) {
                               line = absl::StripAsciiWhitespace(line);
                               return line.empty() || line[0] == '#';
                             }),
              lines.end());
  return lines;
}

absl::StatusOr<int64_t> FileHead::ContentBytes() const { return tessera::ContentBytes(path_); }

}  // namespace tessera
