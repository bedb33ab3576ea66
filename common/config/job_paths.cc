#include "common/config/job_paths.h"

#include <google/protobuf/message.h>

#include <filesystem>

#include "common/config/schema.h"

namespace tessera {
namespace {

using google::protobuf::Message;
using google::protobuf::Reflection;

// `path` below `directory`, in its shortest form; an empty path stays empty, and an absolute one stays where it
// is.
std::string Below(absl::string_view directory, absl::string_view path) {
  if (path.empty()) return "";
  const std::filesystem::path joined =
      std::filesystem::path(std::string(directory)) / std::string(path);
  std::string normal = joined.lexically_normal().string();
  if (normal.size() > 1 && normal.back() == '/') normal.pop_back();
  return normal;
}

// Makes every path of the message that starts at the job file start at `directory`.
void Resolve(absl::string_view directory, Message* message) {
  const Reflection& reflection = *message->GetReflection();
  for (const google::protobuf::FieldDescriptor* field : FieldsOf(*message->GetDescriptor())) {
    if (field->is_repeated()) continue;
    if (IsMessage(*field)) {
      if (reflection.HasField(*message, field)) {
        Resolve(directory, reflection.MutableMessage(message, field));
      }
    } else if (KeyOf(*field).path() == v1::PATH_JOB) {
      reflection.SetString(message, field, Below(directory, reflection.GetString(*message, field)));
    }
  }
}

// Adds every path that the message names, in the order of the schema.
void Collect(const Message& message, std::vector<std::string>* paths) {
  const Reflection& reflection = *message.GetReflection();
  for (const google::protobuf::FieldDescriptor* field : FieldsOf(*message.GetDescriptor())) {
    if (field->is_repeated()) continue;
    if (IsMessage(*field)) {
      if (reflection.HasField(message, field)) {
        Collect(reflection.GetMessage(message, field), paths);
      }
    } else if (KeyOf(*field).path() == v1::PATH_JOB) {
      const std::string path = reflection.GetString(message, field);
      if (!path.empty()) paths->push_back(path);
    }
  }
}

}  // namespace

std::vector<std::string> PathsOf(const v1::Job& job) {
  std::vector<std::string> paths;
  Collect(job, &paths);
  for (const v1::DataFiles* files : {&job.data().train(), &job.data().test()}) {
    for (const std::string& file : files->features()) paths.push_back(DataPath(job.data(), file));
    for (const std::string& file : files->labels()) {
      if (!file.empty()) paths.push_back(DataPath(job.data(), file));
    }
  }
  return paths;
}

void ResolveJobPaths(absl::string_view directory, v1::Job* job) { Resolve(directory, job); }

std::string DataPath(const v1::Data& data, absl::string_view file) {
  return Below(data.directory(), file);
}

}  // namespace tessera
