#include "common/rpc/reflection_service.h"

#include <google/protobuf/descriptor.h>
#include <google/protobuf/descriptor.pb.h>
#include <grpcpp/impl/server_builder_plugin.h>
#include <grpcpp/impl/server_initializer.h>
#include <grpcpp/server_builder.h>

#include <memory>
#include <set>

#include "absl/strings/str_cat.h"

namespace tessera {
namespace {

namespace reflection = grpc::reflection::v1;
using google::protobuf::Descriptor;
using google::protobuf::DescriptorPool;
using google::protobuf::FieldDescriptor;
using google::protobuf::FileDescriptor;
using Request = reflection::ServerReflectionRequest;
using Response = reflection::ServerReflectionResponse;

// Adds `file` and all files that it imports, each once.
void AddFiles(const FileDescriptor& file, std::set<const FileDescriptor*>* seen,
              reflection::FileDescriptorResponse* response) {
  // Imports form a graph: each file is sent once, however many others import it.
  if (!seen->insert(&file).second) return;
  google::protobuf::FileDescriptorProto proto;
  file.CopyTo(&proto);
  response->add_file_descriptor_proto(proto.SerializeAsString());
  for (int i = 0; i < file.dependency_count(); ++i) AddFiles(*file.dependency(i), seen, response);
}

void SetError(grpc::StatusCode code, const std::string& text, Response* response) {
  response->mutable_error_response()->set_error_code(code);
  response->mutable_error_response()->set_error_message(text);
}

// Answers with `file`; nullptr: that there is none.
void SetFile(const FileDescriptor* file, const std::string& what, Response* response) {
  if (file == nullptr) {
    SetError(grpc::NOT_FOUND, absl::StrCat("reflection: ", what, " is not known here"), response);
    return;
  }
  std::set<const FileDescriptor*> seen;
  AddFiles(*file, &seen, response->mutable_file_descriptor_response());
}

// Answers with the file that has this extension, or with NOT_FOUND.
void SetExtension(const reflection::ExtensionRequest& request, Response* response) {
  const DescriptorPool& pool = *DescriptorPool::generated_pool();
  const Descriptor* const type = pool.FindMessageTypeByName(request.containing_type());
  const FieldDescriptor* const field =
      type == nullptr ? nullptr : pool.FindExtensionByNumber(type, request.extension_number());
  SetFile(field == nullptr ? nullptr : field->file(),
          absl::StrCat("extension ", request.extension_number(), " of ", request.containing_type()),
          response);
}

// Answers with the numbers of all extensions of a type that are linked in.
void SetExtensionNumbers(const std::string& name, Response* response) {
  const DescriptorPool& pool = *DescriptorPool::generated_pool();
  const Descriptor* const type = pool.FindMessageTypeByName(name);
  if (type == nullptr) {
    SetFile(nullptr, name, response);
    return;
  }
  reflection::ExtensionNumberResponse& numbers =
      *response->mutable_all_extension_numbers_response();
  numbers.set_base_type_name(name);
  std::vector<const FieldDescriptor*> extensions;
  pool.FindAllExtensions(type, &extensions);
  for (const FieldDescriptor* const field : extensions) {
    numbers.add_extension_number(field->number());
  }
}

// One conversation. Deletes itself when it is over.
class Conversation final : public grpc::ServerBidiReactor<Request, Response> {
 public:
  explicit Conversation(const std::vector<std::string>* services) : services_(*services) {
    // A client asks as often as it likes within one call.
    StartRead(&request_);
  }
  void OnReadDone(bool ok) override {
    // The client is done: the conversation ends well.
    if (!ok) {
      Finish(grpc::Status::OK);
      return;
    }
    // One answer is written before the next question is read, so that one request and response suffice.
    response_ = AnswerReflection(request_, services_);
    StartWrite(&response_);
  }
  void OnWriteDone(bool ok) override {
    if (ok) {
      StartRead(&request_);
    } else {
      Finish(grpc::Status::CANCELLED);
    }
  }
  void OnDone() override { delete this; }

 private:
  const std::vector<std::string>& services_;
  Request request_;
  Response response_;
};

class ReflectionService final : public reflection::ServerReflection::CallbackService {
 public:
  // Called before the first call is served.
  void SetServices(const std::vector<std::string>& names) { services_ = names; }
  grpc::ServerBidiReactor<Request, Response>* ServerReflectionInfo(
      grpc::CallbackServerContext*) override {
    return new Conversation(&services_);
  }

 private:
  std::vector<std::string> services_;
};

class ReflectionPlugin final : public grpc::ServerBuilderPlugin {
 public:
  std::string name() override { return "tessera reflection v1"; }
  void InitServer(grpc::ServerInitializer* server) override { server->RegisterService(service_); }
  // gRPC knows all services only now, when every plugin and caller has registered its own.
  void Finish(grpc::ServerInitializer* server) override {
    service_->SetServices(*server->GetServiceList());
  }
  void ChangeArguments(const std::string&, void*) override {}

 private:
  const std::shared_ptr<ReflectionService> service_ = std::make_shared<ReflectionService>();
};

}  // namespace

reflection::ServerReflectionResponse AnswerReflection(
    const reflection::ServerReflectionRequest& request, const std::vector<std::string>& services) {
  const DescriptorPool& pool = *DescriptorPool::generated_pool();
  Response response;
  response.set_valid_host(request.host());
  // Clients match answers with questions by the request that is repeated here.
  *response.mutable_original_request() = request;
  switch (request.message_request_case()) {
    case Request::kFileByFilename:
      SetFile(pool.FindFileByName(request.file_by_filename()), request.file_by_filename(),
              &response);
      break;
    case Request::kFileContainingSymbol:
      SetFile(pool.FindFileContainingSymbol(request.file_containing_symbol()),
              request.file_containing_symbol(), &response);
      break;
    case Request::kFileContainingExtension:
      SetExtension(request.file_containing_extension(), &response);
      break;
    case Request::kAllExtensionNumbersOfType:
      SetExtensionNumbers(request.all_extension_numbers_of_type(), &response);
      break;
    case Request::kListServices:
      for (const std::string& name : services) {
        response.mutable_list_services_response()->add_service()->set_name(name);
      }
      break;
    case Request::MESSAGE_REQUEST_NOT_SET:
      SetError(grpc::INVALID_ARGUMENT, "reflection: nothing is asked for", &response);
      break;
  }
  return response;
}

void AddReflectionToServers() {
  grpc::ServerBuilder::InternalAddPluginFactory([] {
    return std::unique_ptr<grpc::ServerBuilderPlugin>(std::make_unique<ReflectionPlugin>());
  });
}

}  // namespace tessera
