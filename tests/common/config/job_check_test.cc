#include "common/config/job_check.h"

#include <catch2/catch.hpp>

#include "absl/strings/str_cat.h"
#include "common/config/job_paths.h"
#include "tests/common/config/data_directory.h"
#include "tests/common/config/job_text.h"

namespace tessera {
namespace {

TEST_CASE("data files that are there are no error", "[job_check]") {
  const DataDirectory data;
  CHECK(data.Errors({}).empty());
  CHECK(data.Errors({absl::StrCat("data.train.features=", data.path, "/c.gz")}).empty());
}

TEST_CASE("subnets need hidden neurons, one for each worker", "[job_check]") {
  const DataDirectory data;
  CHECK(data.Errors({"method=ist"}).empty());
  CHECK(data.Errors({"method=ensemble", "cluster.workers=32"}).empty());
  CHECK(data.Errors({"method=ist", "cluster.workers=33"}) ==
        "--set cluster.workers: got 33, want at most 32, the units of the smallest hidden layer "
        "that is cut, so that every worker has a part of each\n");
  CHECK(data.Errors({"method=ensemble", "model.layers=[linear: {units: 10}]"}) ==
        "--set model.layers: got no hidden units to deal out, want at least two linear layers "
        "with nothing between them but layers of single units, as relu and batch_norm are: "
        "ensemble deals the units between them to the workers; with cut: all channels, too\n");
}

TEST_CASE("a standby wants another server, and a method whose servers have parts", "[job_check]") {
  const DataDirectory data;
  CHECK(data.Errors({"cluster.replicas=1", "cluster.servers=2"}).empty());
  CHECK(data.Errors({"cluster.replicas=1", "cluster.servers=2", "method=slim_dp"}).empty());
  CHECK(data.Errors({"cluster.replicas=1", "cluster.servers=1"}) ==
        "--set cluster.replicas: got 1, want 0 with cluster.servers 1: a standby is on another "
        "server than the one that it stands by\n");
  CHECK(data.Errors({"cluster.replicas=1", "cluster.servers=2", "cluster.workers=2",
                     "method=decentralized"}) ==
        "--set cluster.replicas: got 1, want 0 with method decentralized: every server has the "
        "whole model already\n");
}

TEST_CASE("copies want other servers' disks", "[job_check]") {
  const DataDirectory data;
  CHECK(data.Errors({"checkpoint.store=own_disks", "cluster.servers=2"}).empty());
  CHECK(data.Errors({"checkpoint.store=own_disks", "cluster.servers=1", "checkpoint.copies=1"})
            .empty());
  // In a shared folder there are no copies.
  CHECK(data.Errors({"cluster.servers=1"}).empty());
  CHECK(data.Errors({"checkpoint.store=own_disks", "cluster.servers=1"}) ==
        "x.yaml:22:1: checkpoint.copies: got 2, want at most 1, which is cluster.servers: each "
        "copy is on "
        "another server's disk; with one copy, 1, a lost disk is a lost checkpoint\n");
  CHECK(data.Errors({"checkpoint.store=own_disks", "cluster.servers=2", "cluster.replicas=1"})
            .empty());
  CHECK(data.Errors({"checkpoint.store=own_disks", "cluster.servers=[a:1, b:1]",
                     "cluster.coordinator.etcd=[c:1]"})
            .empty());
}

TEST_CASE("without central servers every worker has a server beside it", "[job_check]") {
  const DataDirectory data;
  const std::vector<std::string> four = {"method=decentralized", "cluster.workers=4",
                                         "cluster.servers=4", "train.steps=100"};
  const auto with = [&](std::vector<std::string> more) {
    more.insert(more.begin(), four.begin(), four.end());
    return data.Errors(more);
  };
  CHECK(with({}).empty());
  CHECK(with({"cluster.servers=2"}) ==
        "--set cluster.servers: cluster.servers.count: got 2, want 4, the number of workers "
        "(cluster.workers): with decentralized every worker has a server of its own beside it\n");
  CHECK(with({"cluster.servers=[a:1, b:1, c:1, d:1, e:1]"}) ==
        "--set cluster.servers: cluster.servers.addresses: got 5, want 4, the number of workers "
        "(cluster.workers): with decentralized every worker has a server of its own beside it\n");
  CHECK(with({"method={decentralized: {warmup_steps: 99}}"}).empty());
  CHECK(with({"method={decentralized: {warmup_steps: 100}}"}) ==
        "--set method: method.decentralized.warmup_steps: got 100, want less than 100, which is "
        "train.steps: the others would never begin\n");
}

TEST_CASE("every data file that is missing is named with its path", "[job_check]") {
  const DataDirectory data;
  CHECK(data.Errors({"data.format=csv", "data.train={features: [a.gz, no.gz]}",
                     "data.test={features: /none/d.gz}"}) ==
        absl::StrCat("--set data.train: data.train.features.1: got \"no.gz\", want a file "
                     "that can be read; ",
                     data.path, "/no.gz: No such file or directory\n",
                     "--set data.test: data.test.features: got \"/none/d.gz\", want a file that "
                     "can be read; /none/d.gz: No such file or directory\n"));
  CHECK(data.Errors({"data.train.features=."}) ==
        absl::StrCat("--set data.train.features: got \".\", want a file that can be read; ",
                     data.path, ": not a file\n"));
}

TEST_CASE("a missing directory is one error, not one for each file", "[job_check]") {
  const DataDirectory data;
  CHECK(
      data.Errors({"data.directory=/nowhere"}) ==
      "--set data.directory: got \"/nowhere\", want a directory with the data "
      "(--set data.directory=DIR); fetch_data.sh --list names the sets that it gets; /nowhere: No "
      "such file or directory\n");
  const std::string file = data.path + "/a.gz";
  CHECK_THAT(data.Errors({"data.directory=" + file}),
             Catch::EndsWith("; " + file + ": Not a directory\n"));
  const std::string deep = absl::StrCat("/nowhere/", std::string(80, 'x'), "/end");
  CHECK_THAT(data.Errors({"data.directory=" + deep}),
             Catch::Contains("xxx...\"") &&
                 Catch::EndsWith("; " + deep + ": No such file or directory\n"));
}

TEST_CASE("without check_files nobody looks for data", "[job_check]") {
  CHECK(Errors(kJob, {"data.directory=/nowhere"}).empty());
}

TEST_CASE("data paths are below data.directory unless they are absolute", "[job_check]") {
  v1::Data data;
  data.set_directory("/d/x");
  CHECK(DataPath(data, "a.gz") == "/d/x/a.gz");
  CHECK(DataPath(data, "../a.gz") == "/d/a.gz");
  CHECK(DataPath(data, "/b/a.gz") == "/b/a.gz");
}

TEST_CASE("labels belong to idx and npy alone", "[job_check]") {
  CHECK(Errors(kJob, {"data.format=npy"}).empty());
  CHECK(Errors(kJob, {"data.format=npy", "data.test.labels="}) ==
        "--set data.test.labels: missing, want a path: npy files have their labels in a file of "
        "their own\n");
  CHECK(Errors(kJob, {"data.format=libsvm", "data.train.labels=", "data.test.labels="}).empty());
  CHECK(Errors(kJob, {"data.format=cifar", "data.train.labels=", "model.input=3072"}) ==
        "x.yaml:7:36: data.test.labels: got \"d.gz\", want no such key: cifar files carry their "
        "labels\n");
  CHECK(Errors(kJob, {"data.train.labels=\"\""}) ==
        "--set data.train.labels: missing, want a path: idx files have their labels in a file of "
        "their own\n");
}

TEST_CASE("a data set may be several files, and of idx and npy as many files of labels",
          "[job_check]") {
  CHECK(Errors(kJob, {"data.train.features=[a.gz, c.gz]"}) ==
        "x.yaml:6:35: data.train.labels: got 1 file, want 2, one for each of "
        "data.train.features\n");
  CHECK(Errors(kJob, {"data.test.labels=[a, b, c]"}) ==
        "--set data.test.labels: got 3 files, want 1, one for each of data.test.features\n");
  CHECK(
      Good(kJob, {"data.train={features: [a, b], labels: [c, d]}"}).data().train().labels_size() ==
      2);
  CHECK(Errors(kJob, {"data.train={features: [a, b], labels: [c, \"\"]}"}) ==
        "--set data.train: data.train.labels.1: got \"\", want a path\n");
  CHECK(Good(kJob).data().train().labels(0) == "b.gz");
  CHECK(Errors(kJob, {"data.format=csv", "data.train={features: [a, b]}",
                      "data.test={features: [c, d, e]}"})
            .empty());
}

TEST_CASE("images of the cifar format have their size", "[job_check]") {
  const auto with = [](const std::string& input) {
    return Errors(kJob, {"data.format=cifar", "data.train={features: [a, b]}",
                         "data.test={features: c}", "model.input=" + input});
  };
  CHECK(with("[3, 32, 32]").empty());
  CHECK(with("3072").empty());
  CHECK(with("[1, 32, 32]") ==
        "--set model.input: got 1024 values, want 3072 with data.format cifar, as [3, 32, 32]\n");
  CHECK(with("[32, 32, 3]") ==
        "--set model.input: got [32, 32, 3], want [3, 32, 32] with data.format cifar, or that "
        "flattened: "
        "its values lie in that order\n");
}

TEST_CASE("etcd's members are addresses, each once", "[job_check]") {
  const auto with = [](const std::string& members) {
    return Errors(kJob, {"cluster.coordinator.etcd=" + members});
  };
  CHECK(with("[10.0.0.1:2379, https://10.0.0.2:2379]").empty());
  CHECK(with("[10.0.0.1, h:1, https://h:1]") ==
        "--set cluster.coordinator.etcd: cluster.coordinator.etcd.0: got \"10.0.0.1\", want "
        "host:port or https://host:port\n"
        "--set cluster.coordinator.etcd: cluster.coordinator.etcd.2: got \"https://h:1\" again, "
        "want each member once; it is item 1\n");
}

TEST_CASE("nothing before the first product fills the zeros of xc rows", "[job_check]") {
  const std::vector<std::string> xc = {"data.format=xc", "data.train.labels=", "data.test.labels="};
  const auto errors = [&](const std::string& set) {
    std::vector<std::string> sets = xc;
    sets.push_back(set);
    return Errors(kJob, sets);
  };
  CHECK(Errors(kJob, xc).empty());
  CHECK(errors("data.normalize={stddev: 2}").empty());
  CHECK(
      errors("data.normalize={mean: 0.5}") ==
      "--set data.normalize: data.normalize.mean: got 0.5, want 0 with data.format xc: the rows of "
      "xc files stay sparse, so that zeros stay zeros; stddev may be set\n");
  CHECK(
      errors("data.normalize={per_feature: true}") ==
      "--set data.normalize: data.normalize.per_feature: got true, want false with data.format xc: "
      "the rows of xc files stay sparse, so that zeros stay zeros; stddev may be set\n");
  for (const char* const layer : {"batch_norm", "relu", "dropout"}) {
    CHECK(
        errors(std::string("model.layers=[") + layer + ", {linear: {units: 10}}]")
            .find(std::string("model.layers.0: got ") + layer +
                  ", want linear first with data.format xc: no other layer reads sparse rows\n") !=
        std::string::npos);
  }
  CHECK(Errors(kJob, {"model.layers=[relu, {linear: {units: 10}}]"}).empty());
}

TEST_CASE("a model without a linear layer has nothing to train", "[job_check]") {
  CHECK(Errors(kJob, {"model.layers=[relu]"}) ==
        "--set model.layers: no linear layer and no convolution, want at least one linear or "
        "conv2d: there is nothing to train\n");
}

TEST_CASE("one output is enough for the sigmoid loss only", "[job_check]") {
  const std::string one = "model.layers.3.linear.units=1";
  CHECK(Errors(kJob, {one, "model.loss=sigmoid_cross_entropy"}).empty());
  CHECK_FALSE(Errors(kJob, {one}).empty());
}

TEST_CASE("async_sgd takes momentum when the job says so", "[job_check]") {
  CHECK(Errors(kJob, {"method=async_sgd", "train.optimizer.sgd.momentum=0.9",
                      "train.optimizer.sgd.weight_decay=0.1"})
            .empty());
}

TEST_CASE("the numbers of a method go up to the number of workers", "[job_check]") {
  CHECK(Errors(kJob, {"method={softsync: {pushes: 2}}"}).empty());
  CHECK_FALSE(Errors(kJob, {"method={softsync: {pushes: 2}}", "cluster.workers=1"}).empty());
  CHECK(Errors(kJob, {"method={diloco: {quorum: {pushes: 2, grace: 1s}}}"}).empty());
  CHECK(Errors(kJob, {"method={diloco: {quorum: {pushes: 0, grace: 0s}}}"}).empty());
  CHECK(Errors(kJob, {"method={diloco: {asynchronous: true, quorum: {pushes: 0}}}"}).empty());
  CHECK(Errors(kJob, {"method={diloco: {quorum: {pushes: 3}}}", "cluster.workers=3"}).empty());
}

TEST_CASE("without a cluster a job has one worker", "[job_check]") {
  const std::string alone = JobWith("cluster: {servers: 2, workers: 2, lease_timeout: 10s}\n", "");
  CHECK(Errors(alone, {"method={softsync: {pushes: 1}}"}).empty());
  CHECK_FALSE(Errors(alone, {"method={softsync: {pushes: 2}}"}).empty());
}

TEST_CASE("an exchange of a core and an explorer moves something", "[job_check]") {
  // 2,442 entries on 2 servers.
  const auto with = [](const std::string& keys) {
    return Errors(kJob, {"method={slim_dp: {" + keys + "}}"});
  };
  CHECK(with("alpha: 0.0004, beta: 0") ==
        "--set method: method.slim_dp.alpha: got 0.0004, want 0.000827 or more, which is an "
        "entry for each server: of this model's 2442 entries an exchange would move none\n");
  // One entry in two halves.
  CHECK_FALSE(with("alpha: 0.00042, beta: 0").empty());
  CHECK(with("alpha: 0.000827, beta: 0").empty());
  CHECK(with("alpha: 0.00042, beta: 0.00042").empty());
  CHECK(Errors(kJob, {"method={slim_dp: {alpha: 0.00042, beta: 0}}", "cluster.servers=1"}).empty());
  CHECK_FALSE(
      Errors(kJob, {"method={slim_dp: {alpha: 0.00042, beta: 0}}", "cluster.servers=[a:1, b:1]"})
          .empty());
  CHECK(Errors(kJob, {"method={slim_dp: {alpha: 1, beta: 0}}", "cluster.servers=40"}).empty());
}

TEST_CASE("state is averaged where the optimizer has any", "[job_check]") {
  const std::string average = "method.local_sgd.average_state=true";
  CHECK_FALSE(Errors(kJob, {average}).empty());
  CHECK(Errors(kJob, {average, "train.optimizer.sgd.momentum=0.9"}).empty());
  CHECK(Errors(kJob, {average, "train.optimizer={adamw: {learning_rate: 0.1}}"}).empty());
  CHECK(Errors(kJob, {average, "train.optimizer={adagrad: {learning_rate: 0.1}}"}).empty());
}

TEST_CASE("Adam's squares are averaged in codecs that keep small numbers", "[job_check]") {
  const std::string average = "method.local_sgd.average_state=true";
  for (const std::string adam : {"adam", "adamw"}) {
    const std::string optimizer = "train.optimizer={" + adam + ": {learning_rate: 0.1}}";
    const auto with = [&](const std::string& codec) {
      return Errors(kJob, {average, optimizer, "codec=" + codec});
    };
    CHECK(with("{push: bf16, pull: {bf16: {}}}").empty());
    CHECK(with("{push: bf16, error_feedback: true}").empty());
    for (const std::string codec : {"f16", "int8", "qsgd", "threshold", "topk"}) {
      INFO(adam << " " << codec);
      CHECK(with("{push: " + codec + "}").find("--set codec: codec.push: got " + codec) == 0);
      CHECK(Errors(kJob, {optimizer, "codec={push: " + codec + "}"}).empty());
      if (codec == "threshold" || codec == "topk") continue;
      CHECK(with("{pull: " + codec + "}").find("--set codec: codec.pull: got " + codec) == 0);
    }
    CHECK(with("{push: int8}") == "--set codec: codec.push: got int8, want f32 or bf16 with " +
                                      adam +
                                      " and method.local_sgd.average_state: it makes small "
                                      "squares of gradients 0, and a step divides by their root; "
                                      "with average_state false it is welcome\n");
    // What is wrong with a codec is said once.
    CHECK(with("{pull: threshold}") ==
          "--set codec: codec.pull: got threshold, want f32, bf16, f16, int8 or qsgd: it sends "
          "parts of changes, and a pull brings values\n");
  }
  for (const std::string other :
       {"adagrad: {learning_rate: 0.1}", "sgd: {learning_rate: 0.1, momentum: 0.9}"}) {
    CHECK(
        Errors(kJob, {average, "train.optimizer={" + other + "}", "codec={push: int8, pull: f16}"})
            .empty());
  }
}

TEST_CASE("a warm-up may fill its decay's first stretch and no more", "[job_check]") {
  CHECK(Errors(kJob, {"train.schedule={warmup: 9, decay: {step: {every: 9}}}"}).empty());
  CHECK(Errors(kJob, {"train.schedule={warmup: 9, decay: {cosine: {examples: 9}}}"}).empty());
  CHECK(Errors(kJob, {"train.schedule={warmup: 900}"}).empty());
  CHECK_FALSE(Errors(kJob, {"train.schedule={warmup: 10, decay: {step: {every: 9}}}"}).empty());
  CHECK(Errors(kJob, {"train.schedule={warmup: 9, decay: {linear: {examples: 9}}}"}).empty());
  CHECK(Errors(kJob, {"train.schedule={warmup: 9, decay: {milestones: {at: [9, 10]}}}"}).empty());
}

TEST_CASE("muon is for methods whose workers take steps of their own", "[job_check]") {
  const std::string muon =
      "train.optimizer={muon: {learning_rate: 0.02, adamw: {learning_rate: 0.001}}}";
  const auto refusal = [](const std::string& method) {
    return "--set train.optimizer: got muon with method " + method +
           ", want another one: workers push gradients, and servers apply the optimizer to the "
           "rows that they have, where muon needs whole matrices; methods whose workers take steps "
           "of their own take it\n";
  };
  for (const std::string method : {"data_parallel", "async_sgd"}) {
    CHECK(Errors(kJob, {muon, "method=" + method, "codec={}"}) == refusal(method));
  }
  for (const std::string method : {"local_sgd", "diloco", "ist", "{async_sgd: {local_steps: 2}}",
                                   "{local_sgd: {average_state: true}}"}) {
    CHECK(Errors(kJob, {muon, "method=" + method}).empty());
  }
  CHECK(Errors(kJob, {"train.optimizer={muon: {learning_rate: 0.02}}"}).find("adamw") !=
        std::string::npos);
}

TEST_CASE("gradients are clipped by all methods but the one whose workers have halves",
          "[job_check]") {
  for (const std::string method : {"data_parallel", "local_sgd", "diloco", "ist", "slim_dp"}) {
    CHECK(Errors(kJob, {"train.clip_norm=1", "method=" + method}).empty());
  }
  CHECK(
      Errors(kJob, {"train.clip_norm=1.5", "method=layer_separation", "model.input=[1, 8, 8]",
                    "model.layers=[{conv2d: {channels: 2, kernel: 3}}, {linear: {units: 10}}]"}) ==
      "--set train.clip_norm: got 1.5, want 0 with method layer_separation: no worker has the "
      "gradient of all parameters\n");
}

TEST_CASE("minibatches go by speed where a method can weigh them", "[job_check]") {
  for (const std::string method : {"data_parallel", "local_sgd", "diloco", "async_sgd", "ssp",
                                   "{softsync: {pushes: 2}}", "slim_dp"}) {
    CHECK(Errors(kJob, {"data.partition=by_speed", "method=" + method}) == "");
  }
  const auto refused = [](const std::string& method) {
    return Errors(kJob, {"data.partition=by_speed", "method=" + method});
  };
  const std::string want = "--set data.partition: got \"by_speed\", want \"global\" with ";
  CHECK(refused("ist") ==
        want + "method ist: its parts of the model go by speed (method.ist.parts)\n");
  CHECK(refused("ensemble") == want + "method ensemble: nobody waits for others before the end\n");
  CHECK(refused("{diloco: {asynchronous: true}}") ==
        want + "method.diloco.asynchronous: slower workers make fewer local steps there\n");
  CHECK(
      Errors(kJob, {"data.partition=by_speed", "method=layer_separation", "model.input=[1, 8, 8]",
                    "model.layers=[{conv2d: {channels: 2, kernel: 3}}, {linear: {units: 10}}]"}) ==
      want + "method layer_separation: a linear worker expects equal minibatches of all\n");
}

TEST_CASE("a job may name a file with the values that it begins with", "[job_check]") {
  CHECK(Errors(kJob, {"model.init=x.safetensors"}).empty());
}

TEST_CASE("labels are smoothed for one loss alone", "[job_check]") {
  CHECK(Errors(kJob, {"model.label_smoothing=0.1"}).empty());
  for (const std::string loss : {"sigmoid_cross_entropy", "mean_squared_error"}) {
    CHECK(Errors(kJob, {"model.loss=" + loss}).empty());
    CHECK(Errors(kJob, {"model.loss=" + loss, "model.label_smoothing=0.1"}) ==
          "--set model.label_smoothing: got 0.1, want 0 with " + loss +
              ": it is for softmax_cross_entropy\n");
  }
}

TEST_CASE("one output with the squared error learns numbers, where files can have them",
          "[job_check]") {
  const std::string one = "model.layers=[{linear: {units: 1}}]";
  const std::string squares = "model.loss=mean_squared_error";
  CHECK(Errors(kJob, {squares, one}) ==
        "--set model.loss: got mean_squared_error with 1 output and data.format idx, whose labels "
        "are classes, want a format whose labels may be numbers (csv, npy, libsvm), or more "
        "outputs\n");
  const std::string npy = "data.format=npy";
  CHECK(Errors(kJob, {squares, one, npy}).empty());
  CHECK(Errors(kJob, {squares, one, npy, "train.target_accuracy=0.9"}) ==
        "--set train.target_accuracy: got 0.9, want 0 with mean_squared_error and 1 output: a "
        "number is not right or wrong\n");
  CHECK(Errors(kJob, {squares, "train.target_accuracy=0.9"}).empty());
}

TEST_CASE("a check is silent about keys that are wrong already", "[job_check]") {
  CHECK(Errors(kJob, {"data.format=cvs"}) ==
        "--set data.format: got \"cvs\", want one of idx, csv, libsvm, xc, cifar, npy, images, "
        "tokens, text; did you mean \"csv\"?\n");
}

}  // namespace
}  // namespace tessera
