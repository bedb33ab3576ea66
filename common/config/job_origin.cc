#include "common/config/job_origin.h"

#include <google/protobuf/util/json_util.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <system_error>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/string_view.h"
#include "absl/time/clock.h"
#include "common/base/utf8.h"

namespace tessera {
namespace {

constexpr size_t kHostNameBytesMax = 256;

// Quotes `text` so that a shell reads it as one word.
std::string ArgumentWord(absl::string_view text) {
  const bool is_plain = !text.empty() && std::all_of(text.begin(), text.end(), [](char c) {
    return absl::ascii_isalnum(static_cast<unsigned char>(c)) || absl::StrContains("_-./:=,+@%", c);
  });
  if (is_plain) return std::string(text);
  return absl::StrCat("'", absl::StrReplaceAll(text, {{"'", "'\\''"}}), "'");
}

std::string HostName() {
  char name[kHostNameBytesMax] = {};
  return gethostname(name, sizeof(name) - 1) == 0 ? name : "";
}

// The path from the root folder. What can be read but once is named as it was.
std::string FromRoot(const std::string& path) {
  std::error_code error;
  if (!std::filesystem::is_regular_file(path, error)) return path;
  const std::filesystem::path whole = std::filesystem::absolute(path, error);
  return error ? path : whole.lexically_normal().string();
}

}  // namespace

v1::JobOrigin OriginOf(absl::Span<char* const> arguments, const std::string& job_path,
                       const std::vector<std::string>& overrides) {
  std::vector<std::string> words;
  for (const char* const argument : arguments) words.push_back(ArgumentWord(argument));
  v1::JobOrigin origin;
  // Paths and flags may be any bytes; the message is UTF-8.
  origin.set_job_file(ToUtf8(FromRoot(job_path)));
  for (const std::string& override : overrides) origin.add_overrides(ToUtf8(override));
  origin.set_started_ns(absl::GetCurrentTimeNanos());
  origin.set_host(ToUtf8(HostName()));
  origin.set_command(ToUtf8(absl::StrJoin(words, " ")));
  return origin;
}

std::string OriginText(const v1::JobOrigin& origin) {
  std::string text;
  // The conversion cannot fail: our own message of plain fields always has a JSON form.
  (void)google::protobuf::util::MessageToJsonString(origin, &text);
  return text;
}

absl::StatusOr<v1::JobOrigin> OriginOfText(const std::string& text) {
  v1::JobOrigin origin;
  const auto status = google::protobuf::util::JsonStringToMessage(text, &origin);
  if (status.ok()) return origin;
  return absl::InvalidArgumentError(
      absl::StrCat("got \"", text, "\", want what tessera run gives its first server"));
}

}  // namespace tessera
