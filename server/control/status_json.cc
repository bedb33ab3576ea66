#include "server/control/status_json.h"

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

#include <google/protobuf/descriptor.h>
#include <google/protobuf/message.h>
#include <google/protobuf/util/json_util.h>

namespace tessera {
namespace {

// The empty lists among an object's own members, with the places of what is in them, in order.
std::vector<std::pair<std::string, size_t>> EmptyListsOf(const std::string& object) {
  std::vector<std::pair<std::string, size_t>> lists;
  int depth = 0;
  size_t name_begin = 0, name_end = 0;  // of the last text
  for (size_t i = 0; i < object.size(); ++i) {
    const char c = object[i];
    if (c == '"') {
      name_begin = ++i;
      while (i < object.size() && object[i] != '"') i += object[i] == '\\' ? 2 : 1;
      name_end = i;
    } else if (c == '{' || c == '[') {
      if (depth == 1 && object.compare(i, 2, "[]") == 0) {
        lists.emplace_back(object.substr(name_begin, name_end - name_begin), i + 1);
      }
      ++depth;
    } else if (c == '}' || c == ']') {
      --depth;
    }
  }
  return lists;
}

}  // namespace

std::string MessageJson(const google::protobuf::Message& message) {
  google::protobuf::util::JsonPrintOptions options;
  options.preserve_proto_field_names = true;
  options.always_print_primitive_fields = true;
  std::string text;
  // Our own messages of plain fields always have a JSON form.
  (void)google::protobuf::util::MessageToJsonString(message, &text, options);
  return text;
}

// The writer of protobuf takes a hundred times a message's size. Its lists, which are nearly all of a large status, are
// written item by item, in the place where the rest has empty ones.
std::string StatusJson(const v1::JobStatus& status) {
  using google::protobuf::FieldDescriptor;
  const google::protobuf::Reflection& reflection = *status.GetReflection();
  std::vector<const FieldDescriptor*> fields;
  reflection.ListFields(status, &fields);
  v1::JobStatus rest = status;
  std::vector<const FieldDescriptor*> lists;
  for (const FieldDescriptor* field : fields) {
    if (!field->is_repeated() || field->message_type() == nullptr) continue;
    lists.push_back(field);
    reflection.ClearField(&rest, field);
  }
  const std::string frame = MessageJson(rest);
  std::string text;
  size_t taken = 0;
  for (const auto& [name, place] : EmptyListsOf(frame)) {
    const auto found = std::find_if(lists.begin(), lists.end(), [&name = name](const auto* list) {
      return list->name() == name;
    });
    if (found == lists.end()) continue;
    text.append(frame, taken, place - taken);
    taken = place;
    for (int i = 0; i < reflection.FieldSize(status, *found); ++i) {
      if (i > 0) text += ',';
      text += MessageJson(reflection.GetRepeatedMessage(status, *found, i));
    }
  }
  return text.append(frame, taken, frame.size() - taken);
}

}  // namespace tessera
