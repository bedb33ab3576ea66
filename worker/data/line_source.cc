#include "worker/data/line_source.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "common/base/check.h"

namespace tessera {
namespace {

constexpr size_t kReadBytes = size_t{256} << 10;

}  // namespace

LineSource::LineSource(std::unique_ptr<ByteSource> bytes, int64_t line_bytes_max)
    : bytes_(std::move(bytes)), line_bytes_max_(line_bytes_max), buffer_(kReadBytes) {}

std::string LineSource::where() const { return absl::StrCat(bytes_->path(), ":", line_); }

absl::StatusOr<bool> LineSource::Next(absl::string_view* line) {
  for (;;) {
    TESSERA_ASSIGN_OR_RETURN(const bool there_is, NextOrBlank(line));
    if (!there_is) return false;
    if (!absl::StripAsciiWhitespace(*line).empty()) return true;
  }
}

absl::StatusOr<bool> LineSource::NextOrBlank(absl::string_view* line) {
  TESSERA_ASSIGN_OR_RETURN(const bool there_is, NextAny(line));
  if (!there_is) return false;
  if (line_ == 1) {
    TESSERA_RETURN_IF_ERROR(CheckText(*line));
    // UTF-8's byte order mark, which is no part of the first field.
    absl::ConsumePrefix(line, "\xEF\xBB\xBF");
  }
  // Files from Windows end lines with \r\n.
  absl::ConsumeSuffix(line, "\r");
  return true;
}

// The first line tells: no text in UTF-8 has a zero byte, and text in UTF-16 has one beside each digit.
absl::Status LineSource::CheckText(absl::string_view line) const {
  const bool is_utf16 = absl::StartsWith(line, "\xFF\xFE") || absl::StartsWith(line, "\xFE\xFF");
  if (!is_utf16 && line.find('\0') == absl::string_view::npos) return absl::OkStatus();
  if (absl::StartsWith(line, "\x93NUMPY")) {
    return absl::InvalidArgumentError(absl::StrCat(
        bytes_->path(), ": content is a NumPy file, want text; set data.format to npy"));
  }
  return absl::InvalidArgumentError(absl::StrCat(
      bytes_->path(), ": content is ",
      is_utf16 ? "text in UTF-16" : "no text, for its first line has zero bytes (or is it UTF-16?)",
      ", want text in UTF-8; iconv -f UTF-16 -t UTF-8 makes it from UTF-16"));
}

absl::StatusOr<bool> LineSource::NextAny(absl::string_view* line) {
  ++line_;
  size_t searched = 0;
  for (;;) {
    const char* const start = buffer_.data() + begin_;
    const size_t held = end_ - begin_;
    // From where the last search ended, so that a line over several blocks is searched once.
    const void* const newline = std::memchr(start + searched, '\n', held - searched);
    const bool whole = newline != nullptr || at_end_;
    const size_t length = newline != nullptr ? static_cast<const char*>(newline) - start : held;
    // Before more is read: a file without newlines would fill the memory.
    if (length > line_bytes_max_) {
      return absl::InvalidArgumentError(
          absl::StrCat(where(), ": the line is longer than ", line_bytes_max_, " bytes"));
    }
    if (whole) {
      if (newline == nullptr && held == 0) return false;
      *line = absl::string_view(start, length);
      begin_ += length + (newline != nullptr ? 1 : 0);
      return true;
    }
    searched = held;
    // What is left of a line moves to the front, and the buffer grows only where the line fills it.
    std::memmove(buffer_.data(), start, held);
    begin_ = 0;
    end_ = held;
    if (end_ == buffer_.size()) buffer_.resize(2 * buffer_.size());
    TESSERA_ASSIGN_OR_RETURN(const size_t got,
                             bytes_->Read(buffer_.data() + end_, buffer_.size() - end_));
    // Read gives less than asked for only at the end (ByteSource).
    at_end_ = got < buffer_.size() - end_;
    end_ += got;
  }
}

namespace {

// Whoever looks at a file knows no width of its rows by which lines could be limited.
constexpr int64_t kLookedLineBytesMax = int64_t{1} << 30;

absl::StatusOr<std::unique_ptr<LineSource>> OpenLines(const std::string& path) {
  TESSERA_ASSIGN_OR_RETURN(auto bytes, ByteSource::Open(path));
  return std::make_unique<LineSource>(std::move(bytes), kLookedLineBytesMax);
}

}  // namespace

absl::Status ForEachLine(const std::vector<std::string>& paths,
                         absl::FunctionRef<void(absl::string_view line)> see) {
  for (const std::string& path : paths) {
    TESSERA_ASSIGN_OR_RETURN(const auto lines, OpenLines(path));
    absl::string_view line;
    while (true) {
      TESSERA_ASSIGN_OR_RETURN(const bool is_there, lines->Next(&line));
      if (!is_there) break;
      see(line);
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> FirstLine(const std::string& path) {
  TESSERA_ASSIGN_OR_RETURN(const auto lines, OpenLines(path));
  absl::string_view line;
  TESSERA_ASSIGN_OR_RETURN(const bool is_there, lines->Next(&line));
  if (!is_there) return absl::InvalidArgumentError(absl::StrCat(path, ": is empty"));
  return std::string(line);
}

}  // namespace tessera
