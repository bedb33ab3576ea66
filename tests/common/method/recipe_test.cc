#include "common/method/recipe.h"

#include <catch2/catch.hpp>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace tessera {
namespace {

v1::Job WithSgd(double learning_rate) {
  v1::Job job;
  job.mutable_train()->mutable_optimizer()->mutable_sgd()->set_learning_rate(learning_rate);
  return job;
}

// w after one committed update of mean u, from w = 1 and states of 0.
float Applied(const Recipe& recipe, float u) {
  float w = 1;
  float zeros[2] = {0, 0};
  float* const state[] = {&zeros[0], &zeros[1]};
  recipe.make_rule()->Apply(Update(), &u, &w, &w, state, 1);
  return w;
}

Recipe RecipeOf(const v1::Job& job) {
  absl::StatusOr<Recipe> recipe = RecipeFor(job);
  REQUIRE(recipe.ok());
  return *std::move(recipe);
}

bool Says(const Recipe& recipe, absl::string_view words) {
  INFO(recipe.description);
  return absl::StrContains(recipe.description, words);
}

// The verdict over the only member's first push, which is `tau` versions late.
Verdict First(const Recipe& recipe, uint64_t tau = 0) {
  const std::unique_ptr<ConsistencyPolicy> policy = recipe.make_policy();
  policy->SetMembers({Generation(1), {{MemberId(1), Rank(0), Exchange(1)}}});
  return policy->OnPush({MemberId(1), Exchange(1), Version(0), Version(tau)});
}

bool IsBarrier(const Recipe& recipe) { return recipe.make_policy()->Collecting() == Exchange(1); }

TEST_CASE("data_parallel sends gradients through a barrier to the optimizer", "[method]") {
  v1::Job job = WithSgd(0.5);
  job.mutable_method()->mutable_data_parallel();
  const absl::StatusOr<Recipe> recipe = RecipeFor(job);
  REQUIRE(recipe.ok());
  CHECK(recipe->name == "data_parallel");
  CHECK(recipe->payload == PayloadKind::kGradient);
  CHECK(recipe->local_steps == 1);
  CHECK(recipe->lockstep);
  CHECK(IsBarrier(*recipe));
  CHECK(Applied(*recipe, 4) == -1.0f);
}

TEST_CASE("a job whose parameters are too small for qsgd is said to move f32, which it does",
          "[method]") {
  v1::Job job = WithSgd(0.5);
  job.mutable_model()->add_input(100);
  v1::Linear& linear = *job.mutable_model()->add_layers()->mutable_linear();
  linear.set_units(20);
  v1::QuantDp& quant = *job.mutable_method()->mutable_quant_dp();
  quant.set_bits(8);
  quant.set_bucket(512);
  const std::string rounds = "pushes as qsgd (8 bits, buckets of 512, max norm), pulls as f32";
  CHECK_FALSE(Says(RecipeOf(job), rounds));
  CHECK(
      Says(RecipeOf(job),
           "pushes as f32, pulls as f32 (qsgd (8 bits, buckets of 512, max norm) rounds parameters "
           "of 10000 entries and more, and the largest has 2000)"));
  // What the programs do follows from the codec, as before.
  CHECK(RecipeOf(job).codecs.push->kind() == "qsgd");
  linear.set_units(100);
  CHECK(Says(RecipeOf(job), rounds));
  // Pulls may be of that codec, too, with any method.
  job.mutable_method()->mutable_data_parallel();
  job.mutable_codec()->mutable_push()->mutable_int8();
  job.mutable_codec()->mutable_pull()->mutable_qsgd()->set_bits(4);
  CHECK(Says(RecipeOf(job), "pushes as int8, pulls as qsgd (4 bits"));
  linear.set_units(99);
  CHECK(Says(RecipeOf(job), "pushes as int8, pulls as f32 (qsgd (4 bits"));
}

TEST_CASE("local_sgd sends deltas through a barrier and adds them", "[method]") {
  v1::Job job = WithSgd(0.5);
  job.mutable_method()->mutable_local_sgd()->set_local_steps(20);
  const absl::StatusOr<Recipe> recipe = RecipeFor(job);
  REQUIRE(recipe.ok());
  CHECK(recipe->payload == PayloadKind::kDelta);
  CHECK(recipe->local_steps == 20);
  CHECK(recipe->lockstep);
  CHECK(IsBarrier(*recipe));
  CHECK(Applied(*recipe, 4) == 5.0f);
  CHECK(recipe->averaged_states.empty());
  CHECK_FALSE(recipe->overlaps);
  const std::string description = recipe->description;
  // What the servers do is the same.
  job.mutable_method()->mutable_local_sgd()->set_overlap(true);
  const Recipe overlapped = RecipeOf(job);
  CHECK(overlapped.overlaps);
  CHECK(overlapped.lockstep);
  CHECK(IsBarrier(overlapped));
  CHECK(Applied(overlapped, 4) == 5.0f);
  CHECK(overlapped.description.find(description + "; ") == 0);
}

TEST_CASE("local_sgd averages the states that the optimizer has", "[method]") {
  using Names = std::vector<std::string>;
  v1::Job job = WithSgd(0.5);
  job.mutable_method()->mutable_local_sgd()->set_average_state(true);
  job.mutable_train()->mutable_optimizer()->mutable_sgd()->set_momentum(0.9);
  CHECK(RecipeOf(job).averaged_states == Names{"momentum"});
  CHECK(Says(RecipeOf(job), "(momentum) is averaged"));
  job.mutable_train()->mutable_optimizer()->mutable_adamw()->set_learning_rate(0.1);
  CHECK(RecipeOf(job).averaged_states == Names{"mean", "squares"});
  // Means are added whatever they are means of.
  CHECK(Applied(RecipeOf(job), 4) == 5.0f);
}

TEST_CASE("slim_dp sends deltas of a core and an explorer and adds their mean", "[method]") {
  v1::Job job = WithSgd(0.5);
  job.mutable_cluster()->set_workers(4);
  v1::SlimDp& keys = *job.mutable_method()->mutable_slim_dp();
  keys.set_alpha(0.25);
  keys.set_beta(0.125);
  keys.set_local_steps(3);
  keys.set_core_every(50);
  Recipe recipe = RecipeOf(job);
  CHECK(recipe.payload == PayloadKind::kDelta);
  CHECK(recipe.local_steps == 3);
  CHECK(recipe.lockstep);
  CHECK(IsBarrier(recipe));
  CHECK(Applied(recipe, 4) == 5.0f);
  CHECK(Says(recipe, "25% of the entries, of which 12.5% are the core"));
  REQUIRE(recipe.core.has_value());
  CHECK(recipe.core->every == 50);

  keys.set_asynchronous(true);
  recipe = RecipeOf(job);
  CHECK_FALSE(recipe.lockstep);
  CHECK_FALSE(recipe.aligned);
  CHECK(First(recipe, 7).commit);
  CHECK(First(recipe, 7).weight == 0.25f);
  CHECK(Says(recipe, "nobody waits"));

  // All entries: there is nothing to select.
  keys.set_alpha(1);
  CHECK_FALSE(RecipeOf(job).core.has_value());
}

TEST_CASE("diloco sends deltas through a weighted barrier to an outer optimizer", "[method]") {
  v1::Job job = WithSgd(0.5);
  v1::Diloco& keys = *job.mutable_method()->mutable_diloco();
  keys.set_local_steps(100);
  keys.set_outer_learning_rate(0.5);
  keys.set_outer_momentum(0.5);
  const Recipe recipe = RecipeOf(job);
  CHECK(recipe.payload == PayloadKind::kDelta);
  CHECK(recipe.local_steps == 100);
  CHECK(recipe.lockstep);
  CHECK(recipe.aligned);
  CHECK_FALSE(recipe.step_budgets);
  CHECK(IsBarrier(recipe));
  // m = -4; w = 1 - 0.5 (-4 + 0.5 (-4))
  CHECK(Applied(recipe, 4) == 4.0f);
  CHECK(recipe.make_rule()->state_count() == 1);
  CHECK_FALSE(recipe.overlaps);
  keys.set_overlap(true);
  CHECK(RecipeOf(job).overlaps);

  const std::unique_ptr<ConsistencyPolicy> policy = recipe.make_policy();
  policy->SetMembers(
      {Generation(1), {{MemberId(1), Rank(0), Exchange(1)}, {MemberId(2), Rank(1), Exchange(1)}}});
  policy->OnPush({MemberId(1), Exchange(1), Version(0), Version(0), 32});
  CHECK(policy->OnPush({MemberId(2), Exchange(1), Version(0), Version(0), 96}).weight == 3.0f);
}

TEST_CASE("diloco with a quorum closes rounds without the slowest", "[method]") {
  v1::Job job = WithSgd(0.5);
  v1::Diloco& keys = *job.mutable_method()->mutable_diloco();
  keys.set_outer_learning_rate(1);
  keys.mutable_quorum()->set_pushes(2);
  keys.mutable_quorum()->set_grace(5000000000);
  const Recipe recipe = RecipeOf(job);
  CHECK_FALSE(recipe.lockstep);
  CHECK_FALSE(recipe.aligned);
  CHECK(Says(recipe, "until 2 workers"));
  CHECK(Says(recipe, "5s longer"));
  CHECK(Applied(recipe, 4) == 5.0f);
  const std::unique_ptr<ConsistencyPolicy> policy = recipe.make_policy();
  Plan plan{Generation(1), {}};
  for (uint64_t m = 1; m <= 3; ++m) plan.members.push_back({MemberId(m), Rank(m), Exchange(1)});
  policy->SetMembers(plan);
  policy->OnPush({MemberId(1), Exchange(1), Version(0), Version(0), 1, absl::UnixEpoch()});
  policy->OnPush({MemberId(3), Exchange(1), Version(0), Version(0), 1, absl::UnixEpoch()});
  CHECK(policy->Deadline() == absl::UnixEpoch() + absl::Seconds(5));
}

TEST_CASE("a quorum says of its description what its grace is, and goes beside training",
          "[method]") {
  v1::Job job = WithSgd(0.5);
  v1::Diloco& keys = *job.mutable_method()->mutable_diloco();
  keys.mutable_quorum()->set_pushes(2);
  keys.mutable_quorum()->set_adaptive_grace(true);
  CHECK(Says(RecipeOf(job), "longer for others that are about as fast, but not for slow ones;"));
  CHECK_FALSE(RecipeOf(job).overlaps);
  keys.mutable_quorum()->set_grace(5000000000);
  keys.mutable_quorum()->set_weights("squared_examples");
  keys.set_overlap(true);
  CHECK(Says(RecipeOf(job),
             "slow ones, at most 5s; an outer optimizer applies the mean by squared "
             "weights"));
  CHECK(RecipeOf(job).overlaps);
}

TEST_CASE("asynchronous diloco takes every push at once, with momentum once per round of workers",
          "[method]") {
  v1::Job job = WithSgd(0.5);
  job.mutable_cluster()->set_workers(4);
  v1::Diloco& keys = *job.mutable_method()->mutable_diloco();
  keys.set_asynchronous(true);
  keys.set_outer_learning_rate(0.5);
  keys.set_outer_momentum(0.5);
  const Recipe recipe = RecipeOf(job);
  CHECK_FALSE(recipe.lockstep);
  CHECK_FALSE(recipe.aligned);
  CHECK(recipe.step_budgets);
  CHECK(Says(recipe, "every 4 changes"));
  CHECK(First(recipe, 7).commit);
  CHECK(First(recipe, 7).weight == 1.0f);
  const std::unique_ptr<UpdateRule> rule = recipe.make_rule();
  CHECK(rule->state_count() == 2);
  float w = 0;
  float zeros[2] = {0, 0};
  float* const state[] = {&zeros[0], &zeros[1]};
  const float delta = 8;
  Update update;
  for (update.number = 1; update.number < 4; ++update.number) {
    rule->Apply(update, &delta, &w, &w, state, 1);
    CHECK(w == update.number * 1.0f);  // 0.5 * 8 / 4 each
  }
  // m = -32 / 4; w += 0.5 (0.5 * 8 + 8 / 4)
  rule->Apply(update, &delta, &w, &w, state, 1);
  CHECK(w == 6.0f);
}

TEST_CASE("softsync sends gradients of one step and deltas of several, and waits for nobody",
          "[method]") {
  v1::Job job = WithSgd(0.5);
  v1::Softsync& keys = *job.mutable_method()->mutable_softsync();
  keys.set_pushes(3);
  keys.set_local_steps(1);
  keys.mutable_staleness()->mutable_inverse()->set_scale(1);
  const Recipe gradients = RecipeOf(job);
  CHECK(gradients.payload == PayloadKind::kGradient);
  CHECK_FALSE(gradients.lockstep);
  CHECK_FALSE(gradients.aligned);
  CHECK(Applied(gradients, 4) == -1.0f);
  CHECK(First(gradients, 4).weight == 0.25f);
  CHECK(Says(gradients, "every 3 pushes"));
  CHECK(PushesInMean(gradients.push_weight, gradients.pushes, /*members=*/4, /*ranks=*/5) == 3);
  CHECK(PushesInMean(gradients.push_weight, gradients.pushes, /*members=*/2, /*ranks=*/5) == 2);
  CHECK(Says(gradients, "weight 1 / max(1, tau)"));

  keys.set_local_steps(2);
  CHECK(RecipeOf(job).payload == PayloadKind::kDelta);
  CHECK(Applied(RecipeOf(job), 4) == 5.0f);
}

TEST_CASE("ssp adds deltas with the workers' share, and says how far ahead one may be",
          "[method]") {
  v1::Job job = WithSgd(0.5);
  job.mutable_cluster()->set_workers(4);
  v1::Ssp& keys = *job.mutable_method()->mutable_ssp();
  keys.set_bound(2);
  keys.set_local_steps(1);
  const Recipe recipe = RecipeOf(job);
  CHECK(recipe.payload == PayloadKind::kDelta);
  CHECK(recipe.local_steps == 1);
  CHECK_FALSE(recipe.lockstep);
  CHECK(recipe.aligned);
  CHECK(First(recipe).weight == 0.25f);
  CHECK(Applied(recipe, 4) == 5.0f);
  CHECK(Says(recipe, "weight 1/4"));
  CHECK(Says(recipe, "more than 2 exchanges ahead"));
}

TEST_CASE("every staleness weight of the job file reaches the policy", "[method]") {
  v1::Job job = WithSgd(0.5);
  v1::AsyncSgd& keys = *job.mutable_method()->mutable_async_sgd();
  v1::StalenessWeight& weight = *keys.mutable_staleness();
  CHECK(First(RecipeOf(job), 4).weight == 1.0f);
  weight.mutable_constant()->set_scale(0.5);
  CHECK(First(RecipeOf(job), 4).weight == 0.5f);
  CHECK(Says(RecipeOf(job), "with weight 0.5;"));
  weight.mutable_inverse()->set_scale(2);
  CHECK(First(RecipeOf(job), 4).weight == 0.5f);
  weight.mutable_power()->set_scale(3);
  weight.mutable_power()->set_exponent(0.5);
  CHECK(First(RecipeOf(job), 4).weight == 1.5f);
  CHECK(Says(RecipeOf(job), "weight 3 / max(1, tau)^0.5"));
  weight.mutable_exponential()->set_scale(4);
  weight.mutable_exponential()->set_base(0.5);
  CHECK(First(RecipeOf(job), 4).weight == 0.25f);
  CHECK(Says(RecipeOf(job), "weight 4 * 0.5^tau"));
}

TEST_CASE("a schedule belongs to the rule that is fed gradients, and to no other", "[method]") {
  v1::Job job = WithSgd(0.5);
  job.mutable_train()->mutable_schedule()->set_warmup(100);
  const auto warms_up = [&job] { return RecipeOf(job).schedule.Factor(0, 50) == 0.5; };
  v1::Method& method = *job.mutable_method();
  method.mutable_data_parallel();
  CHECK(warms_up());
  method.mutable_local_sgd();
  CHECK_FALSE(warms_up());
  method.mutable_diloco();
  CHECK_FALSE(warms_up());
  method.mutable_diloco()->set_asynchronous(true);
  CHECK_FALSE(warms_up());
  method.mutable_ssp();
  CHECK_FALSE(warms_up());
  for (const int64_t local_steps : {1, 2}) {
    method.mutable_async_sgd()->set_local_steps(local_steps);
    CHECK(warms_up() == (local_steps == 1));
    method.mutable_softsync()->set_local_steps(local_steps);
    method.mutable_softsync()->set_pushes(1);
    CHECK(warms_up() == (local_steps == 1));
  }
}

TEST_CASE("averaged states are exchanged behind the parameters, and begin at 0", "[method]") {
  v1::Model model;
  model.add_input(3);
  model.add_layers()->mutable_linear()->set_units(2);
  model.mutable_layers(0)->mutable_linear()->set_bias(true);
  Recipe recipe;
  REQUIRE(ExchangedShape(model, recipe)->parameters.size() == 2);
  recipe.averaged_states = {"mean", "squares"};
  const absl::StatusOr<ModelShape> shape = ExchangedShape(model, recipe);
  REQUIRE(shape.ok());
  REQUIRE(shape->parameters.size() == 6);
  CHECK(shape->size == 3 * 8);
  CHECK(shape->parameters[2].name == shape->parameters[0].name + ".mean");
  CHECK(shape->parameters[5].name == shape->parameters[1].name + ".squares");
  for (int i = 2; i < 6; ++i) {
    CHECK(shape->parameters[i].initial_bound == 0);
    CHECK(shape->parameters[i].initial_constant == 0);
    CHECK(shape->parameters[i].size() == shape->parameters[i % 2].size());
  }
}

TEST_CASE("async_sgd sends gradients of one step and deltas of several, and nobody waits",
          "[method]") {
  v1::Job job = WithSgd(0.5);
  v1::AsyncSgd& keys = *job.mutable_method()->mutable_async_sgd();
  keys.set_local_steps(1);
  keys.mutable_staleness()->mutable_constant()->set_scale(0.25);
  const absl::StatusOr<Recipe> gradients = RecipeFor(job);
  REQUIRE(gradients.ok());
  CHECK(gradients->payload == PayloadKind::kGradient);
  CHECK_FALSE(gradients->lockstep);
  CHECK_FALSE(IsBarrier(*gradients));
  CHECK(Applied(*gradients, 4) == -1.0f);
  const Verdict verdict = First(*gradients, 9);
  CHECK(verdict.commit);
  CHECK(verdict.weight == 0.25f);

  keys.set_local_steps(3);
  const absl::StatusOr<Recipe> deltas = RecipeFor(job);
  REQUIRE(deltas.ok());
  CHECK(deltas->payload == PayloadKind::kDelta);
  CHECK(Applied(*deltas, 4) == 5.0f);
}

TEST_CASE("every shard gets a policy and a rule of its own", "[method]") {
  v1::Job job = WithSgd(0.5);
  job.mutable_method()->mutable_data_parallel();
  const absl::StatusOr<Recipe> recipe = RecipeFor(job);
  REQUIRE(recipe.ok());
  const auto first = recipe->make_policy();
  const auto second = recipe->make_policy();
  first->SetMembers({Generation(1), {{MemberId(1), Rank(0), Exchange(1)}}});
  first->OnPush({MemberId(1), Exchange(1), Version(0), Version(0)});
  CHECK(first->Collecting() == Exchange(2));
  CHECK(second->Collecting() == Exchange(1));
}

TEST_CASE("momentum reaches the shard's rule", "[method]") {
  v1::Job job = WithSgd(0.5);
  job.mutable_method()->mutable_data_parallel();
  job.mutable_train()->mutable_optimizer()->mutable_sgd()->set_momentum(0.9);
  CHECK(RecipeFor(job)->make_rule()->state_count() == 1);
}

TEST_CASE("a method names as many states as its rule keeps", "[method]") {
  v1::Job job = WithSgd(0.5);
  v1::Optimizer& optimizer = *job.mutable_train()->mutable_optimizer();
  switch (GENERATE(0, 1, 2, 3, 4)) {
    case 1:
      optimizer.mutable_sgd()->set_momentum(0.9);
      break;
    case 4:
      optimizer.mutable_rmsprop()->set_momentum(0.9);
      break;
    case 2:
      optimizer.mutable_adagrad();
      break;
    case 3:
      optimizer.mutable_adam()->set_beta1(0.9);
      break;
    default:
      break;
  }
  v1::Method& method = *job.mutable_method();
  const int kind = GENERATE(range(0, 14));
  if (kind == 0) method.mutable_data_parallel();
  if (kind == 1) method.mutable_local_sgd()->set_local_steps(2);
  if (kind == 2 || kind == 3) method.mutable_diloco()->set_outer_momentum(kind == 3 ? 0.9 : 0);
  if (kind == 4 || kind == 5) {
    method.mutable_diloco()->set_asynchronous(true);
    method.mutable_diloco()->set_outer_momentum(kind == 5 ? 0.9 : 0);
  }
  if (kind == 6 || kind == 7) method.mutable_async_sgd()->set_local_steps(kind == 7 ? 3 : 1);
  if (kind == 8 || kind == 9) method.mutable_softsync()->set_local_steps(kind == 9 ? 3 : 1);
  if (kind == 10) method.mutable_ssp();
  if (kind == 11) method.mutable_quant_dp();
  if (kind == 12) method.mutable_decentralized();
  if (kind == 13) method.mutable_slim_dp()->set_alpha(0.5);
  const Recipe recipe = RecipeOf(job);
  CAPTURE(recipe.name);
  CHECK(static_cast<int>(recipe.rule_states.size()) == recipe.make_rule()->state_count());
}

TEST_CASE("layer separation gives each rank a half of the layers", "[method]") {
  v1::Job job = WithSgd(0.5);
  job.mutable_model()->add_input(1);
  job.mutable_model()->add_input(4);
  job.mutable_model()->add_input(4);
  job.mutable_model()->add_layers()->mutable_conv2d()->set_channels(2);
  job.mutable_model()->mutable_layers(0)->mutable_conv2d()->add_kernel(3);
  job.mutable_model()->add_layers()->mutable_batch_norm()->set_affine(true);
  job.mutable_model()->add_layers()->mutable_linear()->set_units(5);
  job.mutable_model()->mutable_layers(2)->mutable_linear()->set_bias(true);
  job.mutable_cluster()->set_workers(5);
  job.mutable_method()->mutable_layer_separation()->set_linear_workers(2);
  const absl::StatusOr<Recipe> recipe = RecipeFor(job);
  REQUIRE(recipe.ok());
  REQUIRE(recipe->split.has_value());
  CHECK(recipe->split->cut.layer == 2);
  // The convolution's weight, and batch norm's scale and shift.
  CHECK(recipe->split->range(Rank(2)) == ParameterRange{0, 3});
  CHECK(recipe->split->range(Rank(3)) == ParameterRange{3, 5});
  CHECK_FALSE(recipe->split->is_linear(Rank(2)));
  CHECK(recipe->split->is_linear(Rank(4)));
  CHECK_FALSE(recipe->closed_to_joiners);
  CHECK(recipe->payload == PayloadKind::kGradient);
}

TEST_CASE("a job without a method has no recipe, which is no crash", "[method]") {
  const v1::Job job = WithSgd(0.5);
  CHECK(RecipeFor(job).status().code() == absl::StatusCode::kUnimplemented);
}

TEST_CASE("where minibatches differ pushes weigh by their rows, in every method", "[method]") {
  v1::Job job = WithSgd(0.5);
  job.mutable_train()->set_batch_size(16);
  job.mutable_cluster()->set_workers(2);
  const bool by_speed = GENERATE(false, true);
  job.mutable_data()->set_partition(by_speed ? "by_speed" : "global");
  const int64_t steps = 5;
  v1::Method& method = *job.mutable_method();
  SECTION("data_parallel") { method.mutable_data_parallel(); }
  SECTION("quant_dp") { method.mutable_quant_dp(); }
  SECTION("local_sgd") { method.mutable_local_sgd()->set_local_steps(steps); }
  SECTION("diloco") { method.mutable_diloco()->set_local_steps(steps); }
  SECTION("async_sgd") { method.mutable_async_sgd()->set_local_steps(1); }
  SECTION("async_sgd of deltas") { method.mutable_async_sgd()->set_local_steps(steps); }
  SECTION("softsync") {
    method.mutable_softsync()->set_pushes(2);
    method.mutable_softsync()->set_local_steps(1);
  }
  SECTION("ssp") { method.mutable_ssp()->set_local_steps(steps); }
  const Recipe recipe = RecipeOf(job);
  const std::unique_ptr<ConsistencyPolicy> policy = recipe.make_policy();
  policy->SetMembers(
      {Generation(1), {{MemberId(1), Rank(0), Exchange(1)}, {MemberId(2), Rank(1), Exchange(1)}}});
  const auto rows = [&](uint64_t of_step) {
    return of_step * static_cast<uint64_t>(recipe.local_steps);
  };
  const Verdict fast = policy->OnPush({MemberId(1), Exchange(1), Version(0), Version(0), rows(24)});
  const Verdict slow = policy->OnPush({MemberId(2), Exchange(1), Version(0), Version(0), rows(8)});
  // Diloco weighs by examples anyway, as workers of a quorum may come with fewer steps.
  const bool weighs = by_speed || recipe.name == "diloco";
  CHECK(slow.weight / fast.weight == Approx(weighs ? 1.0 / 3 : 1));
  CHECK(Says(recipe, "smaller minibatches") == by_speed);
  // Together they are what two equal ones would be.
  if (slow.commit && !fast.commit) {
    CHECK((fast.weight + slow.weight) * slow.commit_scale == Approx(1));
  }
}

}  // namespace
}  // namespace tessera
