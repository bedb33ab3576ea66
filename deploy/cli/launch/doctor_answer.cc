#include "deploy/cli/launch/doctor_answer.h"

#include "absl/strings/str_cat.h"
#include "nlohmann/json.hpp"

namespace tessera {
namespace {

// The text at a key; empty: there is none.
std::string TextAt(const nlohmann::json& object, const char* key) {
  if (!object.is_object() || !object.contains(key) || !object[key].is_string()) return "";
  return object[key].get<std::string>();
}

}  // namespace

std::vector<std::string> ProblemsOf(const std::string& text) {
  // Braces of nested objects are indented, and a greeting may have some.
  const size_t begin =
      text.rfind("\n{\n") == std::string::npos ? text.find('{') : text.rfind("\n{\n");
  const size_t end = text.rfind('}');
  if (begin == std::string::npos || end == std::string::npos || end < begin) return {};
  const nlohmann::json answer = nlohmann::json::parse(text.substr(begin, end + 1 - begin), nullptr,
                                                      /*allow_exceptions=*/false);
  std::vector<std::string> problems;
  if (!answer.is_object() || !answer.contains("findings") || !answer["findings"].is_array()) {
    return {};
  }
  for (const nlohmann::json& finding : answer["findings"]) {
    if (TextAt(finding, "kind") != "problem") continue;
    const std::string advice = TextAt(finding, "advice");
    problems.push_back(absl::StrCat(TextAt(finding, "what"),
                                    advice.empty() ? "" : absl::StrCat("\n    -> ", advice)));
  }
  return problems;
}

}  // namespace tessera
