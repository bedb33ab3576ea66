// All forms of exchange, as the table makes them.
#include "server/shard/forms/form_table.h"

#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "common/consistency/barrier.h"
#include "common/rule/add.h"
#include "server/shard/log/shard_recorder.h"
#include "server/shard/shard.h"
#include "tests/server/shard/cut_shard.h"
#include "tests/server/shard/shard_fixture.h"

namespace tessera {
namespace {

// One kind of job: its options, and the keys that its pushes may name.
struct Job {
  std::string name;
  Shard::Options (*options)();
  std::vector<NamedKeys> pushes;
};

Shard::Options Plain() {
  Shard::Options options;
  options.shape = CutShape();
  options.policy = MakeBarrier();
  options.rule = MakeAdd();
  return options;
}

// Every parameter is whole at every site.
NeuronGroups Whole(const ModelShape& shape) {
  NeuronGroups groups;
  groups.widths = {1};
  groups.uses.resize(shape.parameters.size());
  for (size_t p = 0; p < shape.parameters.size(); ++p) {
    const bool is_vector = shape.parameters[p].columns == 1;
    groups.uses[p] = {static_cast<int>(2 * p + 1), is_vector ? -1 : static_cast<int>(2 * p + 2)};
    groups.widths.push_back(shape.parameters[p].rows);
    groups.widths.push_back(shape.parameters[p].columns);
  }
  return groups;
}

const std::vector<Job>& AllJobs() {
  static const auto* const jobs =
      new std::vector<Job>{{"dense", Plain, {AllEntries()}},
                           {"subnets",
                            [] {
                              Shard::Options options = Plain();
                              options.groups = Whole(options.shape);
                              return options;
                            },
                            {SubnetPlace()}},
                           {"subnets that end on the whole model",
                            [] {
                              Shard::Options options = Plain();
                              options.groups = Whole(options.shape);
                              options.whole_kind = 1;
                              return options;
                            },
                            {SubnetPlace(), AllEntries()}},
                           {"a core",
                            [] {
                              Shard::Options options = Plain();
                              options.core = CoreShare{0.5, 0.25, 2, 0};
                              return options;
                            },
                            {AllEntries(), NamedCore()}},
                           {"halves",
                            [] { return CutOptions(); },
                            {ParameterRange{0, 2}, ParameterRange{2, 4}, ParameterRange()}},
                           {"fragments",
                            [] {
                              Shard::Options options = Plain();
                              options.fragments = 3;
                              return options;
                            },
                            {Fragment{0, 3}, Fragment{2, 3}}}};
  return *jobs;
}

TEST_CASE("every form takes pushes of its own keys, and says of others what it wants",
          "[shard][form]") {
  const std::vector<NamedKeys> all = {AllEntries(),         SubnetPlace(), NamedCore(),
                                      ParameterRange{0, 2}, RowRange(),    Fragment{1, 3},
                                      UnknownKeys()};
  for (const Job& job : AllJobs()) {
    CAPTURE(job.name);
    const ShardTraits traits = TraitsOf(job.options());
    for (const NamedKeys& keys : all) {
      CAPTURE(KeysWord(keys));
      bool is_own = false;
      for (const NamedKeys& own : job.pushes) is_own = is_own || own.index() == keys.index();
      const auto entries = traits.keys->OfPush(keys, 1);
      CHECK(entries.ok() == is_own);
      if (entries.ok()) continue;
      CHECK(absl::IsInvalidArgument(entries.status()));
      const std::string begin = std::string("keys are ") + KeysWord(keys) + ", want ";
      CHECK_THAT(std::string(entries.status().message()),
                 Catch::StartsWith(begin + KeysWord(job.pushes.front())));
    }
    CHECK(traits.keys->moves_parts() == (job.name != "dense"));
    // Whoever evaluates reads all of it, or rows.
    CHECK(traits.keys->OfRead(AllEntries()).ok());
    CHECK(traits.keys->OfRead(RowRange{0, 1, 2}).ok());
    CHECK_FALSE(traits.keys->OfRead(UnknownKeys()).ok());
  }
}

TEST_CASE("every form's shard is one with the traits that were said of it", "[shard][form]") {
  for (const Job& job : AllJobs()) {
    CAPTURE(job.name);
    const ShardTraits before = TraitsOf(job.options());
    const Shard shard(job.options());
    CHECK(shard.traits().layout_hash == before.layout_hash);
    CHECK(shard.memory_bytes() >= shard.slices().bytes());
    CHECK((shard.cores() != nullptr) == (job.name == "a core"));
    // Only sums of all entries are sent to a standby in the pushes' place.
    CHECK(ShardRecorder::CombinesPushes(shard) == (job.name == "dense"));
  }
}

}  // namespace
}  // namespace tessera
