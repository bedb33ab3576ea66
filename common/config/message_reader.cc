#include "common/config/message_reader.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/config/nearest_name.h"
#include "common/config/scalar.h"

namespace tessera {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::Message;

// "exactly one of a, b", or the only name that there is.
std::string OneOf(const FieldList& members) {
  const std::string names = NamesList(members);
  return absl::StrCat(names.find(',') == std::string::npos ? "" : "exactly one of ", names);
}

// What is wanted where a message stands, in words.
std::string WantedMessage(const Descriptor& type) {
  const std::string names = NamesList(KeysOf(type));
  if (IsChoice(type)) return OneOf(FieldsOf(type));
  if (names.empty()) return "{}";
  return absl::StrCat("a map of ", names);
}

// The list of a message's fields as people write it: "[tensor, dimension]".
std::string WantedInOrder(const Descriptor& type) {
  return absl::StrCat("[", NamesList(FieldsOf(type)), "]");
}

std::string Wanted(const FieldDescriptor& field) {
  if (field.is_repeated()) return IsMessage(field) ? "a list" : "a value or a list";
  return IsMessage(field) ? WantedMessage(*field.message_type()) : WantedScalar(field);
}

// What is wrong with a key that the schema does not have, with the name that was meant perhaps.
std::string UnknownKey(const std::string& name, const FieldList& fields) {
  const FieldDescriptor* const elsewhere =
      fields.empty() ? nullptr : fields[0]->containing_type()->FindFieldByName(name);
  if (elsewhere != nullptr && !KeyOf(*elsewhere).written_below().empty()) {
    return absl::StrCat("unknown key, want it below ", KeyOf(*elsewhere).written_below(), ": {",
                        name, ": {...}}");
  }
  const std::string near = DidYouMean(name, NamesOf(fields));
  if (!near.empty()) return absl::StrCat("unknown key", near);
  if (fields.empty()) return "unknown key, want none here";
  return absl::StrCat("unknown key, want ", NamesList(fields));
}

// What is wrong with a key that jobs of the other kind have.
std::string KeyOfOtherJobs(bool of_tensors) {
  return of_tensors ? "got a value beside model.tensors, want no such key: layers, data and "
                      "minibatches are then the workers' own"
                    : "got a value without model.tensors, want no such key: it is for jobs of "
                      "tensors (docs/own_models.md)";
}

// `value` as the map that the short forms of `field` stand for.
YamlNode Expanded(const YamlNode& value, const FieldDescriptor& field) {
  const v1::Key& key = KeyOf(field);
  if (value.is_scalar() && !key.scalar_to().empty()) return MapNode(key.scalar_to(), value);
  if (value.is_list() && !key.list_to().empty()) return MapNode(key.list_to(), value);
  if (value.is_list() && key.in_order()) {
    // The values are the fields', one after the other.
    const FieldList fields = FieldsOf(*field.message_type());
    YamlNode map;
    map.kind = YamlNode::Kind::kMap;
    map.at = value.at;
    for (size_t i = 0; i < value.items.size() && i < fields.size(); ++i) {
      map.keys.push_back({fields[i]->name(), value.items[i].at});
      map.items.push_back(value.items[i]);
    }
    return map;
  }
  return value;
}

// Whether the name of an item can be a part of a key's path and of a message.
bool IsName(const std::string& name) {
  constexpr size_t kNameBytesMax = 256;
  return !name.empty() && name.size() <= kNameBytesMax &&
         std::all_of(name.begin(), name.end(), [](char c) {
           return absl::ascii_isalnum(c) || c == '_' || c == '-' || c == '.';
         });
}

}  // namespace

void MessageReader::Read(const YamlNode& node, const std::string& path, Position at,
                         Message* message) {
  const Descriptor& type = *message->GetDescriptor();
  if (IsChoice(type)) {
    ReadChoice(node, path, at, message);
  } else if (node.is_null() || node.is_map()) {
    ReadKeys(node, path, at, message);
  } else {
    errors_.Add(node.at, path,
                absl::StrCat("got ", DescribeNode(node), ", want ", WantedMessage(type)));
  }
}

