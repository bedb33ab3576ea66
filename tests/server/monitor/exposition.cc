#include "tests/server/monitor/exposition.h"

#include <prometheus/text_serializer.h>

#include <regex>

#include "absl/strings/str_split.h"

namespace tessera {

std::set<std::string> Exposition::names() const {
  std::set<std::string> result;
  for (const auto& [name, type] : types) result.insert(name);
  return result;
}

std::string TextOf(const std::vector<prometheus::MetricFamily>& families) {
  return prometheus::TextSerializer().Serialize(families);
}

Exposition Parse(const std::string& text) {
  static const std::regex kComment(R"(# (HELP|TYPE) ([a-z_][a-z0-9_]*) (.+))");
  static const std::regex kSample(
      R"re(([a-z_][a-z0-9_]*(\{[a-z_]+="([^"\\\n]|\\["\\n])*")re"
      R"re((,[a-z_]+="([^"\\\n]|\\["\\n])*")*\})?) ([-+.0-9a-zA-Z]+))re");
  Exposition result;
  for (const auto line : absl::StrSplit(text, '\n', absl::SkipEmpty())) {
    const std::string one(line);
    std::smatch match;
    if (std::regex_match(one, match, kComment)) {
      auto& of = match[1] == "HELP" ? result.help : result.types;
      if (!of.emplace(match[2], match[3]).second) result.errors.push_back(one);
    } else if (std::regex_match(one, match, kSample)) {
      if (!result.samples.emplace(match[1], std::stod(match[6])).second) {
        result.errors.push_back(one);
      }
    } else {
      result.errors.push_back(one);
    }
  }
  return result;
}

}  // namespace tessera
