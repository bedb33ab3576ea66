// Two ways to make the same commit, one thread, over parameters that no cache holds.
//
//   bazel-bin/bench/commits/commits [--mib 64] [--seconds 1.5] [--tiny]
//
// sent     a threshold push that is an update of its own, as in `decentralized`: one pass over all
//          entries, against the entries that were sent alone. A shard takes the second way up to a
//          sixteenth of the slice's bytes; those beyond show what that is worth
// standby  the sum of an update's pushes, as a standby gets it: copied and applied, against applied
//          where it was received
// `held`: a reader holds every block, which is copied on write. First the bits of both ways are
// compared. They take turns, so that a slow moment of the machine hits both; printed are medians of
// GB/s of parameters, and the median of the ratios.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "bench/timing/timing.h"
#include "common/base/check.h"
#include "common/base/philox.h"
#include "common/codec/coded_keys.h"
#include "common/codec/codec.h"
#include "common/codec/payload.h"
#include "common/codec/threshold.h"
#include "common/codec/threshold_payload.h"
#include "common/codec/threshold_run.h"
#include "common/codec/update_reader.h"
#include "common/layout/parameters.h"
#include "common/layout/shard_map.h"
#include "common/rule/add.h"
#include "common/rule/rule.h"
#include "server/shard/block_store.h"
#include "server/shard/image_reader.h"
#include "server/shard/forms/update_run.h"

namespace tessera {
namespace {

constexpr int64_t kColumns = 4096;
// What a received message is cut into.
constexpr int64_t kPieceBytes = 16 << 10;

struct Flags {
  int64_t mebibytes = 64;
  double seconds = 1.5;
  bool tiny = false;
};

// A model of one matrix, which lies in blocks as a shard's does.
ModelShape OneMatrix(int64_t rows) {
  ModelShape shape;
  ParameterSpec spec;
  spec.rows = rows;
  spec.columns = kColumns;
  shape.parameters.push_back(spec);
  shape.size = spec.size();
  return shape;
}

// Parameters, and an update that `apply` makes of them.
class Commits {
 public:
  using Apply = std::function<void(const UpdateTarget&)>;

  Commits(const ShardSlices& slices, Apply apply)
      : store_(slices, slices.bytes()), rule_(MakeAdd()), apply_(std::move(apply)) {
    for (int i = 0; i < store_.block_count(); ++i) {
      const BlockStore::Rewrite block = store_.BeginRewrite(i);
      for (int64_t k = 0; k < block.size; ++k) block.out[k] = static_cast<float>(k % 1000 + 1);
    }
  }

  // Seconds of commits, without the time that a reader takes to come and go.
  double Run(bool held) {
    const auto reader = held ? store_.TakeSnapshot() : nullptr;
    return Seconds([&] { apply_({rule_.get(), &store_, &states_}); });
  }
  bool IsAs(const Commits& other) const {
    for (int i = 0; i < store_.block_count(); ++i) {
      const Block &a = store_.block(i), &b = other.store_.block(i);
      if (std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) != 0) return false;
    }
    return true;
  }

