#include "worker/replica/subnet_replica.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <tuple>
#include <vector>

#include "common/keyset/mean_share.h"
#include "common/method/recipe.h"
#include "proto/job.pb.h"
#include "tests/worker/model/counting_backend.h"
#include "tests/worker/model/model_fixture.h"
#include "worker/data/dataset.h"
#include "worker/replica/batch_rows.h"
#include "worker/replica/subnet_memory.h"

namespace tessera {
namespace {

constexpr char kModel[] = "4 linear:9 norm relu linear:7 norm relu linear:3 softmax";

v1::Job JobOf(const std::string& model, int workers) {
  v1::Job job;
  *job.mutable_model() = ModelOf(model);
  job.set_seed(11);
  job.mutable_train()->set_batch_size(8);
  job.mutable_train()->set_precision("f32");
  v1::Sgd* const sgd = job.mutable_train()->mutable_optimizer()->mutable_sgd();
  sgd->set_learning_rate(0.1);
  sgd->set_momentum(0.9);
  job.mutable_cluster()->set_workers(workers);
  job.mutable_cluster()->set_evaluation_memory(int64_t{1} << 30);
  job.mutable_cluster()->mutable_servers()->set_count(2);
  job.mutable_method()->mutable_ist()->set_local_steps(5);
  return job;
}

std::unique_ptr<SubnetReplica> Made(const v1::Job& job, int rank, Backend& backend,
                                    const SubnetMemory& memory = {}) {
  auto replica =
      SubnetReplica::Create(job, *RecipeFor(job), Rank(rank), Exchange(1), &backend, {}, memory);
  INFO(replica.status());
  REQUIRE(replica.ok());
  return *std::move(replica);
}

std::vector<int> MeanShare(const std::string& text) {
  const v1::Model model = ModelOf(text);
  const ModelShape shape = *ShapeOf(model);
  return WeightsOfMeanShare(shape, GroupsOf(shape));
}

// What a worker on a small memory does.
SubnetMemory Least(const v1::Job& job) {
  return *PlanSubnetMemory(job, *RecipeFor(job), {}, {20, 50}, /*bytes_max=*/0);
}

// Servers whose values a test chooses.
class GivenValues final : public ParameterClient {
 public:
  explicit GivenValues(const v1::Job& job) : shape_(*ShapeOf(job.model())) {
    for (const ParameterSpec& spec : shape_.parameters) arrays.emplace_back(spec.size(), 1.0f);
  }
  absl::StatusOr<ExchangeResult> Pull(Exchange, const KeySet&, const ParameterArrays&) override {
    return absl::UnimplementedError("pull");
  }
  absl::StatusOr<ExchangeResult> PushPull(const OutgoingPush&, const KeySet&,
                                          const ConstParameterArrays&, const KeySet&,
                                          const ParameterArrays&) override {
    return absl::UnimplementedError("push and pull");
  }
  absl::StatusOr<ExchangeResult> Read(Exchange, IdleNotice,
                                      const ParameterArrays& values) override {
    for (size_t p = 0; p < arrays.size(); ++p) {
      std::copy(arrays[p].begin(), arrays[p].end(), values[p].begin());
    }
    ExchangeResult result;
    result.job_examples = 77;
    return result;
  }
  absl::Status ReadRows(const RowRange& rows, absl::Span<float> values) override {
    const int64_t columns = shape_.parameters[rows.parameter].columns;
    std::copy_n(arrays[rows.parameter].begin() + rows.row_begin * columns, values.size(),
                values.begin());
    return absl::OkStatus();
  }
  Traffic traffic() const override { return {}; }

  std::vector<std::vector<float>> arrays;

