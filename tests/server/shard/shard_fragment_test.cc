// A shard where every exchange moves one fragment of the entries.
#include <catch2/catch.hpp>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/codec/codecs.h"
#include "common/consistency/barrier.h"
#include "common/layout/fragment.h"
#include "common/rule/sgd.h"
#include "server/shard/forms/fragment_form.h"
#include "tests/server/shard/cut_shard.h"

namespace tessera {
namespace {

using Values = std::vector<float>;
constexpr int kFragments = 4;
constexpr float kRate = 0.5f;

Shard::Options FragmentOptions(int shard, int shard_count) {
  Shard::Options options;
  options.shape = CutShape();
  options.shard = ShardId(shard);
  options.sharding = shard_count;
  options.seed = 42;
  options.policy = MakeBarrier();
  options.rule = MakeSgd({kRate, 0.9f, 0, false});
  options.fragments = kFragments;
  return options;
}

std::unique_ptr<Shard> Made(int shard, int shard_count, int members) {
  auto made = std::make_unique<Shard>(FragmentOptions(shard, shard_count));
  made->SetPlan(PlanOfFirst(members));
  return made;
}

ReceivedPush PushOf(const Shard& shard, uint64_t member, uint64_t exchange,
                    const Fragment& fragment, const Values& values) {
  ReceivedPush push;
  push.member = MemberId(member);
  push.exchange = Exchange(exchange);
  push.base = shard.counters().version;
  push.layout_hash = shard.layout_hash();
  push.examples = 4;
  push.keys = fragment;
  if (!values.empty()) push.payload = PayloadOf(values);
  return push;
}

// What a member pushes of its fragment: small whole numbers, whose sums are exact.
Values UpdateOf(int64_t size, uint64_t member, uint64_t exchange) {
  Values values(static_cast<size_t>(size));
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] = static_cast<float>((i * 7 + member * 3 + exchange) % 16);
  }
  return values;
}

TEST_CASE("each exchange updates its fragment, with momentum of its own, and nothing else",
          "[shard][fragment]") {
  const int count = GENERATE(1, 2, 5);
  const bool is_read = GENERATE(false, true);
  for (int s = 0; s < count; ++s) {
    const std::unique_ptr<Shard> shard = Made(s, count, 2);
    const int64_t size = shard->slices().size;
    Values all = AllOf(shard.get());
    REQUIRE(static_cast<int64_t>(all.size()) == 2 * size);
    // Values, then velocities, as a plain loop has them.
    Values w(all.begin(), all.begin() + size);
    Values v(static_cast<size_t>(size));
    for (uint64_t exchange = 1; exchange <= 3 * kFragments; ++exchange) {
      const Fragment fragment = FragmentOf(Exchange(exchange), kFragments);
      const int64_t begin = BeginOf(shard->slices(), fragment);
      const int64_t part = SlicesOfFragment(shard->slices(), fragment).size;
      // A reader that holds all blocks has them copied as they are written, and what lies beside the fragment, too.
      const ReadResult held = is_read ? shard->ReadNow() : ReadResult();
      for (uint64_t member = 1; member <= 2; ++member) {
        MustTake(shard.get(),
                 PushOf(*shard, member, exchange, fragment, UpdateOf(part, member, exchange)));
      }
      REQUIRE(shard->counters().version == Version(exchange));
      for (int64_t i = 0; i < part; ++i) {
        const float mean = (UpdateOf(part, 1, exchange)[i] + UpdateOf(part, 2, exchange)[i]) * 0.5f;
        float& velocity = v[static_cast<size_t>(begin + i)];
        velocity = exchange <= kFragments ? mean : 0.9f * velocity + mean;
        w[static_cast<size_t>(begin + i)] -= kRate * velocity;
      }
      Values want = w;
      want.insert(want.end(), v.begin(), v.end());
      const Values got = AllOf(shard.get());
      for (size_t i = 0; i < want.size(); ++i) {
        if (got[i] != Approx(want[i])) FAIL("entry " << i << " exchange " << exchange);
      }
      // Exactly what they were where no push was of them.
      for (int64_t i = 0; i < size; ++i) {
        if (i >= begin && i < begin + part) continue;
        if (got[i] != all[i]) FAIL("entry " << i << " changed in exchange " << exchange);
      }
      all = got;
      w.assign(got.begin(), got.begin() + size);
    }
  }
}

TEST_CASE("a push of another fragment than its exchange's is refused", "[shard][fragment]") {
  const std::unique_ptr<Shard> shard = Made(0, 1, 2);
  const auto refused = [&](uint64_t exchange, const NamedKeys& keys) {
    ReceivedPush push = PushOf(*shard, 1, exchange, {0, kFragments}, {});
    push.keys = keys;
    return std::string(shard->Accept(std::move(push)).status().message());
  };
  CHECK(refused(1, Fragment{1, kFragments}) ==
        "push from member 1 exchange 1: fragment is 1 of 4, want 0 of 4");
  CHECK(refused(2, Fragment{0, kFragments}) ==
        "push from member 1 exchange 2: fragment is 0 of 4, want 1 of 4");
  CHECK(refused(1, Fragment{0, 3}) ==
        "push from member 1 exchange 1: fragment is 0 of 3, want one of 4; the job's methods "
        "differ");
  CHECK(refused(1, AllEntries()) ==
        "push from member 1 exchange 1: keys are dense, want a fragment's; the job's methods "
        "differ");
}

TEST_CASE("a member that is lost does not hold up its fragment", "[shard][fragment]") {
  const std::unique_ptr<Shard> shard = Made(0, 1, 2);
  const Fragment first{0, kFragments};
  const int64_t part = SlicesOfFragment(shard->slices(), first).size;
  const Values before = AllOf(shard.get());
  MustTake(shard.get(), PushOf(*shard, 1, 1, first, UpdateOf(part, 1, 1)));
  CHECK(shard->counters().version == Version(0));
  Plan plan = PlanOfFirst(1);
  plan.generation = Generation(2);
  shard->SetPlan(plan);
  Settle(shard.get());
  REQUIRE(shard->counters().version == Version(1));
  const Values after = AllOf(shard.get());
  CHECK(after[1] == Approx(before[1] - kRate * UpdateOf(part, 1, 1)[1]));
  CHECK(after[static_cast<size_t>(part)] == before[static_cast<size_t>(part)]);
}

TEST_CASE("a shard with fewer rows than fragments takes pushes of nothing", "[shard][fragment]") {
  Shard::Options options = FragmentOptions(0, 1);
  options.shape = ModelShape();
  options.shape.parameters = {{"w", 2, 5, false, 0, 0.4f, 0}};
  options.shape.size = 10;
  Shard shard(std::move(options));
  shard.SetPlan(PlanOfFirst(1));
  for (uint64_t exchange = 1; exchange <= 2 * kFragments; ++exchange) {
    const Fragment fragment = FragmentOf(Exchange(exchange), kFragments);
    const int64_t part = SlicesOfFragment(shard.slices(), fragment).size;
    MustTake(&shard, PushOf(shard, 1, exchange, fragment, UpdateOf(part, 1, exchange)));
    CHECK(shard.counters().version == Version(exchange));
  }
}

}  // namespace
}  // namespace tessera
