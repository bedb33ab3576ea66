#include "common/method/catalog.h"

#include <set>
#include <string>
#include <tuple>

#include "catch2/catch.hpp"
#include "common/method/recipe.h"

namespace tessera {
namespace {

const google::protobuf::OneofDescriptor& Kinds() {
  return *v1::Method::descriptor()->oneof_decl(0);
}

// A job that names `method` and gives none of its keys.
v1::Job JobWith(const Method& method) {
  v1::Job job;
  const auto* const field = v1::Method::descriptor()->FindFieldByNumber(method.kind);
  REQUIRE(field != nullptr);
  job.mutable_method()->GetReflection()->MutableMessage(job.mutable_method(), field);
  return job;
}

TEST_CASE("every method of the job file has one entry of the catalog", "[catalog]") {
  std::set<int> kinds;
  for (const Method* const method : Methods()) {
    REQUIRE(kinds.insert(method->kind).second);
    REQUIRE(MethodOf(JobWith(*method)) == method);
  }
  REQUIRE(static_cast<int>(kinds.size()) == Kinds().field_count());
  for (int i = 0; i < Kinds().field_count(); ++i) {
    REQUIRE(kinds.count(Kinds().field(i)->number()) == 1);
  }
  REQUIRE(MethodOf(v1::Job()) == nullptr);
}

TEST_CASE("a recipe has the name that the job file has for its method", "[catalog]") {
  for (const Method* const method : Methods()) {
    v1::Job job = JobWith(*method);
    job.mutable_cluster()->set_workers(2);
    job.mutable_train()->mutable_optimizer()->mutable_sgd();
    job.mutable_model()->add_input(4);
    job.mutable_model()->add_layers()->mutable_linear()->set_units(3);
    const absl::StatusOr<Recipe> recipe = method->recipe(job);
    const std::string name = v1::Method::descriptor()->FindFieldByNumber(method->kind)->name();
    INFO(name);
    // A model of one linear layer cannot be cut in two, which is the one thing that a recipe may refuse.
    if (!recipe.ok()) {
      REQUIRE(recipe.status().code() == absl::StatusCode::kInvalidArgument);
      REQUIRE(method->check != nullptr);
      continue;
    }
    REQUIRE(recipe->name == name);
    REQUIRE(recipe->make_policy);
    REQUIRE(recipe->make_rule);
  }
}

TEST_CASE("numbers of steps and exchanges that a short job never reaches are noted", "[catalog]") {
  v1::Job ist, decentralized, slim;
  ist.mutable_method()->mutable_ist()->set_tail_steps(5);
  decentralized.mutable_method()->mutable_decentralized()->set_warmup_steps(5);
  v1::SlimDp* const keys = slim.mutable_method()->mutable_slim_dp();
  keys->set_local_steps(2);
  keys->set_beta(0.1);
  keys->set_core_every(5);
  for (const auto& [job, key, enough] :
       {std::make_tuple(ist, "method.ist.tail_steps", 6),
        std::make_tuple(decentralized, "method.decentralized.warmup_steps", 6),
        std::make_tuple(slim, "method.slim_dp.core_every", 9)}) {
    INFO(key);
    const Method& method = *MethodOf(job);
    const auto notes = method.length_notes(job, enough - 1);
    REQUIRE(notes.size() == 1);
    REQUIRE(notes[0].key == key);
    REQUIRE(notes[0].value == 5);
    REQUIRE(method.length_notes(job, enough).empty());
    const bool counts = method.counts_steps != nullptr && method.counts_steps(job);
    REQUIRE(counts == (enough == 6));
  }
}

}  // namespace
}  // namespace tessera
