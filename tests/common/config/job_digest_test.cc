#include "common/config/job_digest.h"

#include <catch2/catch.hpp>
#include <google/protobuf/message.h>

#include <functional>
#include <memory>
#include <set>
#include <string>

#include "common/config/schema.h"
#include "tests/common/config/job_text.h"

namespace tessera {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;

// Keys that may differ between the processes of a job. One more here is one more thing in which they may disagree
// without being told: the contract's, and whatever changes neither values nor what is exchanged.
const std::set<std::string>& LocalKeys() {
  static const auto* const keys = new std::set<std::string>{
      "checkpoint.directory",
      "checkpoint.restore",
      "cluster.coordinator.directory",
      "cluster.coordinator.etcd",
      "cluster.cudnn",
      "cluster.device",
      "cluster.evaluation_memory",
      "cluster.memory_limit",
      "cluster.threads",
      "cluster.transport",
      "data.directory",
      "data.memory",
      "data.test.features",
      "data.test.labels",
      "data.threads",
      "data.train.features",
      "data.train.labels",
      "model.init",
      "model.tensors",
      "security.authority",
      "security.certificate",
      "security.private_key",
      "security.token_file",
  };
  return *keys;
}

// Another value of the same type.
void Change(const FieldDescriptor& field, Message* message) {
  const Reflection& r = *message->GetReflection();
  if (field.is_repeated()) {
    if (field.cpp_type() == FieldDescriptor::CPPTYPE_INT64) {
      r.AddInt64(message, &field, 3);
    } else if (field.cpp_type() == FieldDescriptor::CPPTYPE_DOUBLE) {
      r.AddDouble(message, &field, 3);
    } else {
      r.AddString(message, &field, "more");
    }
    return;
  }
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_INT64:
      return r.SetInt64(message, &field, r.GetInt64(*message, &field) + 1);
    case FieldDescriptor::CPPTYPE_UINT64:
      return r.SetUInt64(message, &field, r.GetUInt64(*message, &field) + 1);
    case FieldDescriptor::CPPTYPE_DOUBLE:
      return r.SetDouble(message, &field, r.GetDouble(*message, &field) + 0x1p-40);
    case FieldDescriptor::CPPTYPE_BOOL:
      return r.SetBool(message, &field, !r.GetBool(*message, &field));
    default:
      return r.SetString(message, &field, r.GetString(*message, &field) + "x");
  }
}

using Visit = std::function<void(const std::string&, const FieldDescriptor&, Message*)>;

// Calls `visit` for every field that is no message, of `message` and of all it could hold: each
// member of each choice is put into it in turn. `message` is as it was at the end.
void VisitScalars(const std::string& path, Message* message, const Visit& visit) {
  const Reflection& r = *message->GetReflection();
  for (const FieldDescriptor* field : FieldsOf(*message->GetDescriptor())) {
    const std::string below = path.empty() ? field->name() : path + "." + field->name();
    const std::unique_ptr<Message> before(message->New());
    before->CopyFrom(*message);
    if (!IsMessage(*field)) {
      visit(below, *field, message);
    } else if (path.find(".layers.") != std::string::npos &&
               (field->name() == "layers" || field->name() == "shortcut")) {
      // The layers of a block are layers, as those around it.
    } else if (field->is_repeated()) {
      VisitScalars(below, r.AddMessage(message, field), visit);
    } else {
      VisitScalars(below, r.MutableMessage(message, field), visit);
    }
    message->CopyFrom(*before);
  }
}

TEST_CASE("the digest sees every key that is not local, and no other", "[job_digest]") {
  v1::Job job = Good(kJob);
  std::set<std::string> unseen;
  int shared = 0;
  const Visit visit = [&](const std::string& path, const FieldDescriptor& field, Message* message) {
    INFO(path);
    // Some keys only a job of tensors has.
    const bool of_tensors = KeyOf(field).only_in() == v1::JOBS_OF_TENSORS ||
                            path == "model.tensors" || path.find("model.groups.") == 0;
    if (of_tensors) job.mutable_model()->mutable_tensor_layout()->set_sum(5);
    const std::string before = JobDigest(job);
    Change(field, message);
    CHECK(KeyOf(field).local() == (LocalKeys().count(path) > 0));
    if (JobDigest(job) == before) {
      unseen.insert(path);
    } else {
      ++shared;
    }
    if (of_tensors) job.mutable_model()->clear_tensor_layout();
  };
  VisitScalars("", &job, visit);
  CHECK(unseen == LocalKeys());
  CHECK(shared >= 60);
}

TEST_CASE("the keys that may differ between machines are those of the contract", "[job_digest]") {
  const std::string digest = JobDigest(Good(kJob));
  CHECK(JobDigest(Good(kJob, {"cluster.threads=8", "cluster.cudnn=false",
                              "cluster.memory_limit=1GiB", "data.directory=/else",
                              "data.train.features=p", "data.test.labels=r"})) == digest);
}

