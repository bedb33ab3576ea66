#include "deploy/cli/plan/traffic.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/codec/coded_keys.h"
#include "common/codec/selective_codec.h"
#include "common/keyset/core_share.h"
#include "common/keyset/entry_keys.h"
#include "common/keyset/key_set.h"
#include "common/layout/losses.h"

namespace tessera {
namespace {

using Certainty = TrafficForecast::Certainty;

// Of all servers' parts.
TrafficForecast ForecastOf(const Codec& codec, const KeySet& keys, const ModelShape& shape) {
  TrafficForecast forecast;
  for (const ShardSlices& slices : keys.slices) {
    if (codec->selective() == nullptr) {
      forecast.bytes += CodedKeys(codec, slices, shape).bytes();
      continue;
    }
    const int64_t before = forecast.bytes;
    forecast = codec->selective()->Forecast(slices.size);
    forecast.bytes += before;
  }
  return forecast;
}

// The bytes of core and explorer, as if each server had its share of either.
int64_t SparseBytes(const Codec& codec, const Recipe& recipe, const KeySet& keys,
                    const ModelShape& shape) {
  const int64_t on_all = EntriesOf(recipe.core->alpha, shape.size);
  int64_t bytes = 0, before = 0, moved = 0;
  for (const ShardSlices& slices : keys.slices) {
    before += slices.size;
    const int64_t entries = on_all * before / shape.size - moved;
    moved += entries;
    bytes += CodedForms::OfEntries(recipe.codecs, entries, on_all).Find(codec)->bytes();
  }
  return bytes;
}

// The bytes of a core's keys, if its entries were spread evenly: a gap takes a byte, and one more for each 128
// places, or all take a bit a place.
int64_t CoreKeyBytes(const CoreShare& share, int64_t entries) {
  const double further = std::pow(1 - share.beta, 128);
  const double gaps = static_cast<double>(CoreCount(share, entries)) * (1 + further);
  return std::min(static_cast<int64_t>(gaps), KeyBytesMax(entries));
}

TrafficForecast PushOf(const Recipe& recipe, const KeySet& keys, const ModelShape& shape) {
  const Codec& codec = recipe.codecs.push;
  TrafficForecast forecast = ForecastOf(codec, keys, shape);
  if (recipe.core && !recipe.core->is_whole()) {
    const auto every = static_cast<int64_t>(recipe.core->every);
    const int64_t sparse = SparseBytes(codec, recipe, keys, shape);
    forecast.bytes = sparse + (forecast.bytes - sparse) / every;
    forecast.certainty = Certainty::kAbout;
  }
  return forecast;
}

// What a worker pulls in an exchange; a core's keys come once for each core, and count for their share of it.
TrafficForecast PullOf(const Recipe& recipe, const KeySet& keys, const ModelShape& shape) {
  const Codec& codec = recipe.codecs.pull;
  if (!recipe.core || recipe.core->is_whole()) return ForecastOf(codec, keys, shape);
  const int64_t core_keys = CoreKeyBytes(*recipe.core, shape.size);
  TrafficForecast forecast;
  forecast.bytes = SparseBytes(codec, recipe, keys, shape) +
                   core_keys / static_cast<int64_t>(recipe.core->every);
  forecast.certainty = Certainty::kAbout;
  return forecast;
}

// Parts differ where workers' shares do, and where they cannot divide the neurons of some layer.
void DoubtParts(const v1::Job& job, const Recipe& recipe, const ModelShape& shape,
                TrafficForecast* forecast) {
  if (!recipe.subnets || forecast->certainty != Certainty::kExact) return;
  bool differ = recipe.parts_by_speed;
  const NeuronGroups groups = GroupsOf(shape, recipe.subnet_rules);
  const int64_t sites = std::max<int64_t>(1, job.cluster().workers());
  for (int group = 0; group < static_cast<int>(groups.widths.size()); ++group) {
    differ = differ || (groups.IsCut(group) && groups.widths[group] % sites != 0);
  }
  if (differ) forecast->certainty = Certainty::kAbout;
}

// The mean over all workers of what the two halves' workers move.
TrafficForecast MeanOfHalves(const v1::Job& job, const Recipe& recipe, const ModelShape& shape,
                             TrafficForecast HalfForecast::*which) {
  const LayerSplit& split = *recipe.split;
  TrafficForecast mean = ForecastOfHalf(job, recipe, shape, /*is_linear=*/false).*which;
  const TrafficForecast linear = ForecastOfHalf(job, recipe, shape, /*is_linear=*/true).*which;
  mean.bytes = (split.front_workers * mean.bytes + split.linear_workers * linear.bytes) /
               (split.front_workers + split.linear_workers);
  return mean;
}

// The mean over all fragments, which differ in size by less than a row on each server.
TrafficForecast MeanOfFragments(const v1::Job& job, const Recipe& recipe, const ModelShape& shape,
                                TrafficForecast (*of)(const Recipe&, const KeySet&,
                                                      const ModelShape&)) {
  const int servers = static_cast<int>(job.cluster().servers().count());
  const int count = recipe.fragments->count;
  TrafficForecast mean;
  bool differ = false;
  int64_t sum = 0;
  for (int number = 0; number < count; ++number) {
    const int64_t before = mean.bytes;
    mean = of(recipe, KeysOfFragment(shape, servers, {number, count}), shape);
    differ = differ || (number > 0 && mean.bytes != before);
    sum += mean.bytes;
  }
  mean.bytes = sum / count;
  if (differ && mean.certainty == Certainty::kExact) mean.certainty = Certainty::kAbout;
  return mean;
}

}  // namespace

KeySet WorkerKeys(const v1::Job& job, const Recipe& recipe, const ModelShape& shape) {
  const int servers = static_cast<int>(job.cluster().servers().count());
  if (!recipe.subnets) return DenseKeys(shape, ShardCount(recipe.placement, servers));
  SubnetPlace place;
  place.seed = job.seed();
  place.round = 1;
  place.shares.assign(std::max<int64_t>(1, job.cluster().workers()), 1);
  return SubnetKeys(shape, SubnetOf(shape, GroupsOf(shape, recipe.subnet_rules), place), place,
                    servers);
}

std::string Describe(const TrafficForecast& forecast) {
  switch (forecast.certainty) {
    case Certainty::kExact:
      return absl::StrCat(forecast.bytes, " bytes");
    case Certainty::kAbout:
      return absl::StrCat("about ", forecast.bytes, " bytes");
    case Certainty::kAtMost:
      return absl::StrCat("at most about ", forecast.bytes, " bytes");
    case Certainty::kUnknown:
      return forecast.sent;
  }
  TESSERA_CHECK(false);
  return "";
}

TrafficForecast PushForecast(const v1::Job& job, const Recipe& recipe, const ModelShape& shape) {
  if (recipe.split) return MeanOfHalves(job, recipe, shape, &HalfForecast::push);
  if (recipe.fragments) return MeanOfFragments(job, recipe, shape, PushOf);
  TrafficForecast forecast = PushOf(recipe, WorkerKeys(job, recipe, shape), shape);
  DoubtParts(job, recipe, shape, &forecast);
  // A push goes to every peer, and none to oneself.
  if (recipe.placement == Placement::kReplicated) {
    forecast.bytes *= job.cluster().servers().count() - 1;
  }
  return forecast;
}

TrafficForecast PullForecast(const v1::Job& job, const Recipe& recipe, const ModelShape& shape) {
  if (recipe.split) return MeanOfHalves(job, recipe, shape, &HalfForecast::pull);
  if (recipe.fragments) return MeanOfFragments(job, recipe, shape, PullOf);
  TrafficForecast forecast = PullOf(recipe, WorkerKeys(job, recipe, shape), shape);
  DoubtParts(job, recipe, shape, &forecast);
  return forecast;
}

HalfForecast ForecastOfHalf(const v1::Job& job, const Recipe& recipe, const ModelShape& shape,
                            bool is_linear) {
  const LayerCut& cut = recipe.split->cut;
  HalfForecast half;
  const auto servers = static_cast<int>(job.cluster().servers().count());
  half.keys = LayerKeys(shape, ShardingOf(recipe, servers), is_linear ? cut.back() : cut.front());
  half.push = PushOf(recipe, half.keys, shape);
  half.pull = PullOf(recipe, half.keys, shape);
  return half;
}

ActivationForecast ForecastOfActivations(const v1::Job& job, const LayerSplit& split,
                                         const ModelShape& shape) {
  const int64_t values =
      job.train().batch_size() * shape.widths[static_cast<size_t>(split.cut.layer)];
  // The loss decides where it can: only the data tell of what kind a sigmoid's labels are.
  const bool has_classes = job.model().loss() != kSigmoid || shape.outputs() == 1;
  const int64_t labels = job.train().batch_size() * (has_classes ? 1 : shape.outputs());
  return {4 * (values + labels), 4 * values};
}

}  // namespace tessera
