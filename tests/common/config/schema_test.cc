// What the readers take for granted about job.proto, key by key.
#include "common/config/schema.h"

#include <catch2/catch.hpp>
#include <google/protobuf/message.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "common/base/limits.h"
#include "common/config/scalar.h"
#include "proto/job.pb.h"

namespace tessera {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::MessageFactory;

// Every field that a job can have, whatever is chosen. `path` is "Job.data.format".
void ForEachField(const Descriptor& type, const std::string& path,
                  const std::function<void(const std::string&, const FieldDescriptor&)>& visit) {
  REQUIRE(path.size() < 200);  // A message within itself has no defaults.
  for (const FieldDescriptor* field : FieldsOf(type)) {
    if (KeyOf(*field).derived()) continue;  // It is no key.
    const std::string below = path + "." + field->name();
    visit(below, *field);
    // Layers of a block are layers: lists of them are all that stands within itself.
    const bool is_block = path.find(".layers.") != std::string::npos && field->name() == "layers";
    if (IsMessage(*field) && !is_block && field->name() != "shortcut") {
      ForEachField(*field->message_type(), below, visit);
    }
  }
}

std::unique_ptr<Message> Empty(const Descriptor& type) {
  return std::unique_ptr<Message>(MessageFactory::generated_factory()->GetPrototype(&type)->New());
}

const v1::Key& KeyNamed(const Descriptor& type, const std::string& name) {
  const FieldDescriptor* field = type.FindFieldByName(name);
  REQUIRE(field != nullptr);
  return KeyOf(*field);
}

TEST_CASE("a job may ask for as many members as the programs can have", "[schema]") {
  CHECK(KeyNamed(*v1::Cluster::descriptor(), "workers").max() == kJobWorkersMax);
  CHECK(KeyNamed(*v1::LayerSeparation::descriptor(), "linear_workers").max() == kJobWorkersMax);
  CHECK(KeyNamed(*v1::Servers::descriptor(), "count").max() == kServersMax);
  CHECK(KeyNamed(*v1::Servers::descriptor(), "addresses").items_max() == kServersMax);
}

TEST_CASE("every default is a value that its key may have", "[schema]") {
  int defaults = 0;
  ForEachField(*v1::Job::descriptor(), "Job",
               [&](const std::string& path, const FieldDescriptor& field) {
                 const v1::Key& key = KeyOf(field);
                 if (key.default_value().empty()) return;
                 INFO(path);
                 ++defaults;
                 CHECK_FALSE(key.required());
                 if (IsMessage(field)) {
                   CHECK(HasBareNames(*field.message_type()));
                   CHECK(field.message_type()->FindFieldByName(key.default_value()) != nullptr);
                   return;
                 }
                 const std::unique_ptr<Message> message = Empty(*field.containing_type());
                 const std::optional<std::string> complaint =
                     SetScalar(key.default_value(), false, field, message.get());
                 INFO(complaint.value_or(""));
                 CHECK_FALSE(complaint);
               });
  CHECK(defaults >= 40);
}

TEST_CASE("a number without required has a default or is one of several keys", "[schema]") {
  ForEachField(*v1::Job::descriptor(), "Job",
               [](const std::string& path, const FieldDescriptor& field) {
                 INFO(path);
                 if (IsMessage(field) || field.is_repeated()) return;
                 if (field.cpp_type() == FieldDescriptor::CPPTYPE_STRING) return;
                 const v1::Key& key = KeyOf(field);
                 CHECK((key.required() || !key.default_value().empty() ||
                        field.real_containing_oneof() != nullptr));
               });
}

TEST_CASE("a choice is one oneof and nothing else", "[schema]") {
  ForEachField(*v1::Job::descriptor(), "Job",
               [](const std::string& path, const FieldDescriptor& field) {
                 INFO(path);
                 if (!IsMessage(field) || !IsChoice(*field.message_type())) return;
                 const Descriptor& type = *field.message_type();
                 REQUIRE(type.real_oneof_decl_count() == 1);
                 CHECK(type.oneof_decl(0)->field_count() == type.field_count());
                 CHECK_FALSE(NamesList(FieldsOf(type)).empty());
               });
}

TEST_CASE("short forms name fields of their kind", "[schema]") {
  ForEachField(
      *v1::Job::descriptor(), "Job", [](const std::string& path, const FieldDescriptor& field) {
        INFO(path);
        const v1::Key& key = KeyOf(field);
        if (!key.scalar_to().empty()) {
          const FieldDescriptor* to = field.message_type()->FindFieldByName(key.scalar_to());
          REQUIRE(to != nullptr);
          CHECK_FALSE((IsMessage(*to) || to->is_repeated()));
        }
        if (!key.list_to().empty()) {
          const FieldDescriptor* to = field.message_type()->FindFieldByName(key.list_to());
          REQUIRE(to != nullptr);
          CHECK(to->is_repeated());
        }
      });
}

}  // namespace
}  // namespace tessera
