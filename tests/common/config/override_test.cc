#include "common/config/override.h"

#include <catch2/catch.hpp>

#include <string>

#include "common/config/job_digest.h"
#include "tests/common/config/job_text.h"

namespace tessera {
namespace {

struct Bad {
  const char* override_text;
  const char* errors;
};

TEST_CASE("a bad override names itself as it was written", "[override]") {
  const Bad kBad[] = {
      {"train.epochs=many", "--set train.epochs: got \"many\", want an integer in [1, 1000000]\n"},
      {"train.epohcs=3", "--set train.epohcs: unknown key \"epohcs\"; did you mean \"epochs\"?\n"},
      {"trian.epochs=3", "--set trian.epochs: unknown key \"trian\"; did you mean \"train\"?\n"},
      {"zzz=3",
       "--set zzz: unknown key \"zzz\", want name, seed, data, model, train, method, codec, "
       "cluster, checkpoint, security\n"},
      {"epochs", "--set epochs: got \"epochs\", want KEY=VALUE, such as seed=1\n"},
      {"name=dig\xffits",
       "--set name: got the byte 0xff, want UTF-8 text without control characters\n"},
      {"=3", "--set \"\": got \"=3\", want KEY=VALUE, such as seed=1\n"},
      {"train.epochs={",
       "--set train.epochs: not YAML: end of map flow not found; want a } for each {, and a comma "
       "between keys\n"},
      {"train.epochs.x=3", "--set train.epochs.x: \"epochs\" has no keys below it\n"},
      {"method.local_sgd.local_steps=0",
       "--set method.local_sgd.local_steps: got \"0\", want an integer in [1, 1000000]\n"},
      {"method.localsgd.local_steps=5",
       "--set method.localsgd.local_steps: unknown key \"localsgd\"; did you mean "
       "\"local_sgd\"?\n"},
      {"method={local_sgd: {local_steps: x}}",
       "--set method: method.local_sgd.local_steps: got \"x\", want an integer in [1, 1000000]\n"},
      {"model.layers.9.linear.units=5",
       "--set model.layers.9.linear.units: got the index \"9\", want 0 to 4 (4 adds an item)\n"},
      {"model.layers.x.linear.units=5",
       "--set model.layers.x.linear.units: got the index \"x\", want 0 to 4 (4 adds an item)\n"},
      {"model.layers.-1.relu={}",
       "--set model.layers.-1.relu: got the index \"-1\", want 0 to 4 (4 adds an item)\n"},
      {"model.layers.0.linear.units.x=5",
       "--set model.layers.0.linear.units.x: \"units\" has no keys below it\n"},
      {"model.layers.0.lin.units=5",
       "--set model.layers.0.lin.units: unknown key \"lin\"; did you mean \"linear\"?\n"},
      {"model.layers=5", "--set model.layers: got \"5\", want a list\n"},
      {"data.train.features.0.x=5",
       "--set data.train.features.0.x: an item has no keys below it\n"},
      {"train.epochs=!!int 5",
       "--set train.epochs: got the tag \"tag:yaml.org,2002:int\", want no tags\n"},
      {"train.steps=0", "--set train.steps: got \"0\", want an integer in [1, 1000000000000]\n"},
      {"method=layer_separation",
       "x.yaml:11:5: model.layers: there is no convolution in front of the first linear layer, "
       "want both: the model is cut between them with method layer_separation\n"},
      {"cluster.servers.count=3.5",
       "--set cluster.servers.count: got \"3.5\", want an integer in [1, 256]\n"},
      {"cluster.servers=[a:1, a:1]",
       "--set cluster.servers: cluster.servers.addresses.1: got \"a:1\" again, want each server "
       "once; it is item 0\n"},
      {"train.optimizer=sgd",
       "--set train.optimizer: got \"sgd\", want a map with exactly one of sgd, adamw, adagrad, "
       "adam, rmsprop, muon\n"},
  };
  for (const Bad& bad : kBad) {
    INFO(bad.override_text);
    CHECK(Errors(kJob, {bad.override_text}) == bad.errors);
  }
}

TEST_CASE("what is typed without quotes is meant as it stands", "[override]") {
  const char* const typed =
      GENERATE("a b", "a #b", "#b", " a  b ", "&a b", "a # b # c", "a'b\" c", "it's #1");
  INFO(typed);
  CHECK(Good(kJob, {std::string("name=") + typed}).name() == typed);
  CHECK(Good(kJob, {"name=\"a #b\""}).name() == "a #b");
  CHECK(Good(kJob, {"name='it''s # b'"}).name() == "it's # b");
  CHECK(Good(kJob, {"train.batch_size= 64 "}).train().batch_size() == 64);
  // The default's, as without the key.
  for (const char* const nothing : {"", " ", "~", "null"}) {
    CHECK(Good(kJob, {std::string("seed=") + nothing}).seed() == Good(kJob, {"seed=null"}).seed());
  }
}

TEST_CASE("a comment on the command line is refused, and not left out", "[override]") {
  CHECK(Errors(kJob, {"train.batch_size=64 # small"}) ==
        "--set train.batch_size: got \"64 # small\", want an integer in [1, 1048576]\n");
  for (const char* const text : {"method={local_sgd: {local_steps: 5}} # five", "name='a' # b",
                                 "data.train=features: a #b", "cluster.servers=[a:1, b:1] #c"}) {
    CHECK_THAT(Errors(kJob, {text}),
               Catch::Contains("got what YAML takes for a comment, want quotes"));
  }
}

TEST_CASE("an override changes its key and no other", "[override]") {
  v1::Job want = Good(kJob);
  want.mutable_train()->set_batch_size(64);
  CHECK(Good(kJob, {"train.batch_size=64"}).SerializeAsString() == want.SerializeAsString());
}

TEST_CASE("an override goes through list indices", "[override]") {
  const v1::Job job = Good(kJob, {"model.layers.0.linear.units=64", "data.train.features.0=z.gz"});
  CHECK(job.model().layers(0).linear().units() == 64);
  CHECK_FALSE(job.model().layers(0).linear().bias());  // Its neighbour stays.
  CHECK(job.data().train().features(0) == "z.gz");     // Written without brackets in the file.
}

TEST_CASE("an index at the end of a list adds an item, a later one is refused", "[override]") {
  const v1::Job job = Good(kJob, {"model.layers.4=relu", "model.layers.5.linear.units=10"});
  REQUIRE(job.model().layers_size() == 6);
  CHECK(job.model().layers(4).has_relu());
  CHECK(job.model().layers(5).linear().units() == 10);
}

TEST_CASE("naming another member of a choice replaces the present one", "[override]") {
  CHECK(Good(kJob, {"method.async_sgd.local_steps=4"}).method().async_sgd().local_steps() == 4);
  CHECK(Good(kJob, {"method=data_parallel"}).method().has_data_parallel());
  CHECK(Good(kJob, {"method={data_parallel: {}}"}).method().has_data_parallel());
  CHECK(Good(kJob, {"method.data_parallel="}).method().has_data_parallel());
  CHECK(Good(kJob, {"model.layers.1.dropout.probability=0.25"}).model().layers(1).has_dropout());
}

TEST_CASE("an override of the present member keeps its other keys", "[override]") {
  const v1::Job job = Good(kJob, {"train.optimizer.sgd.momentum=0.9"});
  CHECK(job.train().optimizer().sgd().learning_rate() == 0.1);
  CHECK(job.train().optimizer().sgd().momentum() == 0.9);
  const std::string bare = JobWith("{local_sgd: {local_steps: 20}}", "local_sgd");
  CHECK(Good(bare, {"method.local_sgd.local_steps=7"}).method().local_sgd().local_steps() == 7);
}

TEST_CASE("train.steps takes the place of train.epochs, and back", "[override]") {
  const v1::Job steps = Good(kJob, {"train.steps=100"});
  CHECK(steps.train().steps() == 100);
  CHECK_FALSE(steps.train().has_epochs());
  CHECK(Good(kJob, {"train.steps=100", "train.epochs=2"}).train().epochs() == 2);
  CHECK(Good(kJob, {"train.steps="}).train().epochs() == 3);
}

TEST_CASE("an override makes the parents that are missing", "[override]") {
  const std::string text = JobWith("cluster: {servers: 2, workers: 2, lease_timeout: 10s}\n", "");
  CHECK(Good(text, {"cluster.threads=3"}).cluster().threads() == 3);
  CHECK(Good(text, {"data.normalize.mean=0.5"}).data().normalize().mean(0) == 0.5);
}

TEST_CASE("a short form gives way to an override below it", "[override]") {
  CHECK(Good(kJob, {"cluster.servers.count=5"}).cluster().servers().count() == 5);
  const v1::Job listed = Good(kJob, {"cluster.servers=[\"a:1\", \"b:2\", \"c:3\"]"});
  CHECK(listed.cluster().servers().count() == 3);
  CHECK(listed.cluster().servers().addresses(2) == "c:3");
}

TEST_CASE("an empty override gives a key its default and takes a required one away", "[override]") {
  CHECK(Good(kJob, {"seed="}).seed() == 0);
  CHECK(Good(kJob, {"seed=null"}).seed() == 0);
  CHECK(Errors(kJob, {"name="}) == "--set name: got nothing, want text\n");
}

TEST_CASE("an override that takes keys away is where they are wanted", "[override]") {
  const std::string integer = "want an integer in [1, 1048576]\n";
  CHECK(Errors(kJob, {"train.batch_size=null"}) ==
        "--set train.batch_size: got nothing, " + integer);
  CHECK(Errors(kJob, {"train.batch_size=# none"}) ==
        "--set train.batch_size: got \"# none\", " + integer);
  CHECK(Errors(kJob, {"train.epochs=null"}) ==
        "--set train.epochs: train: got nothing for epochs, want exactly one of epochs, steps\n");
  for (const char* nothing : {"train=null", "train=", "train={}"}) {
    INFO(nothing);
    const std::string errors = Errors(kJob, {nothing});
    CHECK_THAT(errors, Catch::Contains("--set train: missing a key, want exactly one of epochs"));
    CHECK_THAT(errors, Catch::Contains("--set train: train.batch_size: missing, " + integer));
    CHECK_THAT(errors, !Catch::Contains("x.yaml"));
  }
  for (const char* nothing : {"method=null", "method=", "method={}"}) {
    INFO(nothing);
    CHECK_THAT(Errors(kJob, {nothing}),
               Catch::StartsWith("--set method: got nothing, want exactly one of data_parallel, "));
  }
  CHECK(Errors(kJob, {"train={epochs: 3, optimizer: {sgd: {learning_rate: 0.1}}}"}) ==
        "--set train: train.batch_size: missing, " + integer);
  CHECK(Errors(kJob, {"train.optimizer={sgd: {}}"}) ==
        "--set train.optimizer: train.optimizer.sgd.learning_rate: missing, want a number in [0, "
        "1e+06]\n");
  for (const char* nothing : {"data.train.labels=null", "data.train.labels="}) {
    INFO(nothing);
    CHECK(Errors(kJob, {nothing}) ==
          "--set data.train.labels: missing, want a path: idx files have their labels in a file of "
          "their own\n");
  }
  // What has a default, or is not needed, may be taken away.
  CHECK(Errors(kJob, {"cluster.servers={count: null, addresses: [a:1, b:2]}"}).empty());
  CHECK(Errors(kJob, {"data.directory=null", "train.evaluate_every=null", "cluster=null"}).empty());
}

TEST_CASE("the last override of a key holds", "[override]") {
  CHECK(Good(kJob, {"seed=1", "seed=2"}).seed() == 2);
}

TEST_CASE("an override repairs what is wrong in the file", "[override]") {
  const std::string bad = JobWith("seed: 7", "seed: seven");
  CHECK(Errors(bad, {"seed=7"}).empty());
}

TEST_CASE("a value may hold the sign that ends the key", "[override]") {
  CHECK(Good(kJob, {"name=a=b"}).name() == "a=b");
}

TEST_CASE("errors of the file come first, then those of the overrides in order", "[override]") {
  CHECK(Errors(JobWith("seed: 7", "seed: x"), {"train.epochs=y", "name=[]"}) ==
        "x.yaml:2:7: seed: got \"x\", want an integer in [0, 18446744073709551615]\n"
        "--set train.epochs: got \"y\", want an integer in [1, 1000000]\n"
        "--set name: got an empty list, want text\n");
}

TEST_CASE("an override equals the same text in the file", "[override]") {
  CHECK(JobDigest(Good(kJob, {"train.batch_size=64"})) ==
        JobDigest(Good(JobWith("batch_size: 16", "batch_size: 64"))));
}

}  // namespace
}  // namespace tessera
