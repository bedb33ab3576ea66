#include "common/config/job_error.h"

#include <algorithm>
#include <tuple>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace tessera {
namespace {

constexpr size_t kQuotedBytesMax = 60;

// Whether two paths are equal, or `below` continues `above` with a dot.
bool IsAtOrBelow(absl::string_view below, absl::string_view above) {
  return above.empty() || below == above ||
         (absl::StartsWith(below, above) && below[above.size()] == '.');
}

}  // namespace

Position PositionOf(const Positions& positions, absl::string_view key) {
  while (true) {
    const auto it = positions.find(std::string(key));
    if (it != positions.end()) return it->second;
    if (key.empty()) return {0, 1, 1};
    const size_t dot = key.rfind('.');
    key = dot == absl::string_view::npos ? absl::string_view() : key.substr(0, dot);
  }
}

std::string FormatJobError(const JobError& error) {
  std::string line = error.file;
  if (error.line > 0) absl::StrAppend(&line, ":", error.line, ":", error.column);
  const bool key_is_said = error.file == absl::StrCat("--set ", error.key);
  if (!error.key.empty() && !key_is_said) absl::StrAppend(&line, ": ", error.key);
  return absl::StrCat(line, ": ", error.message);
}

std::string FormatJobErrors(const std::vector<JobError>& errors) {
  std::string text;
  for (const JobError& error : errors) absl::StrAppend(&text, FormatJobError(error), "\n");
  return text;
}

JobErrors::JobErrors(absl::string_view file, const std::vector<std::string>& overrides) {
  source_names_.emplace_back(file);
  for (const std::string& text : overrides) {
    const absl::string_view key = absl::string_view(text).substr(0, text.find('='));
    source_names_.push_back(absl::StrCat("--set ", KeyPath("", key)));
  }
}

void JobErrors::Add(Position at, absl::string_view key, absl::string_view message) {
  if (entries_.size() == kJobErrorsMax) {
    ++left_out_;
    return;
  }
  entries_.push_back({at, std::string(key), std::string(message)});
}

bool JobErrors::Touches(absl::string_view key) const {
  return std::any_of(entries_.begin(), entries_.end(), [&](const Entry& entry) {
    return IsAtOrBelow(entry.key, key) || IsAtOrBelow(key, entry.key);
  });
}

std::vector<JobError> JobErrors::Sorted() const {
  std::vector<Entry> entries = entries_;
  std::stable_sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) {
    return std::tie(a.at.source, a.at.line, a.at.column) <
           std::tie(b.at.source, b.at.line, b.at.column);
  });
  std::vector<JobError> errors;
  for (const Entry& entry : entries) {
    // No place within an override is told: the key says it.
    const bool in_file = entry.at.source == 0;
    errors.push_back({source_names_[entry.at.source], in_file ? entry.at.line : 0,
                      in_file ? entry.at.column : 0, entry.key, entry.message});
  }
  if (left_out_ > 0) {
    errors.push_back({source_names_[0], 0, 0, "", absl::StrCat(left_out_, " more errors")});
  }
  return errors;
}

std::string Quoted(absl::string_view text) {
  const bool cut = text.size() > kQuotedBytesMax;
  if (cut) {
    size_t end = kQuotedBytesMax;
    while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) --end;
    text = text.substr(0, end);
  }
  return absl::StrCat("\"", absl::Utf8SafeCEscape(text), cut ? "..." : "", "\"");
}

std::string KeyPath(absl::string_view path, absl::string_view name) {
  const bool plain = !name.empty() && name.size() <= kQuotedBytesMax &&
                     std::all_of(name.begin(), name.end(), [](char c) {
                       return absl::ascii_isalnum(c) || c == '_' || c == '-' || c == '.';
                     });
  return absl::StrCat(path, path.empty() ? "" : ".", plain ? std::string(name) : Quoted(name));
}

}  // namespace tessera