TEST_CASE("each member of a choice has a digest of its own", "[job_digest]") {
  const std::string one = JobDigest(Good(kJob, {"method.data_parallel="}));
  const std::string other = JobDigest(Good(kJob, {"method.local_sgd="}));
  const std::string third = JobDigest(Good(kJob, {"method.async_sgd="}));
  CHECK(one != other);
  CHECK(one != third);
  CHECK(other != third);
  CHECK(JobDigest(Good(kJob, {"model.layers.2=relu"})) !=
        JobDigest(Good(kJob, {"model.layers.2=batch_norm"})));
}

TEST_CASE("the digest does not depend on how a job is written", "[job_digest]") {
  const std::string digest = JobDigest(Good(kJob));
  const auto digest_with = [](const std::string& from, const std::string& to) {
    return JobDigest(Good(JobWith(from, to)));
  };
  CHECK(digest_with("learning_rate: 0.1", "learning_rate: 1.0e-1") == digest);
  CHECK(digest_with("lease_timeout: 10s", "lease_timeout: 10000ms") == digest);
  CHECK(digest_with("lease_timeout: 10s", "lease_timeout: \"10s\"") == digest);
  CHECK(digest_with("name: small\nseed: 7\n", "seed: 7 # first\nname: 'small'\n") == digest);
  CHECK(digest_with("servers: 2, workers: 2", "workers: 2, servers: {count: 2}") == digest);
  CHECK(digest_with("security: {}\n", "") == digest);
  CHECK(JobDigest(Good(kJob, {"method=ssp"})) ==
        JobDigest(Good(kJob, {"method={ssp: {bound: 2}}"})));
}

TEST_CASE("text cannot pass for another line of the canonical text", "[job_digest]") {
  v1::Job job = Good(kJob);
  job.set_name("a\"\nseed=8");
  CHECK(CanonicalJobText(job).find("\nseed=8") == std::string::npos);
}

TEST_CASE("what another build has written in a canonical text is left out", "[job_digest]") {
  const std::string text = CanonicalJobText(Good(kJob, {"name=a\"b=c"}));
  CHECK(CanonicalJobText(JobOfText(text)) == text);
  const v1::Job job = JobOfText(text +
                                "method.local_sgd.haste=3\nmodel.layers.7=relu\nseed=\"x\n"
                                "model.layers.x=relu\nmodel.layers=relu\nnothing\n=\nhaste=1\n"
                                "model.layers.-1=relu\nmodel.layers.0.linear.units=many\n");
  CHECK(CanonicalJobText(job) == text);
  CHECK_FALSE(JobOfText("").has_method());
}

TEST_CASE("the canonical text is these lines, whoever builds it", "[job_digest]") {
  const v1::Job job = Good(kJob);
  CHECK(CanonicalJobText(job) ==
        "tessera job 1\n"
        "checkpoint.every_steps=0\n"
        "checkpoint.keep=3\n"
        "cluster.coordinator.away_timeout=5m\n"
        "cluster.lease_timeout=10s\n"
        "cluster.replicas=0\n"
        "cluster.servers.count=2\n"
        "cluster.workers=2\n"
        "codec.error_feedback=false\n"
        "codec.flush=false\n"
        "codec.push=f32\n"
        "data.format=\"idx\"\n"
        "data.normalize.mean=0\n"
        "data.normalize.per_feature=false\n"
        "data.normalize.stddev=1\n"
        "data.partition=\"global\"\n"
        "method.local_sgd.average_state=false\n"
        "method.local_sgd.local_steps=20\n"
        "method.local_sgd.overlap=false\n"
        "method=local_sgd\n"
        "model.input.0=64\n"
        "model.layers.0.linear.bias=false\n"
        "model.layers.0.linear.units=32\n"
        "model.layers.0=linear\n"
        "model.layers.1.batch_norm.affine=true\n"
        "model.layers.1.batch_norm.epsilon=1e-05\n"
        "model.layers.1=batch_norm\n"
        "model.layers.2=relu\n"
        "model.layers.3.linear.bias=true\n"
        "model.layers.3.linear.units=10\n"
        "model.layers.3=linear\n"
        "model.loss=\"softmax_cross_entropy\"\n"
        "name=\"small\"\n"
        "security.insecure=false\n"
        "seed=7\n"
        "train.batch_size=16\n"
        "train.epochs=3\n"
        "train.evaluate_every=1\n"
        "train.micro_batch=0\n"
        "train.optimizer.sgd.learning_rate=0.1\n"
        "train.optimizer.sgd.momentum=0\n"
        "train.optimizer.sgd.nesterov=false\n"
        "train.optimizer.sgd.weight_decay=0\n"
        "train.optimizer=sgd\n"
        "train.precision=\"f32\"\n"
        "train.schedule.decay=constant\n"
        "train.schedule.warmup=0\n"
        "train.target_accuracy=0\n");
  CHECK(JobDigest(job) == "50c05a930f0ae07aac89a674f887d01cd53b09151a6ad354ac5cbeaf52818e2e");
}

}  // namespace
}  // namespace tessera