 private:
  BlockStore store_;
  std::unique_ptr<UpdateRule> rule_;
  std::vector<std::vector<float>> states_;
  const Apply apply_;
};

struct Pair {
  std::string name;
  Commits::Apply before;
  Commits::Apply after;
};

// The payload as it would be received: in pieces of a socket's read.
Payload InPieces(const std::vector<char>& bytes) {
  Payload payload;
  const int64_t size = static_cast<int64_t>(bytes.size());
  for (int64_t begin = 0; begin < size; begin += kPieceBytes) {
    payload.Append({bytes.data() + begin, std::min(kPieceBytes, size - begin)}, nullptr);
  }
  return payload;
}

// Marks which of `count` entries are sent: a share `density`, spread by chance.
std::vector<char> SentBytes(int64_t count, double density, bool packs) {
  const float tau = static_cast<float>(1 - density);
  ThresholdEncoder encoder(tau, packs);
  std::vector<float> update(kThresholdRun), residual(kThresholdRun);
  for (int64_t begin = 0; begin < count; begin += kThresholdRun) {
    const int64_t size = std::min(kThresholdRun, count - begin);
    for (int64_t i = 0; i < size; i += 4) {
      const PhiloxBlock block = Philox(1, Stream::kInitialValues, 0, begin + i);
      for (int64_t k = i; k < std::min(size, i + 4); ++k) {
        update[k] = 2 * UnitFloat(block[k - i]) - 1;
      }
    }
    std::fill(residual.begin(), residual.end(), 0.0f);
    encoder.Encode(update.data(), residual.data(), size);
  }
  return encoder.Finish();
}

// Times the commit as it was and as it is by turns, on parameters that a reader holds, or does not.
void Compare(const Pair& pair, bool held, const ShardSlices& slices, double seconds_min) {
  Commits before(slices, pair.before), after(slices, pair.after);
  std::vector<double> before_seconds, after_seconds, ratios;
  double elapsed = 0;
  for (int round = 0; round < 7 || elapsed < seconds_min; ++round) {
    double a = 0, b = 0;
    if (round % 2 == 0) {
      a = before.Run(held);
      b = after.Run(held);
    } else {
      b = after.Run(held);
      a = before.Run(held);
    }
    elapsed += a + b;
    if (round < 2) continue;
    before_seconds.push_back(a);
    after_seconds.push_back(b);
    ratios.push_back(a / b);
  }
  const double bytes = static_cast<double>(slices.bytes());
  std::printf("%-32s %-5s %8.2f GB/s before %8.2f GB/s after %7.2f times\n", pair.name.c_str(),
              held ? "held" : "free", bytes / Median(before_seconds) * 1e-9,
              bytes / Median(after_seconds) * 1e-9, Median(ratios));
  std::fflush(stdout);
}

// Whether both ways leave the same bits.
bool Agrees(const Pair& pair, const ShardSlices& slices) {
  Commits before(slices, pair.before), after(slices, pair.after);
  for (const bool held : {false, true}) {
    before.Run(held);
    after.Run(held);
    if (!before.IsAs(after)) return false;
  }
  return !after.IsAs(Commits(slices, {}));
}

int Run(const Flags& flags) {
  const ModelShape shape = OneMatrix((flags.mebibytes << 20) / 4 / kColumns);
  const ShardSlices slices = SlicesOf(shape, ShardId(0), 1);
  const CodedKeys f32(Codec(), slices, shape);
  const EntryRun all{0, slices.size};
  const Update update;
  std::vector<std::vector<char>> bytes;
  std::vector<Payload> payloads;
  bytes.reserve(16);
  payloads.reserve(16);
  std::vector<Pair> pairs;
  for (const double density : {0.0005, 0.002, 0.01, 0.03, 0.1}) {
    for (const bool packs : {false, true}) {
      bytes.push_back(SentBytes(slices.size, density, packs));
      payloads.push_back(InPieces(bytes.back()));
      const Payload* const payload = &payloads.back();
      char name[64];
      std::snprintf(name, sizeof(name), "sent, density %g%s", density, packs ? ", packed" : "");
      pairs.push_back({name,
                       [=, &update](const UpdateTarget& target) {
                         UpdateReader reader(ThresholdCodec(), nullptr, *payload);
                         FoldAndApplyRun(all, true, 1, &reader, update, nullptr, target);
                       },
                       [=, &update](const UpdateTarget& target) {
                         ThresholdReader reader(*payload);
                         ApplySent(update, 1, &reader, *target.rule, target.store);
                       }});
    }
  }
  std::vector<char>& sum = bytes.emplace_back(slices.bytes());
  for (int64_t i = 0; i < slices.size; ++i) {
    const float value = 0.25f * static_cast<float>(i % 17 + 1);
    std::memcpy(sum.data() + 4 * i, &value, sizeof(value));
  }
  payloads.push_back(InPieces(sum));
  const Payload* const received = &payloads.back();
  std::vector<float> pending;
  pairs.push_back({"standby",
                   [&](const UpdateTarget& target) {
                     pending.resize(slices.size);
                     ImageReader(*received).Read(slices.size, pending.data());
                     ApplyRun(all, update, pending, target);
                   },
                   [&](const UpdateTarget& target) {
                     UpdateReader reader(Codec(), &f32, *received);
                     FoldAndApplyRun(all, true, 1, &reader, update, nullptr, target);
                   }});
  for (const Pair& pair : pairs) {
    if (Agrees(pair, slices)) continue;
    std::fprintf(stderr, "commits: %s: the two ways differ, or change nothing\n",
                 pair.name.c_str());
    return 1;
  }
  std::printf("%zu pairs checked: the same bits both ways\n", pairs.size());
  std::printf("%ld MiB of parameters\n", static_cast<long>(flags.mebibytes));
  for (const Pair& pair : pairs) {
    for (const bool held : {false, true}) Compare(pair, held, slices, flags.seconds);
  }
  return 0;
}

}  // namespace
}  // namespace tessera

int main(int argc, char** argv) {
  tessera::Flags flags;
  CLI::App app("Times two ways to make the same commit.", "commits");
  app.add_option("--mib", flags.mebibytes, "size of the parameters")->check(CLI::PositiveNumber);
  app.add_option("--seconds", flags.seconds, "time to measure each pair for");
  app.add_flag("--tiny", flags.tiny, "few parameters for a moment, as a test");
  CLI11_PARSE(app, argc, argv);
  if (flags.tiny) {
    flags.mebibytes = 3;
    flags.seconds = 0.01;
  }
  return tessera::Run(flags);
}