 private:
  const ModelShape shape_;
};

// As many random rows of four inputs and three classes.
Dataset Data(int rows) {
  const Rows random(ModelOf("4 linear:3 softmax"), rows, 1);
  Table table;
  table.rows = rows;
  table.features = 4;
  table.values = F32Values(random.inputs);
  table.labels = Classes(random.labels);
  return Dataset(std::move(table), Normalization(), ModelEnds{4, 3, false});
}

}  // namespace

TEST_CASE("sums of a cut group count by the mean share unless a batch norm follows",
          "[replica][subnet]") {
  CHECK(MeanShare("4 linear:9 relu linear:3 softmax") == std::vector<int>{2});
  CHECK(MeanShare("4 linear-:9 relu linear-:7 relu linear-:3 softmax") == std::vector<int>{1, 2});
  // Weights, biases, scales and shifts: 0 to 3, 4 to 7, 8 and 9.
  CHECK(MeanShare(kModel) == std::vector<int>{8});
  CHECK(
      MeanShare("4 linear-:9 relu linear-:7 drop:0.5 norm- relu linear-:3 norm- softmax").empty());
  // What lies between is not linear in the bias.
  CHECK(MeanShare("4 linear-:9 relu linear:7 relu norm- linear-:3 norm- softmax") ==
        std::vector<int>{1});
  // Nothing is cut.
  CHECK(MeanShare("4 linear:3 softmax").empty());
}

TEST_CASE("evaluation multiplies the sum by the mean share and leaves the bias",
          "[replica][subnet]") {
  const int workers = GENERATE(1, 3);
  const bool whole = GENERATE(true, false);
  const v1::Job job = JobOf("4 linear:9 relu linear:3 softmax", workers);
  const auto backend = Cpu();
  const auto replica = Made(job, 0, *backend, whole ? SubnetMemory() : Least(job));
  std::mt19937 random(2);
  std::normal_distribution<float> normal;
  GivenValues servers(job);
  REQUIRE(servers.arrays.size() == 4);
  std::vector<std::vector<double>> w;
  for (auto& array : servers.arrays) {
    for (float& x : array) x = normal(random);
    w.emplace_back(array.begin(), array.end());
  }
  REQUIRE(replica->BeginEvaluation(&servers, Exchange(1), IdleNotice()).ok());

  const int rows = 50;
  const Dataset data = Data(rows);
  std::vector<uint32_t> all(rows);
  std::iota(all.begin(), all.end(), 0);
  const Rows same(ModelOf("4 linear:3 softmax"), rows, 1);
  double loss = 0;
  for (int r = 0; r < rows; ++r) {
    double hidden[9], logits[3], sum = 0;
    for (int i = 0; i < 9; ++i) {
      hidden[i] = w[1][i];
      for (int j = 0; j < 4; ++j) hidden[i] += w[0][4 * i + j] * same.inputs[4 * r + j];
      hidden[i] = std::max(hidden[i], 0.0);
    }
    for (int o = 0; o < 3; ++o) {
      logits[o] = 0;
      for (int i = 0; i < 9; ++i) logits[o] += w[2][9 * o + i] * hidden[i];
      logits[o] = logits[o] / workers + w[3][o];
      sum += std::exp(logits[o]);
    }
    loss += std::log(sum) - logits[same.labels[r]];
  }
  const auto scores = replica->Score(data, all, {});
  REQUIRE(scores.ok());
  CHECK(scores->loss_sum == Approx(loss).epsilon(1e-5));
}

TEST_CASE("the mean share is that of the last round trained", "[replica][subnet]") {
  v1::Job job = JobOf("4 linear:9 relu linear:3 softmax", 2);
  if (GENERATE(true, false)) job.mutable_cluster()->set_evaluation_memory(0);
  const auto backend = Cpu();
  const auto replica =
      Made(job, 0, *backend, *PlanSubnetMemory(job, *RecipeFor(job), {}, {20, 50}));
  // Every hidden neuron is 1, and so is the weight of the first class: what its sum of 9 is
  // multiplied by shows in the loss of rows of that class.
  GivenValues servers(job);
  std::fill(servers.arrays[0].begin(), servers.arrays[0].end(), 0.0f);
  std::fill(servers.arrays[2].begin() + 9, servers.arrays[2].end(), 0.0f);
  std::fill(servers.arrays[3].begin(), servers.arrays[3].end(), 0.0f);
  const Dataset data = Data(50);
  std::vector<uint32_t> first_class;
  const Rows same(ModelOf("4 linear:3 softmax"), 50, 1);
  for (uint32_t r = 0; r < 50; ++r) {
    if (same.labels[r] == 0) first_class.push_back(r);
  }
  const auto share = [&] {
    REQUIRE(replica->BeginEvaluation(&servers, Exchange(1), IdleNotice()).ok());
    const auto scores = replica->Score(data, first_class, {});
    REQUIRE(scores.ok());
    REQUIRE(replica->EndEvaluation().ok());
    // loss = log(exp(9 s) + 2) - 9 s = log(1 + 2 exp(-9 s))
    const double loss = scores->loss_sum / static_cast<double>(first_class.size());
    const double found = -std::log((std::exp(loss) - 1) / 2) / 9;
    return std::round(found * 1000) / 1000;
  };
  CHECK(share() == 0.5);
  REQUIRE(replica->AdoptValues().ok());
  CHECK(share() == 0.5);
  // Of a job that goes on, the last round may have been of others.
  const auto state = replica->private_state();
  *state->sites = 4;
  CHECK(share() == 0.25);
  *state->sites = 2;
  // Round 2 is cut in four, round 3 in two.
  SubnetPlace place = *replica->value_keys().subnet;
  CHECK(place.round == 2);
  place.shares = {1, 1, 1, 1};
  REQUIRE(replica->Recut(place).ok());
  CHECK(share() == 0.5);
  REQUIRE(replica->AdoptValues().ok());
  CHECK(replica->update_keys().subnet->sites() == 4);
  CHECK(share() == 0.5);
  place = *replica->value_keys().subnet;
  CHECK(place.round == 3);
  CHECK(place.sites() == 4);
  place.shares = {1, 1};
  REQUIRE(replica->Recut(place).ok());
  CHECK(share() == 0.5);
  REQUIRE(replica->AdoptValues().ok());
  CHECK(share() == 0.25);
}

TEST_CASE("arrays have the sizes of the keys, and what is sent is what was adopted and trained",
          "[replica][subnet]") {
  const v1::Job job = JobOf(kModel, 3);
  const auto backend = Cpu();
  const auto replica = Made(job, 1, *backend);
  const Dataset data = Data(64);
  for (const uint32_t sites : {3u, 3u, 2u, 4u, 4u}) {
    SubnetPlace place = *replica->value_keys().subnet;
    place.site = 1;
    place.shares.assign(sites, 1);
    REQUIRE(replica->Recut(place).ok());
    int64_t size = 0, arrays = 0;
    for (const ShardSlices& slices : replica->value_keys().slices) size += slices.size;
    float x = 0;
    for (const auto& array : replica->values()) {
      arrays += static_cast<int64_t>(array.size());
      for (float& value : array) value = (x += 0.01f);
    }
    CHECK(arrays == size);
    REQUIRE(replica->AdoptValues().ok());
    CHECK(*replica->update_keys().subnet == place);
    x = 0;
    for (const auto& array : replica->update()) {
      for (const float value : array) REQUIRE(value == (x += 0.01f));
    }
    // Writing what comes next does not touch it.
    for (const auto& array : replica->values()) std::fill(array.begin(), array.end(), -1.0f);
    CHECK(replica->update()[0][0] == 0.01f);
    REQUIRE(replica->Train(data, {0, 1, 2, 3, 4, 5, 6, 7}, {0, 1}).ok());
    REQUIRE(replica->FormUpdate().ok());
    CHECK(replica->update()[0][0] != 0.01f);
    CHECK(replica->values()[0][0] == -1);
  }
}

TEST_CASE("a subnet replica holds what is planned, and allocates nothing while sizes stay",
          "[replica][subnet][memory]") {
  const v1::Job job = JobOf(kModel, 3);
  const auto cpu = Cpu();
  CountingBackend backend(*cpu);
  const SubnetMemory memory = *PlanSubnetMemory(job, *RecipeFor(job), {}, {0, 50});
  CHECK((memory.evaluates_whole && memory.pulls_apart));
  const auto replica = Made(job, 2, backend, memory);
  REQUIRE(replica->AdoptValues().ok());
  CHECK(memory.total() - memory.batches == backend.counting.held);
  const int64_t calls = backend.counting.calls;
  for (int round = 0; round < 20; ++round) REQUIRE(replica->AdoptValues().ok());
  CHECK(backend.counting.calls == calls);
}

TEST_CASE(
    "on the least memory a subnet is pulled into the one that was sent, and an evaluation has "
    "the memory of both",
    "[replica][subnet][memory]") {
  const v1::Job job = JobOf(kModel, 3);
  const SubnetMemory memory = Least(job);
  CHECK_FALSE(memory.evaluates_whole);
  CHECK_FALSE(memory.pulls_apart);
  const auto cpu = Cpu();
  CountingBackend backend(*cpu);
  const auto replica = Made(job, 2, backend, memory);
  CHECK_FALSE(replica->pulls_apart());
  const Dataset data = Data(50);
  std::vector<uint32_t> rows(20);
  std::iota(rows.begin(), rows.end(), 0);
  GivenValues servers(job);
  for (uint64_t round = 1; round <= 3; ++round) {
    CHECK(replica->value_keys().subnet->round == round);
    for (const auto& array : replica->values()) std::fill(array.begin(), array.end(), 0.1f);
    REQUIRE(replica->AdoptValues().ok());
    CHECK(backend.counting.held == memory.subnet);
    CHECK(replica->values()[0].data() == replica->update()[0].data());
    CHECK(replica->update()[0][0] == 0.1f);
    REQUIRE(replica->Train(data, {0, 1, 2, 3, 4, 5, 6, 7}, {0, 1}).ok());
    REQUIRE(replica->FormUpdate().ok());
    CHECK(replica->update_keys().subnet->round == round);
    CHECK(replica->value_keys().subnet->round == round + 1);
    if (round == 2) continue;
    REQUIRE(replica->BeginEvaluation(&servers, Exchange(round), IdleNotice()).ok());
    CHECK(backend.counting.held < memory.evaluation);
    const auto constants = replica->Calibrate(data, rows);
    REQUIRE(constants.ok());
    // No site scores more than its share of the 50 test rows.
    REQUIRE(replica->Score(data, absl::MakeSpan(rows).first(17), *constants).ok());
    CHECK(*replica->EndEvaluation());
    CHECK(replica->value_keys().subnet->round == round + 1);
    CHECK(backend.counting.held == memory.subnet);
  }
  CAPTURE(memory.subnet, memory.evaluation);
  CHECK(backend.counting.most == std::max(memory.subnet, memory.evaluation));
}

TEST_CASE("what an evaluation took the place of is asked for again, of the same round",
          "[replica][subnet]") {
  const v1::Job job = JobOf(kModel, 3);
  const auto backend = Cpu();
  const auto replica = Made(job, 1, *backend, Least(job));
  REQUIRE(replica->AdoptValues().ok());
  CHECK(replica->value_keys().subnet->round == 2);
  GivenValues servers(job);
  REQUIRE(replica->BeginEvaluation(&servers, Exchange(0), IdleNotice()).ok());
  CHECK(*replica->EndEvaluation());
  CHECK(replica->value_keys().subnet->round == 1);
  for (const auto& array : replica->values()) std::fill(array.begin(), array.end(), 0.1f);
  REQUIRE(replica->AdoptValues().ok());
  CHECK(replica->update_keys().subnet->round == 1);
  CHECK(replica->update()[0][0] == 0.1f);
}

TEST_CASE("the way that is chosen fits, and more memory never makes a worse one",
          "[replica][subnet][memory]") {
  v1::Job job = JobOf("40 linear:300 norm relu linear:200 norm relu linear:30 softmax", 4);
  const Recipe recipe = *RecipeFor(job);
  const EvaluationRowCounts rows{500, 4000};
  job.mutable_cluster()->set_evaluation_memory(int64_t{1} << 30);
  const SubnetMemory best = *PlanSubnetMemory(job, recipe, {}, rows);
  CHECK((best.evaluates_whole && best.pulls_apart));
  const SubnetMemory least = *PlanSubnetMemory(job, recipe, {}, rows, 0);
  CHECK_FALSE((least.evaluates_whole || least.pulls_apart));
  CHECK(least.streamed.examples_max == BatchRowsMax(job));
  const auto rank = [](const SubnetMemory& way) {
    return std::make_tuple(way.evaluates_whole, way.streamed.examples_max, way.pulls_apart);
  };
  SubnetMemory before = least;
  bool streams_apart = false;
  for (int64_t limit = least.total(); limit <= best.total(); limit += 10000) {
    const SubnetMemory way = *PlanSubnetMemory(job, recipe, {}, rows, limit);
    REQUIRE(way.total() <= limit);
    if (!way.evaluates_whole) REQUIRE(rank(way) >= rank(before));
    streams_apart |= !way.evaluates_whole && way.pulls_apart;
    before = way;
  }
  CHECK(streams_apart);
  CHECK(PlanSubnetMemory(job, recipe, {}, rows, best.total())->evaluates_whole);
  CHECK_FALSE(PlanSubnetMemory(job, recipe, {}, rows, best.total() - 1)->evaluates_whole);
  CHECK(PlanSubnetMemory(job, recipe, {}, rows, least.total() - 1)->total() == least.total());
  // The key alone makes an evaluation go in blocks, and bounds what it holds.
  job.mutable_cluster()->set_evaluation_memory(best.evaluation - 1);
  const SubnetMemory blocks = *PlanSubnetMemory(job, recipe, {}, rows);
  CHECK_FALSE(blocks.evaluates_whole);
  CHECK(blocks.pulls_apart);
  CHECK(blocks.evaluation < best.evaluation);
}

TEST_CASE("evaluation goes in blocks only where they take less than the network",
          "[replica][subnet][memory]") {
  // Blocks hold a convolution's activations of all rows that calibrate.
  v1::Job job = JobOf(
      "3 64 64 conv:16:3:1:1 norm relu conv:16:3:1:1 norm relu avg:8 linear:30 relu linear:4 "
      "softmax",
      2);
  const Recipe recipe = *RecipeFor(job);
  const SubnetMemory best = *PlanSubnetMemory(job, recipe, {}, {2048, 100});
  CHECK(best.evaluates_whole);
  job.mutable_cluster()->set_evaluation_memory(1 << 20);
  CHECK(PlanSubnetMemory(job, recipe, {}, {2048, 100})->evaluates_whole);
  job.mutable_cluster()->set_evaluation_memory(0);
  const SubnetMemory blocks = *PlanSubnetMemory(job, recipe, {}, {2048, 100});
  CHECK_FALSE(blocks.evaluates_whole);
  CHECK(blocks.evaluation > best.evaluation);
}

TEST_CASE("a subnet's minibatch in pieces needs less, and holds what is said",
          "[replica][subnet][memory][pieces]") {
  v1::Job job = JobOf("4 linear:90 norm relu linear:70 norm relu linear:3 softmax", 2);
  const Recipe recipe = *RecipeFor(job);
  const SubnetMemory whole = *PlanSubnetMemory(job, recipe, {}, {});
  job.mutable_train()->set_micro_batch(3);
  const SubnetMemory pieces = *PlanSubnetMemory(job, recipe, {}, {});
  CHECK(pieces.subnet < whole.subnet);
  CHECK(pieces.evaluation < whole.evaluation);
  CHECK(pieces.batches < whole.batches);
  const auto cpu = Cpu();
  CountingBackend backend(*cpu);
  backend.counting.limit = pieces.total() - pieces.batches;
  const auto replica = Made(job, 0, backend, pieces);
  REQUIRE(replica->AdoptValues().ok());
  CHECK(replica->Train(Data(16), {0, 1, 2, 3, 4, 5, 6, 7}, {0, 1}).ok());
  CHECK(replica->FormUpdate().ok());
}

TEST_CASE("where parts go by speed, the largest that there may be counts",
          "[replica][subnet][memory]") {
  const int workers = GENERATE(1, 2, 3, 6);
  const bool is_last = GENERATE(true, false);
  v1::Job job = JobOf("4 linear:90 norm relu linear:70 norm relu linear:3 softmax", workers);
  const int64_t equal = PlanSubnetMemory(job, *RecipeFor(job), {}, {})->total();
  job.mutable_method()->mutable_ist()->set_parts("by_speed");
  const SubnetMemory memory = *PlanSubnetMemory(job, *RecipeFor(job), {}, {});
  const int64_t need = memory.total();
  CHECK((workers == 1 ? need == equal : need > equal));
  const auto cpu = Cpu();
  CountingBackend backend(*cpu);
  const auto replica = Made(job, 0, backend, memory);
  SubnetPlace place = *replica->value_keys().subnet;
  // One has the most, the others as little as that leaves them.
  place.site = is_last ? workers - 1 : 0;
  const double most = std::min(4.0, workers - 0.25 * (workers - 1));
  place.shares.assign(workers, workers > 1 ? 1000 * (workers - most) / (workers - 1) : 1);
  place.shares[place.site] = static_cast<uint32_t>(1000 * most);
  REQUIRE(replica->Recut(place).ok());
  REQUIRE(replica->AdoptValues().ok());
  CHECK(backend.counting.most <= need - memory.batches);
  CHECK(backend.counting.held > 0.95 * static_cast<double>(need - memory.batches));
}

TEST_CASE("a subnet replica that does not fit is a status", "[replica][subnet][memory]") {
  const auto cpu = Cpu();
  CountingBackend backend(*cpu);
  const v1::Job job = JobOf(kModel, 2);
  const auto made = [&]() -> absl::Status {
    auto replica = SubnetReplica::Create(job, *RecipeFor(job), Rank(1), Exchange(1), &backend);
    if (!replica.ok()) return replica.status();
    return (*replica)->AdoptValues();
  };
  REQUIRE(made().ok());
  const int64_t need = backend.counting.most;
  for (int64_t limit = 0; limit < need; limit += 512) {
    backend.counting.limit = limit;
    REQUIRE(made().code() == absl::StatusCode::kResourceExhausted);
    REQUIRE(backend.counting.held == 0);
  }
}

TEST_CASE("a site without a neuron of some layer is refused", "[replica][subnet]") {
  const auto backend = Cpu();
  const v1::Job job = JobOf(kModel, 8);
  const absl::Status status =
      SubnetReplica::Create(job, *RecipeFor(job), Rank(0), Exchange(1), backend.get()).status();
  CHECK(status.code() == absl::StatusCode::kInvalidArgument);
  CHECK(status.message() ==
        "subnet: site 0 of 8 has none of the 7 neurons of hidden layer 2 in round 1, want at least "
        "1; use fewer workers");
}

}  // namespace tessera