void MessageReader::ReadKeys(const YamlNode& map, const std::string& path, Position at,
                             Message* message) {
  const Descriptor& type = *message->GetDescriptor();
  const FieldList fields = KeysOf(type);
  const std::vector<int> places = MatchKeys(map, path, fields);
  CheckOneofs(map, path, at, type);
  for (size_t i = 0; i < fields.size(); ++i) {
    const FieldDescriptor& field = *fields[i];
    const std::string field_path = KeyPath(path, field.name());
    if (places[i] < 0) {
      FillAbsent(field, field_path, at, /*is_null=*/false, message);
      continue;
    }
    const YamlNode& value = map.items[places[i]];
    if (!IsKeyIn(field, of_tensors_)) {
      if (!value.is_null()) {
        errors_.Add(map.keys[places[i]].at, field_path, KeyOfOtherJobs(of_tensors_));
      }
      continue;
    }
    // A scalar that is null is absent; a message that is null has all its defaults.
    if (value.is_null() && !IsMessage(field)) {
      FillAbsent(field, field_path, value.at, /*is_null=*/true, message);
      continue;
    }
    const Position key_at = map.keys[places[i]].at;
    // A --set that replaces the whole value answers for what it lacks, and not the file, which has the key.
    const bool is_replaced = value.at.source != key_at.source;
    ReadField(value, is_replaced ? value.at : key_at, field, field_path, message);
  }
}

void MessageReader::ReadChoice(const YamlNode& node, const std::string& path, Position at,
                               Message* message) {
  const Descriptor& type = *message->GetDescriptor();
  if (node.is_null() || (node.is_map() && node.items.empty())) {
    errors_.Add(at, path, absl::StrCat("got nothing, want ", WantedMessage(type)));
    return;
  }
  const bool bare = node.is_scalar() && HasBareNames(type);
  if (!node.is_map() && !bare) {
    errors_.Add(
        node.at, path,
        absl::StrCat("got ", DescribeNode(node), ", want a map with ", WantedMessage(type)));
    return;
  }
  if (bare && type.FindFieldByName(node.text) == nullptr) {
    errors_.Add(node.at, path,
                absl::StrCat("got ", DescribeNode(node), ", want ", WantedMessage(type),
                             DidYouMean(node.text, NamesOf(FieldsOf(type)))));
    return;
  }
  if (bare) {
    YamlNode defaults;
    defaults.at = node.at;
    ReadKeys(MapNode(node.text, defaults), path, at, message);
  } else {
    ReadKeys(node, path, at, message);
  }
}

std::vector<int> MessageReader::MatchKeys(const YamlNode& map, const std::string& path,
                                          const FieldList& fields) {
  std::vector<int> places(fields.size(), -1);
  std::map<std::string, Position> seen;
  for (size_t k = 0; k < map.keys.size(); ++k) {
    const YamlKey& key = map.keys[k];
    const auto [earlier, fresh] = seen.emplace(key.name, key.at);
    if (!fresh) {
      const Position& first = earlier->second;
      errors_.Add(key.at, KeyPath(path, key.name),
                  absl::StrCat("written twice, first at ", first.line, ":", first.column,
                               ", want it once"));
      continue;
    }
    size_t i = 0;
    while (i < fields.size() && fields[i]->name() != key.name) ++i;
    if (i < fields.size()) {
      places[i] = static_cast<int>(k);
    } else {
      errors_.Add(key.at, KeyPath(path, key.name), UnknownKey(key.name, fields));
    }
  }
  return places;
}

