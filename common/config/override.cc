#include "common/config/override.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/config/nearest_name.h"
#include "common/config/schema.h"

namespace tessera {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;

// Whether `text` has a # without quotes, behind a blank or at the beginning.
bool HasComment(absl::string_view text) {
  char quote = '\0', before = ' ';
  for (const char c : text) {
    const bool begins = absl::ascii_isspace(before);
    if (quote != '\0') {
      if (c == quote && before != '\\') quote = '\0';
    } else if ((c == '"' || c == '\'') &&
               (begins || before == c || absl::StrContains("[{,:", before))) {
      // A doubled quote ends the text, and goes on with it at once.
      quote = c;
    } else if (c == '#' && begins) {
      return true;
    }
    before = c;
  }
  return false;
}

// Whether the text is nothing, in YAML's words. What else the parser finds nothing in is a comment.
bool IsNothing(absl::string_view text) {
  constexpr absl::string_view kWords[] = {"", "~", "null", "Null", "NULL"};
  return std::find(std::begin(kWords), std::end(kWords), absl::StripAsciiWhitespace(text)) !=
         std::end(kWords);
}

// One override on its way down the tree.
class Change {
 public:
  // `text` is the value as it was typed.
  Change(Position at, absl::string_view path, absl::string_view text, YamlNode value,
         JobErrors* errors)
      : at_(at),
        path_(path),
        names_(absl::StrSplit(path, '.')),
        text_(text),
        value_(std::move(value)),
        errors_(*errors) {}

  // Enters `node`, a message of `type`, of which names_[depth] is a key.
  void Enter(const Descriptor& type, size_t depth, YamlNode* node) {
    const std::string& name = names_[depth];
    const FieldDescriptor* field = type.FindFieldByName(name);
    if (field == nullptr || !KeyOf(*field).written_below().empty() || KeyOf(*field).derived()) {
      const std::vector<std::string> names = NamesOf(KeysOf(type));
      const std::string near = DidYouMean(name, names);
      return Fail(
          absl::StrCat("unknown key ", Quoted(name),
                       near.empty() ? absl::StrCat(", want ", NamesList(KeysOf(type))) : near));
    }
    MakeMap(type, node);
    // Nothing is changed where something else stands in a map's place: whoever reads the tree says so.
    if (!node->is_map()) return;
    const bool is_last = depth + 1 == names_.size();
    if (!is_last || !value_.is_null() || IsMessage(*field)) TakeOutOtherMembers(*field, node);
    YamlNode* const value = ValueOf(name, node);
    if (is_last) return Replace(*field, value);
    const FieldDescriptor* const map_field = MapFieldOf(*field);
    if (map_field != nullptr && names_[depth + 1] == map_field->name()) {
      return EnterMapOfList(*map_field, depth + 1, value);
    }
    if (KeyOf(*field).map_of_names()) return EnterNamed(*field, depth + 1, value);
    if (field->is_repeated()) return EnterList(*field, depth + 1, value);
    if (!IsMessage(*field)) return Fail(absl::StrCat(Quoted(name), " has no keys below it"));
    const v1::Key& key = KeyOf(*field);
    if (value->is_scalar() && !key.scalar_to().empty()) *value = MapNode(key.scalar_to(), *value);
    if (value->is_list() && !key.list_to().empty()) *value = MapNode(key.list_to(), *value);
    Enter(*field->message_type(), depth + 1, value);
  }

 private:
  // Enters the map that stands, or now comes to stand, in the place of a list; its only key is `field`.
  void EnterMapOfList(const FieldDescriptor& field, size_t depth, YamlNode* map) {
    if (!map->is_map()) {
      *map = Empty();
      map->kind = YamlNode::Kind::kMap;
    }
    YamlNode* const value = ValueOf(field.name(), map);
    if (depth + 1 == names_.size()) return Replace(field, value);
    Enter(*field.message_type(), depth + 1, value);
  }

  // Enters the map that a list of named items is written as (Key::map_of_names); names_[depth] is the name of one.
  void EnterNamed(const FieldDescriptor& field, size_t depth, YamlNode* map) {
    if (map->is_null()) map->kind = YamlNode::Kind::kMap;
    if (!map->is_map()) return;
    const FieldDescriptor& content = *field.message_type()->field(1);
    YamlNode* const value = ValueOf(names_[depth], map);
    if (depth + 1 == names_.size()) return Replace(content, value);
    EnterList(content, depth + 1, value);
  }

