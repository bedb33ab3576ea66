#include "common/config/job_difference.h"

#include <algorithm>
#include <map>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "common/base/printable.h"
#include "common/config/job_digest.h"

namespace tessera {
namespace {

// The most bytes of a key or a value in a message; what is longer is cut.
constexpr size_t kWordBytesMax = 80;

using Values = std::map<absl::string_view, absl::string_view>;

// The values of a canonical text by their keys; lines that are none are passed over, as another build may have
// written them.
Values ValuesIn(absl::string_view text) {
  Values values;
  for (const absl::string_view line : absl::StrSplit(text, '\n')) {
    const size_t end = line.find('=');
    if (end != line.npos) values.emplace(line.substr(0, end), line.substr(end + 1));
  }
  return values;
}

std::optional<std::string> Find(const Values& values, absl::string_view key) {
  const auto found = values.find(key);
  if (found == values.end()) return std::nullopt;
  return std::string(found->second);
}

// A key or value for a message: of strangers, so that it is made printable and cut.
std::string Word(absl::string_view text) {
  if (text.size() <= kWordBytesMax) return ToPrintable(text);
  return absl::StrCat(ToPrintable(text.substr(0, kWordBytesMax)), "...");
}

std::string ValueWord(const std::optional<std::string>& value) {
  return value.has_value() ? Word(*value) : "not set";
}

}  // namespace

std::string JobTextToSend(const v1::Job& job) {
  std::string text = CanonicalJobText(job);
  return text.size() <= kJobTextBytesMax ? text : "";
}

std::vector<KeyDifference> DifferencesOf(absl::string_view given, absl::string_view wanted) {
  std::vector<KeyDifference> differences;
  for (const absl::string_view text : {given, wanted}) {
    if (text.empty() || text.size() > kJobTextBytesMax) return differences;
  }
  const Values have = ValuesIn(given), want = ValuesIn(wanted);
  Values all = have;
  all.insert(want.begin(), want.end());
  for (const auto& [key, value] : all) {
    KeyDifference difference{std::string(key), Find(have, key), Find(want, key)};
    if (difference.given != difference.wanted) differences.push_back(std::move(difference));
  }
  std::stable_partition(differences.begin(), differences.end(), [](const KeyDifference& key) {
    return key.given.has_value() && key.wanted.has_value();
  });
  return differences;
}

std::string Describe(absl::Span<const KeyDifference> differences) {
  const size_t named = std::min(differences.size(), kDifferencesNamed);
  std::vector<std::string> words;
  for (const KeyDifference& key : differences.subspan(0, named)) {
    words.push_back(absl::StrCat(Word(key.key), " is ", ValueWord(key.given), ", want ",
                                 ValueWord(key.wanted)));
  }
  if (const size_t more = differences.size() - named; more > 0) {
    words.push_back(absl::StrCat("and ", more, more == 1 ? " key more" : " keys more"));
  }
  return absl::StrJoin(words, "; ");
}

}  // namespace tessera