void MessageReader::CheckOneofs(const YamlNode& map, const std::string& path, Position at,
                                const Descriptor& type) {
  for (int i = 0; i < type.real_oneof_decl_count(); ++i) {
    FieldList members = FieldsOf(*type.oneof_decl(i));
    members.erase(std::remove_if(members.begin(), members.end(),
                                 [this](const FieldDescriptor* field) {
                                   return !IsKeyIn(*field, of_tensors_);
                                 }),
                  members.end());
    std::string given;
    bool unknown = false;
    int count = 0;
    int null = -1;
    for (size_t k = 0; k < map.keys.size(); ++k) {
      const FieldDescriptor* field = type.FindFieldByName(map.keys[k].name);
      unknown = unknown || field == nullptr;
      if (field == nullptr || field->real_containing_oneof() != type.oneof_decl(i)) continue;
      if (!IsKeyIn(*field, of_tensors_)) continue;
      if (map.items[k].is_null() && !IsMessage(*field)) {
        null = static_cast<int>(k);
        continue;
      }
      if (count > 0 && map.keys[k].name == given) continue;  // Written twice: reported as such.
      if (++count == 1) given = map.keys[k].name;
      if (count < 2) continue;
      errors_.Add(
          map.keys[k].at, path,
          absl::StrCat("got both ", given, " and ", map.keys[k].name, ", want ", OneOf(members)));
    }
    if (count > 0 || unknown) continue;
    if (null < 0) {
      errors_.Add(at, path, absl::StrCat("missing a key, want ", OneOf(members)));
    } else {
      errors_.Add(map.items[null].at, path,
                  absl::StrCat("got nothing for ", map.keys[null].name, ", want ", OneOf(members)));
    }
  }
}

void MessageReader::ReadField(const YamlNode& value, Position key_at, const FieldDescriptor& field,
                              const std::string& path, Message* message) {
  const v1::Key& key = KeyOf(field);
  const FieldDescriptor* const map_field = MapFieldOf(field);
  if (map_field != nullptr && value.is_map()) {
    ReadMapOfList(value, *map_field, path, message);
  } else if (key.map_of_names()) {
    ReadNamed(value, field, path, message);
  } else if (field.is_repeated()) {
    ReadList(value, field, path, message);
  } else if (IsMessage(field)) {
    positions_[path] = key_at;
    if (value.is_list() && value.items.empty() && !key.list_to().empty()) {
      errors_.Add(value.at, path,
                  "got an empty list, want one with items; without the key the default holds");
      return;
    }
    // One address is a list of one, which nobody who has one thinks of.
    const bool takes_both = !key.list_to().empty() && !key.scalar_to().empty();
    if (takes_both && value.is_scalar() && absl::StrContains(value.text, ':')) {
      errors_.Add(value.at, path,
                  absl::StrCat("got ", DescribeNode(value), ", want a number, or a list: [",
                               value.text, "]"));
      return;
    }
    Message* part = message->GetReflection()->MutableMessage(message, &field);
    Read(Expanded(value, field), path, key_at, part);
  } else {
    ReadScalar(value, field, path, message);
  }
}

void MessageReader::ReadMapOfList(const YamlNode& map, const FieldDescriptor& field,
                                  const std::string& path, Message* message) {
  positions_[path] = map.at;
  const std::vector<int> places = MatchKeys(map, path, {&field});
  if (places[0] < 0) {
    if (map.keys.empty()) {
      errors_.Add(map.at, path,
                  absl::StrCat("got an empty map, want a list, or ", field.name(), ": {...}"));
    }
    return;
  }
  const YamlNode& value = map.items[static_cast<size_t>(places[0])];
  ReadField(value, map.keys[static_cast<size_t>(places[0])].at, field, KeyPath(path, field.name()),
            message);
}

void MessageReader::ReadNamed(const YamlNode& value, const FieldDescriptor& field,
                              const std::string& path, Message* message) {
  positions_[path] = value.at;
  const Descriptor& type = *field.message_type();
  const FieldDescriptor& content = *type.field(1);
  if (value.is_null()) return;
  if (!value.is_map()) {
    errors_.Add(
        value.at, path,
        absl::StrCat("got ", DescribeNode(value), ", want a map of ", content.name(), " by name"));
    return;
  }
  const int most = KeyOf(field).items_max();
  if (static_cast<int64_t>(value.keys.size()) > most) {
    errors_.Add(value.at, path,
                absl::StrCat("got ", value.keys.size(), " names, want at most ", most));
    return;
  }
  std::map<std::string, size_t> order;
  for (size_t i = 0; i < value.keys.size(); ++i) {
    const YamlKey& key = value.keys[i];
    if (!IsName(key.name)) {
      errors_.Add(key.at, path,
                  absl::StrCat("got the name ", Quoted(key.name),
                               ", want 1 to 256 letters, digits, \"_\", \"-\" and \".\""));
    } else if (const auto [earlier, fresh] = order.emplace(key.name, i); !fresh) {
      const Position& first = value.keys[earlier->second].at;
      errors_.Add(key.at, KeyPath(path, key.name),
                  absl::StrCat("written twice, first at ", first.line, ":", first.column,
                               ", want it once"));
    }
  }
  // The map is ordered by name, so that the order in which they are written says nothing.
  for (const auto& [name, i] : order) {
    Message* const item = message->GetReflection()->AddMessage(message, &field);
    item->GetReflection()->SetString(item, type.field(0), name);
    ReadField(value.items[i], value.keys[i].at, content, KeyPath(path, name), item);
  }
}

