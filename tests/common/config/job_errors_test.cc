// A bad job for each thing that can be wrong, with all that is said about it.
#include <catch2/catch.hpp>

#include <string>

#include "tests/common/config/job_text.h"

namespace tessera {
namespace {

// kJob with one text replaced, and its errors.
struct Bad {
  const char* from;
  const char* to;
  const char* errors;
};

template <size_t n>
void CheckAll(const Bad (&jobs)[n]) {
  for (const Bad& bad : jobs) {
    INFO(bad.from << " -> " << bad.to);
    CHECK(Errors(JobWith(bad.from, bad.to)) == bad.errors);
  }
}

TEST_CASE("a key that is wrong by itself gets its message", "[job_errors]") {
  CheckAll({
      {"  epochs: 3", "  epochs: 3\n  epohcs: 4",
       "x.yaml:18:3: train.epohcs: unknown key; did you mean \"epochs\"?\n"},
      {"  epochs: 3", "  epochs: 3\n  epochs: 4",
       "x.yaml:18:3: train.epochs: written twice, first at 17:3, want it once\n"},
      {"  epochs: 3", "  epochs: three",
       "x.yaml:17:11: train.epochs: got \"three\", want an integer in [1, 1000000]\n"},
      {"  epochs: 3", "  epochs: \"3\"",
       "x.yaml:17:11: train.epochs: got the string \"3\", want an integer in [1, 1000000], "
       "without quotes\n"},
      {"  epochs: 3", "  epochs: 0",
       "x.yaml:17:11: train.epochs: got \"0\", want an integer in [1, 1000000]\n"},
      {"  epochs: 3", "  epochs: 1e3",
       "x.yaml:17:11: train.epochs: got \"1e3\", want an integer in [1, 1000000]\n"},
      {"  epochs: 3", "  epochs: 3.0",
       "x.yaml:17:11: train.epochs: got \"3.0\", want an integer in [1, 1000000]\n"},
      {"  epochs: 3", "  epochs: 0x10",
       "x.yaml:17:11: train.epochs: got \"0x10\", want an integer in [1, 1000000]\n"},
      {"  epochs: 3", "  epochs: 99999999999999999999",
       "x.yaml:17:11: train.epochs: got \"99999999999999999999\", want an integer in [1, "
       "1000000]\n"},
      {"  epochs: 3", "  epochs: [3]",
       "x.yaml:17:11: train.epochs: got a list, want an integer in [1, 1000000]\n"},
      {"  epochs: 3", "  epochs: {a: 3}",
       "x.yaml:17:11: train.epochs: got a map, want an integer in [1, 1000000]\n"},
      {"  epochs: 3", "  epochs: 3\n  steps: 5",
       "x.yaml:18:3: train: got both epochs and steps, want exactly one of epochs, steps\n"},
      {"  epochs: 3", "  epochs:",
       "x.yaml:17:3: train: got nothing for epochs, want exactly one of epochs, steps\n"},
      {"  epochs: 3", "  evaluate_every: 1",
       "x.yaml:15:1: train: missing a key, want exactly one of epochs, steps\n"},
      {"seed: 7", "seed: -1",
       "x.yaml:2:7: seed: got \"-1\", want an integer in [0, 18446744073709551615]\n"},
      {"seed: 7", "seed: 18446744073709551616",
       "x.yaml:2:7: seed: got \"18446744073709551616\", want an integer in [0, "
       "18446744073709551615]\n"},
      {"name: small", "nam: small",
       "x.yaml:1:1: nam: unknown key; did you mean \"name\"?\n"
       "x.yaml:1:1: name: missing, want text\n"},
      {"name: small", "# no name", "x.yaml:1:1: name: missing, want text\n"},
      {"name: small", "name: \"\"", "x.yaml:1:7: name: got \"\", want text\n"},
      {"name: small", "name: \"a\\nb\"",
       "x.yaml:1:7: name: got \"a\\nb\", want text without line ends or control characters\n"},
      {"name: small", "name: [a]", "x.yaml:1:7: name: got a list, want text\n"},
      {"name: small", "zzz: 1\nname: small",
       "x.yaml:1:1: zzz: unknown key, want name, seed, data, model, train, method, codec, "
       "cluster, checkpoint, security\n"},
      {"checkpoint: {", "checkpoint: {evry: 3, ",
       "x.yaml:22:14: checkpoint.evry: unknown key; did you mean \"every_steps\"?\n"},
      {"every_steps: 0", "every_steps: -1",
       "x.yaml:22:42: checkpoint.every_steps: got \"-1\", want an integer of at least 0\n"},
      {"every_steps: 0", "every_steps: 30",
       "x.yaml:22:42: checkpoint.every_steps: got 30, want checkpoint.directory as well, where "
       "they are kept\n"},
      {"method: {local_sgd: {local_steps: 20}}\ncodec: {push: f32}\n"
       "cluster: {servers: 2, workers: 2, lease_timeout: 10s}\ncheckpoint: {directory: \"\"",
       "method: decentralized\ncheckpoint: {directory: ckpt",
       "x.yaml:20:25: checkpoint.directory: got \"/jobs/ckpt\", want none with decentralized: "
       "every replica is a copy of the model, and a new server copies one that is there\n"},
      {"keep: 3", "keep: 0",
       "x.yaml:22:51: checkpoint.keep: got \"0\", want an integer in [1, 1000000]\n"},
  });
}

TEST_CASE("every mistake in the data gets its message", "[job_errors]") {
  CheckAll({
      {"format: idx", "format: cvs",
       "x.yaml:4:11: data.format: got \"cvs\", want one of idx, csv, libsvm, xc, cifar, npy, "
       "images, tokens, text; did you mean \"csv\"?\n"},
      {"format: idx", "format: csv",
       "x.yaml:6:35: data.train.labels: got \"b.gz\", want no such key: csv files carry their "
       "labels\n"
       "x.yaml:7:36: data.test.labels: got \"d.gz\", want no such key: csv files carry their "
       "labels\n"},
      {"format: idx", "format: ",
       "x.yaml:4:3: data.format: got nothing, want one of idx, csv, libsvm, xc, cifar, npy, "
       "images, tokens, text\n"},
      {"format: idx", "format: idx\n  labels: fine",
       "x.yaml:5:11: data.labels: got \"fine\", want no such key with data.format idx: it is of "
       "cifar "
       "files\n"},
      {"format: idx", "format: idx\n  labels: middle",
       "x.yaml:5:11: data.labels: got \"middle\", want one of fine, coarse\n"},
      {"format: idx", "format: idx\n  label_column: first",
       "x.yaml:5:17: data.label_column: got \"first\", want no such key with data.format idx: it "
       "is of "
       "csv files\n"},
      {"format: idx", "format: idx\n  partition: everywhere",
       "x.yaml:5:14: data.partition: got \"everywhere\", want one of global, shard, full, local, "
       "by_speed\n"},
      {"format: idx", "format: idx\n  normalize: {stddev: 0}",
       "x.yaml:5:23: data.normalize.stddev: got \"0\", want a number in [1e-30, 1e+30]\n"},
      {"format: idx", "format: idx\n  normalize: {mean: .nan}",
       "x.yaml:5:21: data.normalize.mean: got \".nan\", want a number in [-1e+30, 1e+30]\n"},
      {"format: idx", "format: idx\n  normalize: {mean: 0.1, per_feature: yes}",
       "x.yaml:5:39: data.normalize.per_feature: got \"yes\", want true or false\n"},
      {"format: idx", "format: idx\n  normalize: {mean: 0.1, per_feature: true}",
       "x.yaml:5:39: data.normalize.per_feature: got true beside mean or stddev, want one or "
       "the other: each feature has its own\n"},
      {"labels: b.gz", "lables: b.gz",
       "x.yaml:6:27: data.train.lables: unknown key; did you mean \"labels\"?\n"},
      {", labels: d.gz", "",
       "x.yaml:7:3: data.test.labels: missing, want a path: idx files have their labels in a "
       "file of their own\n"},
      {"features: [c.gz]", "features: []",
       "x.yaml:7:20: data.test.features: got a list of 0, want 1 to 64 items\n"},
      {"features: [c.gz]", "features: [\"\"]",
       "x.yaml:7:21: data.test.features.0: got \"\", want a path\n"},
      {"features: [c.gz]", "features: [c.gz, ~]",
       "x.yaml:7:27: data.test.features.1: got nothing, want a path\n"},
      {"features: [c.gz], labels: d.gz", "labels: d.gz",
       "x.yaml:7:3: data.test.features: missing, want a value or a list\n"},
      {"train: {features: a.gz, labels: b.gz}", "train: a.gz",
       "x.yaml:6:10: data.train: got \"a.gz\", want a map of features, labels\n"},
  });
}

TEST_CASE("every mistake in the model gets its message", "[job_errors]") {
  CheckAll({
      {"input: [64]", "input: [0]",
       "x.yaml:9:11: model.input.0: got \"0\", want an integer in [1, 16777216]\n"},
      {"input: [64]", "input: [1, 2, 3, 4]",
       "x.yaml:9:10: model.input: got a list of 4, want 1 to 3 items\n"},
      {"input: [64]", "input: [a, 64, 1.5]",
       "x.yaml:9:11: model.input.0: got \"a\", want an integer in [1, 16777216]\n"
       "x.yaml:9:18: model.input.2: got \"1.5\", want an integer in [1, 16777216]\n"},
      {"input: [64]", "input: {}",
       "x.yaml:9:10: model.input: got an empty map, want a list, "
       "or tokens: {...}\n"},
      {"input: [64]", "input: {tokens: {vocabulary: 1, context: 8}}",
       "x.yaml:9:32: model.input.tokens.vocabulary: got \"1\", want an integer in [2, 16777216]\n"},
      {"input: [64]", "input: {token: {vocabulary: 7, context: 8}}",
       "x.yaml:9:11: model.input.token: unknown key; did you mean \"tokens\"?\n"},
      {"input: [64]", "input: {tokens: 5}",
       "x.yaml:9:19: model.input.tokens: got \"5\", want a map of vocabulary, context\n"},
      {"input: [64]", "tokens: {vocabulary: 7, context: 8}\n  input: [64]",
       "x.yaml:9:3: model.tokens: unknown key, want it below input: {tokens: {...}}\n"},
      {"input: [64]", "input: [16777216, 16777216, 16777216]",
       "x.yaml:9:10: model.input: got a product above 16777216, want at most that many\n"},
      {"    - relu: {}", "    - rellu: {}",
       "x.yaml:13:7: model.layers.2.rellu: unknown key; did you mean \"relu\"?\n"},
      {"    - relu: {}", "    - rellu",
       "x.yaml:13:7: model.layers.2: got \"rellu\", want exactly one of linear, batch_norm, "
       "relu, dropout, conv2d, max_pool, avg_pool, residual, concat, "
       "repeat, layer_norm, group_norm, local_response_norm, gelu, tanh, sigmoid, silu, "
       "leaky_relu, embedding, attention; did you mean \"relu\"?\n"},
      {"    - relu: {}", "    - relu: 5",
       "x.yaml:13:13: model.layers.2.relu: got \"5\", want {}\n"},
      {"    - relu: {}", "    - relu: {slope: 0.1}",
       "x.yaml:13:14: model.layers.2.relu.slope: unknown key, want none here\n"},
      {"    - relu: {}", "    - ",
       "x.yaml:14:5: model.layers.2: got nothing, want exactly one of linear, batch_norm, "
       "relu, dropout, conv2d, max_pool, avg_pool, residual, concat, "
       "repeat, layer_norm, group_norm, local_response_norm, gelu, tanh, sigmoid, silu, "
       "leaky_relu, embedding, attention\n"},
      {"    - relu: {}", "    - {}",
       "x.yaml:13:7: model.layers.2: got nothing, want exactly one of linear, batch_norm, "
       "relu, dropout, conv2d, max_pool, avg_pool, residual, concat, "
       "repeat, layer_norm, group_norm, local_response_norm, gelu, tanh, sigmoid, silu, "
       "leaky_relu, embedding, attention\n"},
      {"    - relu: {}", "    - []",
       "x.yaml:13:7: model.layers.2: got an empty list, want a map with exactly one of linear, "
       "batch_norm, relu, dropout, conv2d, max_pool, avg_pool, residual, concat, "
       "repeat, layer_norm, group_norm, local_response_norm, gelu, tanh, sigmoid, silu, "
       "leaky_relu, embedding, attention\n"},
      {"    - relu: {}", "    - {relu: {}, dropout: {}}",
       "x.yaml:13:18: model.layers.2: got both relu and dropout, want exactly one of linear, "
       "batch_norm, relu, dropout, conv2d, max_pool, avg_pool, residual, concat, "
       "repeat, layer_norm, group_norm, local_response_norm, gelu, tanh, sigmoid, silu, "
       "leaky_relu, embedding, attention\n"},
      {"    - relu: {}", "    - relu: {}\n      dropout: {}\n      batch_norm: {}",
       "x.yaml:14:7: model.layers.2: got both relu and dropout, want exactly one of linear, "
       "batch_norm, relu, dropout, conv2d, max_pool, avg_pool, residual, concat, "
       "repeat, layer_norm, group_norm, local_response_norm, gelu, tanh, sigmoid, silu, "
       "leaky_relu, embedding, attention\n"
       "x.yaml:15:7: model.layers.2: got both relu and batch_norm, want exactly one of linear, "
       "batch_norm, relu, dropout, conv2d, max_pool, avg_pool, residual, concat, "
       "repeat, layer_norm, group_norm, local_response_norm, gelu, tanh, sigmoid, silu, "
       "leaky_relu, embedding, attention\n"},
      {"    - relu: {}", "    - dropout: {probability: 1}",
       "x.yaml:13:30: model.layers.2.dropout.probability: got \"1\", want a number in [0, 1)\n"},
      {"    - relu: {}", "    - dropout: {probability: -0.1}",
       "x.yaml:13:30: model.layers.2.dropout.probability: got \"-0.1\", want a number in [0, 1)\n"},
      {"    - relu: {}", "    - batch_norm: {epsilon: 0}",
       "x.yaml:13:29: model.layers.2.batch_norm.epsilon: got \"0\", want a number in [1e-30, 1]\n"},
      {"    - relu: {}", "    - linear",
       "x.yaml:13:7: model.layers.2.linear.units: missing, want an integer in [1, "
       "16777216], or vocabulary\n"},
      {"    - linear: {units: 10}", "    - linear: {units: 1}",
       "x.yaml:11:5: model.layers: got 1 output, want at least 2: softmax over one is always "
       "1; for two classes in one output use sigmoid_cross_entropy\n"},
      {"    - linear: {units: 10}", "    - linear: {units: 16777217}",
       "x.yaml:14:23: model.layers.3.linear.units: got \"16777217\", want an integer in [1, "
       "16777216], or vocabulary\n"},
      {"    - linear: {units: 10}", "    - linear: {units: 10}\n  loss: softmax",
       "x.yaml:15:9: model.loss: got \"softmax\", want one of softmax_cross_entropy, "
       "sigmoid_cross_entropy, mean_squared_error; did you mean \"softmax_cross_entropy\"?\n"},
  });
}

TEST_CASE("every mistake in training gets its message", "[job_errors]") {
  CheckAll({
      {"batch_size: 16", "batch_size: 1",
       "x.yaml:16:15: train.batch_size: got 1, want at least 2: batch_norm makes every "
       "activation of a single row 0\n"},
      {"batch_size: 16", "batch_size: 16\n  micro_batch: 5",
       "x.yaml:17:16: train.micro_batch: got 5, which leaves a piece of 1 row of 16, want at "
       "least 2 in each: batch_norm makes every activation of a single row 0\n"},
      {"batch_size: 16", "batch_size: 16\n  micro_batch: 1",
       "x.yaml:17:16: train.micro_batch: got 1, which leaves a piece of 1 row of 16, want at "
       "least 2 in each: batch_norm makes every activation of a single row 0\n"},
      {"batch_size: 16", "batch_size: 16\n  micro_batch: -4",
       "x.yaml:17:16: train.micro_batch: got \"-4\", want an integer in [0, 1048576]\n"},
      {"batch_size: 16", "batch_size: 16\n  micro_batch: 1048577",
       "x.yaml:17:16: train.micro_batch: got \"1048577\", want an integer in [0, 1048576]\n"},
      {"batch_size: 16", "batch_size: 16\n  micro_batch: half",
       "x.yaml:17:16: train.micro_batch: got \"half\", want an integer in [0, 1048576]\n"},
      {"batch_size: 16", "batch_size: 16\n  precision: f16",
       "x.yaml:17:14: train.precision: got \"f16\", want one of f32, tf32, bf16; did you mean "
       "\"bf16\"?\n"},
      {"batch_size: 16", "batch_size: 16\n  target_accuracy: 1.5",
       "x.yaml:17:20: train.target_accuracy: got \"1.5\", want a number in [0, 1]\n"},
      {"optimizer: {sgd: {learning_rate: 0.1}}", "optimizer: sgd",
       "x.yaml:18:14: train.optimizer: got \"sgd\", want a map with exactly one of sgd, adamw, "
       "adagrad, adam, rmsprop, muon\n"},
      {"optimizer: {sgd: {learning_rate: 0.1}}",
       "optimizer: {adamw: {learning_rate: 0.001, beta2: 1}}",
       "x.yaml:18:52: train.optimizer.adamw.beta2: got \"1\", want a number in [0, 1)\n"},
      {"optimizer: {sgd: {learning_rate: 0.1}}", "optimizer: {adma: {}}",
       "x.yaml:18:15: train.optimizer.adma: unknown key; did you mean \"adam\"?\n"},
      {"optimizer: {sgd: {learning_rate: 0.1}}", "optimizer: {sgd: {}}",
       "x.yaml:18:15: train.optimizer.sgd.learning_rate: missing, want a number in [0, 1e+06]\n"},
      {"optimizer: {sgd: {learning_rate: 0.1}}", "optimizer: {sgd: {learning_rate: inf}}",
       "x.yaml:18:36: train.optimizer.sgd.learning_rate: got \"inf\", want a number in [0, "
       "1e+06]\n"},
      {"optimizer: {sgd: {learning_rate: 0.1}}", "optimizer: {sgd: {learning_rate: 1e999}}",
       "x.yaml:18:36: train.optimizer.sgd.learning_rate: got \"1e999\", want a number in [0, "
       "1e+06]\n"},
      {"optimizer: {sgd: {learning_rate: 0.1}}",
       "optimizer: {sgd: {learning_rate: 0.1, momentum: 1}}",
       "x.yaml:18:51: train.optimizer.sgd.momentum: got \"1\", want a number in [0, 1)\n"},
      {"optimizer: {sgd: {learning_rate: 0.1}}",
       "optimizer: {sgd: {learning_rate: 0.1, nesterov: true}}",
       "x.yaml:18:51: train.optimizer.sgd.nesterov: got true with momentum 0, want a momentum "
       "above 0: it says how momentum is applied\n"},
      {"optimizer: {sgd: {learning_rate: 0.1}}",
       "optimizer: {sgd: {learning_rate: 0.1, dampening: 1}}",
       "x.yaml:18:41: train.optimizer.sgd.dampening: unknown key, want learning_rate, momentum, "
       "weight_decay, nesterov\n"},
      {"batch_size: 16", "batch_size: 16\n  schedule: {decay: {step: {factor: 0.5}}}",
       "x.yaml:17:22: train.schedule.decay.step.every: missing, want an integer in [1, "
       "1000000000000000]\n"},
      {"batch_size: 16", "batch_size: 16\n  schedule: {decay: quick}",
       "x.yaml:17:21: train.schedule.decay: got \"quick\", want exactly one of constant, step, "
       "cosine, milestones, linear\n"},
      {"batch_size: 16",
       "batch_size: 16\n  schedule: {decay: {milestones: {at: [100, 200, 200, 50]}}}",
       "x.yaml:17:50: train.schedule.decay.milestones.at.2: got 200 behind 200, want ascending "
       "numbers of examples\n"
       "x.yaml:17:55: train.schedule.decay.milestones.at.3: got 50 behind 200, want ascending "
       "numbers of examples\n"},
      {"batch_size: 16",
       "batch_size: 16\n  schedule: {warmup: 101, decay: {milestones: {at: [100, 200]}}}",
       "x.yaml:17:22: train.schedule.warmup: got 101, want at most decay.milestones.at[0], which "
       "is 100: the rate would drop before it is warm\n"},
      {"batch_size: 16",
       "batch_size: 16\n  schedule: {warmup: 101, decay: {linear: {examples: 100}}}",
       "x.yaml:17:22: train.schedule.warmup: got 101, want at most decay.linear.examples, which is "
       "100: the rate would be at its floor before it is warm\n"},
      {"batch_size: 16",
       "batch_size: 16\n  schedule: {warmup: 101, decay: {cosine: {examples: 100}}}",
       "x.yaml:17:22: train.schedule.warmup: got 101, want at most decay.cosine.examples, which is "
       "100: the rate would be at its floor before it is warm\n"},
      {"batch_size: 16", "batch_size: 16\n  schedule: {warmup: 101, decay: {step: {every: 100}}}",
       "x.yaml:17:22: train.schedule.warmup: got 101, want at most decay.step.every, which is 100: "
       "the rate would drop before it is warm\n"},
  });
}

TEST_CASE("every mistake in the method and the codecs gets its message", "[job_errors]") {
  CheckAll({
      {"method: {local_sgd: {local_steps: 20}}", "method:",
       "x.yaml:19:1: method: got nothing, want exactly one of data_parallel, "
       "local_sgd, diloco, async_sgd, softsync, ssp, quant_dp, ist, ensemble, slim_dp, "
       "decentralized, layer_separation\n"},
      {"method: {local_sgd: {local_steps: 20}}", "method: {}",
       "x.yaml:19:1: method: got nothing, want exactly one of data_parallel, "
       "local_sgd, diloco, async_sgd, softsync, ssp, quant_dp, ist, ensemble, slim_dp, "
       "decentralized, layer_separation\n"},
      {"method: {local_sgd: {local_steps: 20}}", "# none",
       "x.yaml:1:1: method: missing, want exactly one of data_parallel, "
       "local_sgd, diloco, async_sgd, softsync, ssp, quant_dp, ist, ensemble, slim_dp, "
       "decentralized, layer_separation\n"},
      {"method: {local_sgd: {local_steps: 20}}", "method: localsgd",
       "x.yaml:19:9: method: got \"localsgd\", want exactly one of data_parallel, local_sgd, "
       "diloco, async_sgd, softsync, ssp, quant_dp, ist, ensemble, slim_dp, decentralized, "
       "layer_separation; did you mean \"local_sgd\"?\n"},
      {"method: {local_sgd: {local_steps: 20}}", "method: {local_sgd: {}, async_sgd: {}}",
       "x.yaml:19:25: method: got both local_sgd and async_sgd, want exactly one of "
       "data_parallel, local_sgd, diloco, async_sgd, softsync, ssp, quant_dp, ist, ensemble, "
       "slim_dp, decentralized, layer_separation\n"},
      {"method: {local_sgd: {local_steps: 20}}", "method: {softsync: {pushes: four}}",
       "x.yaml:19:29: method.softsync.pushes: got \"four\", want an integer in [1, 65535]\n"},
      {"method: {local_sgd: {local_steps: 20}}", "method: {softsync: {pushes: 3}}",
       "x.yaml:19:29: method.softsync.pushes: got 3, want at most 2, the number of workers "
       "(cluster.workers)\n"},
      {"method: {local_sgd: {local_steps: 20}}", "method: {softsync: {}}",
       "x.yaml:19:10: method.softsync.pushes: missing, want an integer in [1, 65535]\n"},
      {"method: {local_sgd: {local_steps: 20}}", "method: {ssp: {bound: -1}}",
       "x.yaml:19:23: method.ssp.bound: got \"-1\", want an integer in [0, 1000000]\n"},
      {"method: {local_sgd: {local_steps: 20}}", "method: {diloco: {outer_learning_rate: 0}}",
       "x.yaml:19:40: method.diloco.outer_learning_rate: got \"0\", want a number in [1e-30, "
       "1e+06]\n"},
      {"method: {local_sgd: {local_steps: 20}}", "method: {diloco: {quorum: {pushes: 3}}}",
       "x.yaml:19:36: method.diloco.quorum.pushes: got 3, want at most 2, the number of workers "
       "(cluster.workers)\n"},
      {"method: {local_sgd: {local_steps: 20}}", "method: {diloco: {quorum: {grace: 5s}}}",
       "x.yaml:19:35: method.diloco.quorum.grace: got a time without pushes, want both: grace "
       "runs once so many pushes are there, and with pushes 0 an update waits for all\n"},
      {"method: {local_sgd: {local_steps: 20}}",
       "method: {diloco: {asynchronous: true, quorum: {pushes: 1}}}",
       "x.yaml:19:39: method.diloco.quorum: got a quorum beside asynchronous, want one or the "
       "other: with asynchronous nobody waits, so that there is nothing to close\n"},
      {"method: {local_sgd: {local_steps: 20}}", "method: {slim_dp: {alpha: 0.1, beta: 0.2}}",
       "x.yaml:19:38: method.slim_dp.beta: got 0.2, want at most 0.1, which is "
       "method.slim_dp.alpha: the core is a part of what is exchanged\n"},
      {"method: {local_sgd: {local_steps: 20}}", "method: {slim_dp: {alpha: 0}}",
       "x.yaml:19:27: method.slim_dp.alpha: got \"0\", want a number in (0, 1]\n"},
      {"method: {local_sgd: {local_steps: 20}}", "method: {ist: {parts: by_sped}}",
       "x.yaml:19:23: method.ist.parts: got \"by_sped\", want one of equal, by_speed; did you mean "
       "\"by_speed\"?\n"},
      {"method: {local_sgd: {local_steps: 20}}", "method: {ist: {tail_steps: 19}}",
       "x.yaml:19:28: method.ist.tail_steps: got 19, want at least 20, which is "
       "method.ist.local_steps, or 0: it begins where a round ends\n"},
      {"method: {local_sgd: {local_steps: 20}}", "method: {ist: {tail_steps: 20}}",
       "x.yaml:19:28: method.ist.tail_steps: got 20, want 0 with this model: layers.3.weight sums "
       "over hidden neurons without a batch_norm behind it. Subnets are trained on sums of fewer "
       "terms, which evaluation makes up for, and the whole model is not; add a batch_norm after "
       "that layer\n"},
      {"method: {local_sgd: {local_steps: 20}}", "method: [local_sgd]",
       "x.yaml:19:9: method: got a list, want a map with exactly one of data_parallel, "
       "local_sgd, diloco, async_sgd, softsync, ssp, quant_dp, ist, ensemble, slim_dp, "
       "decentralized, layer_separation\n"},
      {"method: {local_sgd: {local_steps: 20}}", "method: {local_sgd: {average_state: true}}",
       "x.yaml:19:37: method.local_sgd.average_state: got true, want false: sgd without momentum "
       "has no state, so that there is nothing to average\n"},
      {"method: {local_sgd: {local_steps: 20}}",
       "method: {local_sgd: {overlap: true, average_state: true}}",
       "x.yaml:19:31: method.local_sgd.overlap: got true beside average_state, want one or the "
       "other: a state that comes an exchange late does not belong to the parameters that it would "
       "move\n"
       "x.yaml:19:52: method.local_sgd.average_state: got true, want false: sgd without momentum "
       "has no state, so that there is nothing to average\n"},
      {"method: {local_sgd: {local_steps: 20}}",
       "method: {diloco: {asynchronous: true, overlap: true}}",
       "x.yaml:19:48: method.diloco.overlap: got true beside asynchronous, want one or the other: "
       "nobody waits there, so that there is nothing to overlap\n"},
      {"method: {local_sgd: {local_steps: 20}}",
       "method: {diloco: {quorum: {adaptive_grace: true}}}",
       "x.yaml:19:44: method.diloco.quorum.adaptive_grace: got true without pushes, want both: a "
       "grace is for those who are not among the first so many, and with pushes 0 an update waits "
       "for all\n"},
      {"method: {local_sgd: {local_steps: 20}}",
       "method: {diloco: {quorum: {weights: squared_examples}}}",
       "x.yaml:19:37: method.diloco.quorum.weights: got squared_examples without pushes, want "
       "both, or examples: without a quorum pushes weigh by their examples\n"},
      {"method: {local_sgd: {local_steps: 20}}",
       "method: {async_sgd: {staleness: {exponential: {base: 1.5}}}}",
       "x.yaml:19:54: method.async_sgd.staleness.exponential.base: got \"1.5\", want a number in "
       "(0, 1]\n"},
      {"method: {local_sgd: {local_steps: 20}}",
       "method: {async_sgd: {staleness: {constant: {scale: 0}}}}",
       "x.yaml:19:52: method.async_sgd.staleness.constant.scale: got \"0\", want a number in "
       "[1e-30, 1e+06]\n"},
      {"push: f32", "push: f33",
       "x.yaml:20:15: codec.push: got \"f33\", want exactly one of f32, bf16, f16, int8, qsgd, "
       "threshold, topk; did you mean \"f32\"?\n"},
      {"push: f32", "push: {threshold: {tau: 1e-60}}",
       "x.yaml:20:33: codec.push.threshold.tau: got 1e-60, want 0 or a number of at least 1e-30\n"},
      {"push: f32", "push: {topk: {k: 4097}}",
       "x.yaml:20:26: codec.push.topk.k: got \"4097\", want an integer in [1, 4096]\n"},
      {"push: f32", "push: {qsgd: {bits: 9}}",
       "x.yaml:20:29: codec.push.qsgd.bits: got \"9\", want an integer in [2, 8]\n"},
      {"push: f32", "pull: threshold",
       "x.yaml:20:9: codec.pull: got threshold, want f32, bf16, f16, int8 or qsgd: it sends parts "
       "of changes, and a pull brings values\n"},
      {"push: f32", "error_feedback: true",
       "x.yaml:20:25: codec.error_feedback: got true, want false with codec.push f32, which loses "
       "nothing\n"},
      {"push: f32", "push: qsgd, error_feedback: true",
       "x.yaml:20:37: codec.error_feedback: got true, want false with codec.push qsgd: its "
       "rounding has no bias to correct, and what is held back would only add to the noise\n"},
      {"push: f32", "push: threshold, error_feedback: true",
       "x.yaml:20:42: codec.error_feedback: got true, want false with codec.push threshold, which "
       "keeps what it does not send by itself\n"},
      {"push: f32", "push: int8, flush: true",
       "x.yaml:20:28: codec.flush: got true, want false: with this codec.push nothing is held back "
       "that a last push could bring; that is so of threshold or topk, and with error_feedback\n"},
      {"method: {local_sgd: {local_steps: 20}}\ncodec: {push: f32}",
       "method: slim_dp\ncodec: {push: qsgd, error_feedback: true}",
       "x.yaml:20:37: codec.error_feedback: got true, want false with codec.push qsgd: its "
       "rounding has no bias to correct, and what is held back would only add to the noise\n"},
      {"method: {local_sgd: {local_steps: 20}}\ncodec: {push: f32}",
       "method: slim_dp\ncodec: {push: threshold}",
       "x.yaml:20:9: codec.push: got threshold, want another codec with method slim_dp, "
       "which chooses the entries that a push moves by itself\n"},
      {"method: {local_sgd: {local_steps: 20}}\ncodec: {push: f32}",
       "method: quant_dp\ncodec: {push: int8}",
       "x.yaml:20:9: codec.push: got int8, want no codec.push with method quant_dp, which has qsgd "
       "(8 bits, buckets of 512, max norm); for another codec use data_parallel\n"},
      {"method: {local_sgd: {local_steps: 20}}\ncodec: {push: f32}",
       "method: quant_dp\ncodec: {error_feedback: true}",
       "x.yaml:20:25: codec.error_feedback: got true, want false with method quant_dp, whose codec "
       "is qsgd: its rounding has no bias to correct, and what is held back would only add to the "
       "noise\n"},
      {"method: {local_sgd: {local_steps: 20}}\ncodec: {push: f32}",
       "method: ist\ncodec: {push: threshold}",
       "x.yaml:20:9: codec.push: got threshold, want another codec with method ist: it sends parts "
       "of changes, and a push of ist brings values, all of which replace what is there\n"},
      {"method: {local_sgd: {local_steps: 20}}\ncodec: {push: f32}",
       "method: ist\ncodec: {push: int8, error_feedback: true}",
       "x.yaml:20:37: codec.error_feedback: got true, want false with method ist: it corrects sums "
       "of changes, and a push of ist brings values\n"},
      {"push: f32", "push: {f32: {bits: 3}}",
       "x.yaml:20:22: codec.push.f32.bits: unknown key, want none here\n"},
      {"push: f32", "pushes: f32",
       "x.yaml:20:9: codec.pushes: unknown key; did you mean \"push\"?\n"},
  });
}

TEST_CASE("every mistake in the cluster gets its message", "[job_errors]") {
  CheckAll({
      {"servers: 2", "servers: 0",
       "x.yaml:21:20: cluster.servers.count: got \"0\", want an integer in [1, 256]\n"},
      {"servers: 2", "servers: two",
       "x.yaml:21:20: cluster.servers.count: got \"two\", want an integer in [1, 256]\n"},
      {"servers: 2", "servers: 10.0.0.1:7000",
       "x.yaml:21:20: cluster.servers: got \"10.0.0.1:7000\", want a number, or a list: "
       "[10.0.0.1:7000]\n"},
      {"servers: 2", "servers: [\"0.0.0.0:7000\"]",
       "x.yaml:21:21: cluster.servers.addresses.0: got \"0.0.0.0:7000\", want the name that "
       "others reach it by; the server's --listen 0.0.0.0:7000 listens on all of its machine's "
       "addresses\n"},
      {"servers: 2", "servers: [a:1, b:2, a:1, c, \":5\", \"d:0\", \"e:65536\", \"f:x\"]",
       "x.yaml:21:31: cluster.servers.addresses.2: got \"a:1\" again, want each server once; it "
       "is item 0\n"
       "x.yaml:21:36: cluster.servers.addresses.3: got \"c\", want host:port with a port in [1, "
       "65535], such as 10.0.0.1:7000\n"
       "x.yaml:21:39: cluster.servers.addresses.4: got \":5\", want host:port with a port in [1, "
       "65535], such as 10.0.0.1:7000\n"
       "x.yaml:21:45: cluster.servers.addresses.5: got \"d:0\", want host:port with a port in "
       "[1, 65535], such as 10.0.0.1:7000\n"
       "x.yaml:21:52: cluster.servers.addresses.6: got \"e:65536\", want host:port with a port "
       "in [1, 65535], such as 10.0.0.1:7000\n"
       "x.yaml:21:63: cluster.servers.addresses.7: got \"f:x\", want host:port with a port in "
       "[1, 65535], such as 10.0.0.1:7000\n"},
      {"servers: 2", "servers: {count: 3, addresses: [\"a:1\", \"b:2\"]}",
       "x.yaml:21:28: cluster.servers.count: got 3 beside 2 addresses, want the addresses alone\n"},
      {"servers: 2", "servers: []",
       "x.yaml:21:20: cluster.servers: got an empty list, want one with items; without the key the "
       "default holds\n"},
      {"servers: 2", "servers: {addresses: []}\n         , serverz: 1",
       "x.yaml:22:12: cluster.serverz: unknown key; did you mean \"servers\"?\n"},
      {"lease_timeout: 10s", "lease_timeout: 10",
       "x.yaml:21:50: cluster.lease_timeout: got \"10\", want a duration such as 10s, in [200ms, "
       "1h]\n"},
      {"lease_timeout: 10s", "lease_timeout: 100ms",
       "x.yaml:21:50: cluster.lease_timeout: got \"100ms\", want a duration such as 10s, in "
       "[200ms, 1h]\n"},
      {"lease_timeout: 10s", "lease_timeout: 2h",
       "x.yaml:21:50: cluster.lease_timeout: got \"2h\", want a duration such as 10s, in [200ms, "
       "1h]\n"},
      {"lease_timeout: 10s", "lease_timeout: inf",
       "x.yaml:21:50: cluster.lease_timeout: got \"inf\", want a duration such as 10s, in "
       "[200ms, 1h]\n"},
      {"lease_timeout: 10s", "lease_timeout: 10s, memory_limit: 4XB",
       "x.yaml:21:69: cluster.memory_limit: got \"4XB\", want a size such as 4MiB, in whole B, kB, "
       "MB, GB, TB, KiB, MiB, GiB or TiB, of at least 0\n"},
      {"lease_timeout: 10s", "lease_timeout: 10s, memory_limit: -1",
       "x.yaml:21:69: cluster.memory_limit: got \"-1\", want a size such as 4MiB, in whole B, kB, "
       "MB, GB, TB, KiB, MiB, GiB or TiB, of at least 0\n"},
      {"lease_timeout: 10s", "lease_timeout: 10s, memory_limit: 99999999TiB",
       "x.yaml:21:69: cluster.memory_limit: got \"99999999TiB\", want a size such as 4MiB, in "
       "whole B, kB, MB, GB, TB, KiB, MiB, GiB or TiB, of at least 0\n"},
      {"lease_timeout: 10s", "lease_timeout: 10s, memory_limit: 1.5GiB",
       "x.yaml:21:69: cluster.memory_limit: got \"1.5GiB\", want a size such as 4MiB, in whole B, "
       "kB, MB, GB, TB, KiB, MiB, GiB or TiB, of at least 0\n"},
      {"lease_timeout: 10s", "lease_timeout: 10s, device: cuda:x",
       "x.yaml:21:63: cluster.device: got \"cuda:x\", want cpu, cuda or cuda:N\n"},
      {"lease_timeout: 10s", "lease_timeout: 10s, device: gpu",
       "x.yaml:21:63: cluster.device: got \"gpu\", want cpu, cuda or cuda:N\n"},
      {"lease_timeout: 10s", "lease_timeout: 10s, replicas: 2",
       "x.yaml:21:65: cluster.replicas: got \"2\", want an integer in [0, 1]\n"},
  });
}

TEST_CASE("what is no YAML, or more of it than a job needs, gets its message", "[job_errors]") {
  CheckAll({
      {"security: {}", "security: {insecure: maybe}",
       "x.yaml:23:22: security.insecure: got \"maybe\", want true or false\n"},
      {"security: {}", "security: [",
       "x.yaml:24:1: not YAML: end of sequence flow not found; want a ] for each [, and a comma "
       "between items\n"},
      {"security: {}", "security: {}\n---\nname: two",
       "x.yaml:24:1: a second document starts here, want one\n"},
      {"security: {}", "security: {}\n[a]: 3", "x.yaml:24:1: got a list as a key, want a name\n"},
      {"security: {}", "security: {}\n~: 3", "x.yaml:24:1: got nothing as a key, want a name\n"},
      {"security: {}", "security: {}\n<<: {a: 1}",
       "x.yaml:24:1: got the merge key \"<<\", want each key where it holds: an alias stands for "
       "one "
       "whole value\n"},
      {"security: {}", "security: {}\n\"<<\": 1",
       "x.yaml:24:1: \"<<\": unknown key, want name, seed, data, model, train, method, codec, "
       "cluster, checkpoint, security\n"},
      {"security: {}", "security: !!map {}",
       "x.yaml:23:11: got the tag \"tag:yaml.org,2002:map\", want no tags\n"},
      {"security: {}", "security: *none",
       "x.yaml:23:11: not YAML: the referenced anchor is not defined\n"},
      {"security: {}", "security: &a {certificate: *a}",
       "x.yaml:23:28: an alias stands within its own anchor\n"},
      {"security: {}", "security: @x",
       "x.yaml:23:11: not YAML: unknown token; want quotes around text that begins with @, % or "
       "`\n"},
      {"security: {}", "\tsecurity: {}",
       "x.yaml:23:1: got a tab, want spaces: YAML takes no other indent (end of map not found)\n"},
  });
}

}  // namespace
}  // namespace tessera