  // Enters `list`, into which names_[depth] is an index.
  void EnterList(const FieldDescriptor& field, size_t depth, YamlNode* list) {
    if (list->is_scalar() && !IsMessage(field)) {
      YamlNode items;
      items.kind = YamlNode::Kind::kList;
      items.at = list->at;
      items.items.push_back(*list);
      *list = std::move(items);
    }
    if (list->is_null()) list->kind = YamlNode::Kind::kList;
    if (!list->is_list()) return;
    uint32_t index = 0;
    const size_t count = list->items.size();
    if (!absl::SimpleAtoi(names_[depth], &index) || index > count) {
      return Fail(absl::StrCat("got the index ", Quoted(names_[depth]), ", want 0 to ", count, " (",
                               count, " adds an item)"));
    }
    if (index == count) list->items.push_back(Empty());
    YamlNode* const item = &list->items[index];
    if (depth + 1 == names_.size()) return Replace(field, item);
    if (!IsMessage(field)) return Fail("an item has no keys below it");
    const v1::Key& key = KeyOf(field);
    if (item->is_list() && !key.list_to().empty()) *item = MapNode(key.list_to(), *item);
    Enter(*field.message_type(), depth + 1, item);
  }

  void MakeMap(const Descriptor& type, YamlNode* node) const {
    if (node->is_null()) {
      node->kind = YamlNode::Kind::kMap;
    } else if (node->is_scalar() && IsChoice(type) && HasBareNames(type)) {
      YamlNode defaults;
      defaults.at = node->at;
      *node = MapNode(node->text, defaults);
    }
  }

  void TakeOutOtherMembers(const FieldDescriptor& field, YamlNode* map) const {
    if (field.real_containing_oneof() == nullptr) return;
    for (const FieldDescriptor* member : FieldsOf(*field.real_containing_oneof())) {
      if (member == &field) continue;
      for (size_t i = map->keys.size(); i-- > 0;) {
        if (map->keys[i].name != member->name()) continue;
        map->keys.erase(map->keys.begin() + i);
        map->items.erase(map->items.begin() + i);
      }
    }
  }

  YamlNode Empty() const {
    YamlNode node;
    node.at = at_;
    return node;
  }

  YamlNode* ValueOf(const std::string& name, YamlNode* map) const {
    for (size_t i = 0; i < map->keys.size(); ++i) {
      if (map->keys[i].name == name) return &map->items[i];
    }
    map->keys.push_back({name, at_});
    map->items.push_back(Empty());
    return &map->items.back();
  }

  void Replace(const FieldDescriptor& field, YamlNode* node) {
    const bool is_plain =
        value_.is_scalar() ? !value_.quoted : value_.is_null() && !IsNothing(text_);
    if (is_plain) {
      const bool is_text =
          field.cpp_type() == FieldDescriptor::CPPTYPE_STRING && KeyOf(field).one_of().empty();
      value_ = ScalarNode(is_text ? text_ : absl::StripAsciiWhitespace(text_), value_.at);
    } else if (HasComment(text_)) {
      return Fail(
          "got what YAML takes for a comment, want quotes around text with # behind a blank");
    }
    *node = std::move(value_);
  }
  void Fail(const std::string& message) { errors_.Add(at_, KeyPath("", path_), message); }

  const Position at_;
  const std::string path_;
  const std::vector<std::string> names_;
  const absl::string_view text_;
  YamlNode value_;
  JobErrors& errors_;
};

}  // namespace

void ApplyOverrides(const std::vector<std::string>& overrides, const Descriptor& type,
                    YamlNode* root, JobErrors* errors) {
  for (size_t i = 0; i < overrides.size(); ++i) {
    const absl::string_view text = overrides[i];
    const Position at{static_cast<int>(i) + 1, 1, 1};
    const size_t equals = text.find('=');
    if (equals == absl::string_view::npos || equals == 0) {
      errors->Add(at, "", absl::StrCat("got ", Quoted(text), ", want KEY=VALUE, such as seed=1"));
      continue;
    }
    YamlNode value;
    if (!ParseYaml(text.substr(equals + 1), at.source, &value, errors)) continue;
    if (value.is_null()) value.at = at;  // the parser gives no place for no text at all
    Change(at, text.substr(0, equals), text.substr(equals + 1), std::move(value), errors)
        .Enter(type, 0, root);
  }
}

}  // namespace tessera