void MessageReader::ReadList(const YamlNode& value, const FieldDescriptor& field,
                             const std::string& path, Message* message) {
  positions_[path] = value.at;
  const v1::Key& key = KeyOf(field);
  if (!IsMessage(field) && value.is_scalar()) {
    // An empty text is what a list that may be absent was before it was one.
    const bool is_text = field.cpp_type() == FieldDescriptor::CPPTYPE_STRING;
    if (is_text && value.text.empty() && !key.required()) return;
    ReadScalar(value, field, path, message);
    return;
  }
  if (!value.is_list()) {
    errors_.Add(value.at, path, absl::StrCat("got ", DescribeNode(value), ", want a list"));
    return;
  }
  const int count = static_cast<int>(value.items.size());
  if (count < key.items_min() || (key.items_max() > 0 && count > key.items_max())) {
    errors_.Add(value.at, path,
                absl::StrCat("got a list of ", count, ", want ", key.items_min(), " to ",
                             key.items_max(), " items"));
    return;
  }
  for (int i = 0; i < count; ++i) {
    const YamlNode& item = value.items[i];
    const std::string item_path = absl::StrCat(path, ".", i);
    if (!IsMessage(field)) {
      ReadScalar(item, field, item_path, message);
      continue;
    }
    positions_[item_path] = item.at;
    if (key.in_order()) {
      const size_t wanted = FieldsOf(*field.message_type()).size();
      if (!item.is_list() || item.items.size() != wanted) {
        const std::string got =
            item.is_list() ? absl::StrCat("a list of ", item.items.size()) : DescribeNode(item);
        errors_.Add(item.at, item_path,
                    absl::StrCat("got ", got, ", want ", WantedInOrder(*field.message_type())));
        continue;
      }
    }
    Read(Expanded(item, field), item_path, item.at,
         message->GetReflection()->AddMessage(message, &field));
  }
}

void MessageReader::ReadScalar(const YamlNode& value, const FieldDescriptor& field,
                               const std::string& path, Message* message) {
  positions_[path] = value.at;
  if (!value.is_scalar()) {
    errors_.Add(value.at, path,
                absl::StrCat("got ", DescribeNode(value), ", want ", WantedScalar(field)));
    return;
  }
  const std::optional<std::string> complaint = SetScalar(value.text, value.quoted, field, message);
  if (complaint) errors_.Add(value.at, path, *complaint);
}

void MessageReader::FillAbsent(const FieldDescriptor& field, const std::string& path, Position at,
                               bool is_null, Message* message) {
  const v1::Key& key = KeyOf(field);
  if (!IsKeyIn(field, of_tensors_)) return;
  if (key.required()) {
    errors_.Add(at, path,
                absl::StrCat(is_null ? "got nothing" : "missing", ", want ", Wanted(field)));
    return;
  }
  if (field.real_containing_oneof() != nullptr) return;
  const bool is_empty_list = field.is_repeated() && key.default_value().empty();
  if (is_empty_list && IsMessage(field)) return;
  if (!IsMessage(field)) {
    if (key.default_value().empty()) {
      // Whoever needs a value after all says where it was taken away.
      if (is_null) positions_[path] = at;
      return;
    }
    const std::optional<std::string> complaint =
        SetScalar(key.default_value(), false, field, message);
    TESSERA_CHECK(!complaint);
    return;
  }
  YamlNode defaults;
  defaults.at = at;
  if (IsChoice(*field.message_type())) {
    if (key.default_value().empty()) return;
    defaults = ScalarNode(key.default_value(), at);
  }
  Read(defaults, path, at, message->GetReflection()->MutableMessage(message, &field));
}

}  // namespace tessera
