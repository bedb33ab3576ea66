// YAML text as a plain tree with positions. The only file that knows yaml-cpp.
//
// What a job has no use for is refused: explicit tags, merge keys and keys that are not scalars, more than one
// document, control characters. Anchors and aliases work; what they expand to is bounded.
#ifndef TESSERA_COMMON_CONFIG_YAML_TREE_H_
#define TESSERA_COMMON_CONFIG_YAML_TREE_H_

#include <cstddef>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "common/config/job_error.h"

namespace tessera {

constexpr size_t kJobFileBytesMax = size_t{1} << 20;
// The most maps and lists within each other. The schema needs 7.
constexpr int kYamlDepthMax = 32;
// The most values of a tree, and bytes of their text, aliases expanded.
constexpr int kYamlValuesMax = 1 << 16;
constexpr size_t kYamlTextBytesMax = size_t{4} << 20;

struct YamlKey {
  std::string name;
  Position at;
};

struct YamlNode {
  enum class Kind { kNull, kScalar, kList, kMap };

  Kind kind = Kind::kNull;
  // A scalar's text, and whether it stood in quotes (or in a | or > block).
  std::string text;
  bool quoted = false;
  Position at;
  // A map's keys as written, repeated ones included; items[i] is the value of keys[i].
  std::vector<YamlKey> keys;
  // A list's items or a map's values.
  std::vector<YamlNode> items;

  bool is_null() const { return kind == Kind::kNull; }
  bool is_scalar() const { return kind == Kind::kScalar; }
  bool is_list() const { return kind == Kind::kList; }
  bool is_map() const { return kind == Kind::kMap; }
};

// A node that is a plain scalar.
YamlNode ScalarNode(absl::string_view text, Position at);
// A node that is the map {name: value}.
YamlNode MapNode(absl::string_view name, YamlNode value);

// What a node is, for messages: `"four"`, `a list`, `nothing`.
std::string DescribeNode(const YamlNode& node);

// Parses one document; no document is null. On an error adds it to `errors` and returns false.
bool ParseYaml(absl::string_view text, int source, YamlNode* root, JobErrors* errors);

}  // namespace tessera

#endif  // TESSERA_COMMON_CONFIG_YAML_TREE_H_
