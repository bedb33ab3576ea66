#include "worker/replica/subnet_memory.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/keyset/subnet.h"
#include "worker/model/local_optimizer.h"
#include "worker/model/network_memory.h"
#include "worker/model/plan.h"
#include "worker/replica/replica.h"

namespace tessera {
namespace {

// A block that costs about as much to ask for as to send, and one beyond which nothing is gained.
constexpr int64_t kBlockBytesMin = int64_t{64} << 10;
constexpr int64_t kBlockBytesMax = int64_t{8} << 20;

// The evaluation in blocks with fewest readings of the model that takes at most `bytes_max`, or the
// least.
StreamedNetwork::Options StreamedWithin(int64_t bytes_max, const NetworkPlan& whole,
                                        const EvaluationRowCounts& rows, int64_t share,
                                        StreamedNetwork::Options options) {
  const auto fits = [&] {
    return StreamedNetwork::MemoryNeeded(whole, options, rows.calibration, share) <= bytes_max;
  };
  // Whole batches, as a whole network makes them.
  const int64_t batches = std::max<int64_t>(1, (share + options.batch_max - 1) / options.batch_max);
  // Fewer readings first, and for each number of readings the largest blocks.
  for (int64_t readings = 1; readings <= batches; ++readings) {
    options.examples_max = (batches + readings - 1) / readings * options.batch_max;
    for (options.block_bytes = kBlockBytesMax; options.block_bytes >= kBlockBytesMin;
         options.block_bytes /= 2) {
      if (fits()) return options;
    }
  }
  options.block_bytes = kBlockBytesMin;
  return options;
}

// The last site has as much as it ever may.
std::vector<uint32_t> MostUnequalShares(uint32_t sites) {
  constexpr double kUnit = 1 << 16;
  const double most = LargestPart(sites);
  // Shares add up to the number of sites, and others have what the last one leaves.
  const double others = (sites - most) / std::max(1u, sites - 1);
  std::vector<uint32_t> shares(sites, static_cast<uint32_t>(others * kUnit));
  shares.back() = static_cast<uint32_t>(most * kUnit) + 1;
  return shares;
}

}  // namespace

int64_t SubnetMemory::total() const {
  // Where the next subnet has memory of its own the three are held together.
  if (pulls_apart) return subnet + pulled + evaluation + batches;
  return std::max(subnet, evaluation) + batches;
}

std::string SubnetMemory::Describe() const {
  if (pulls_apart) {
    return absl::StrCat("subnet ", subnet, " + next subnet ", pulled, " + evaluation ", evaluation,
                        " + batches ", batches);
  }
  if (subnet >= evaluation) return absl::StrCat("subnet ", subnet, " + batches ", batches);
  return absl::StrCat("evaluation ", evaluation, " + batches ", batches);
}

absl::StatusOr<SubnetMemory> PlanSubnetMemory(const v1::Job& job, const Recipe& recipe,
                                              const InputRows& input,
                                              const EvaluationRowCounts& rows, int64_t bytes_max) {
  TESSERA_ASSIGN_OR_RETURN(const NetworkPlan whole, PlanOf(job.model()));
  TESSERA_ASSIGN_OR_RETURN(const Precision precision, PrecisionOf(job.train().precision()));
  SubnetPlace place;
  // Rounding gives the last site the largest part.
  const int64_t workers = std::max<int64_t>(job.cluster().workers(), 1);
  place.shares.assign(workers, 1);
  place.site = place.sites() - 1;
  if (recipe.parts_by_speed) place.shares = MostUnequalShares(place.sites());
  const Subnet subnet = SubnetOf(whole.shape, GroupsOf(whole.shape, recipe.subnet_rules), place);
  TESSERA_ASSIGN_OR_RETURN(const NetworkPlan part, PlanOf(SubnetModel(job.model(), subnet)));
  // Without batch norms nothing is calibrated.
  const int64_t calibrated = whole.constants > 0 ? rows.calibration : 0;

  SubnetMemory held;
  held.subnet = tessera::MemoryNeeded(part, PieceRows(job), precision, 0, input.sparse,
                                      StepsColumns(job, recipe, input), RowsInPieces(job))
                    .held_bytes +
                LocalOptimizer::MemoryNeeded(job.train().optimizer(), part);
  held.pulled = part.parameter_floats * static_cast<int64_t>(sizeof(float));
  held.batches = BatchRows::MemoryNeeded(job, whole.shape, input);
  const NetworkMemory evaluated =
      tessera::MemoryNeeded(whole, BatchRowsMax(job), precision, calibrated, input.sparse);
  held.evaluation = evaluated.evaluation_bytes + evaluated.evaluation_calibration_bytes;
  const int64_t evaluation_max = job.cluster().evaluation_memory();
  // The whole network is evaluated at once where that fits: nothing is read from the servers twice.
  if (held.evaluation <= evaluation_max && held.total() <= bytes_max) return held;
  const SubnetMemory at_once = held;

  held.evaluates_whole = false;
  held.streamed.batch_max = BatchRowsMax(job);
  held.streamed.sparse_input = input.sparse;
  // Test rows are spread over the workers.
  const int64_t share = (rows.test + workers - 1) / workers;
  const auto within = [&](bool pulls_apart, int64_t evaluation_bytes) {
    SubnetMemory way = held;
    way.pulls_apart = pulls_apart;
    way.streamed = StreamedWithin(std::min(evaluation_max, evaluation_bytes), whole,
                                  {calibrated, rows.test}, share, held.streamed);
    way.evaluation = StreamedNetwork::MemoryNeeded(whole, way.streamed, calibrated, share);
    return way;
  };
  // First choice: memory apart for the next subnet, so that exchanges overlap with sending.
  const SubnetMemory apart = within(true, bytes_max - held.subnet - held.pulled - held.batches);
  const SubnetMemory single = within(false, bytes_max - held.batches);
  // Holding more at once is worth it only where the model is not read more often for that.
  const bool as_few_readings = apart.streamed.examples_max >= single.streamed.examples_max;
  const SubnetMemory& blocks = apart.total() <= bytes_max && as_few_readings ? apart : single;
  // Blocks send the whole sample of a calibration from one linear layer to the next, and the rows of a reading through
  // all of the model: with large images that takes more than the model. Where nothing at all is allowed for evaluations
  // blocks are wanted whatever they take.
  const bool blocks_are_worse =
      evaluation_max > 0 && at_once.total() <= std::min(bytes_max, blocks.total());
  return blocks_are_worse ? at_once : blocks;
}

}  // namespace tessera
