#include "tests/sim/drawn_model.h"

#include <utility>
#include <vector>

#include "tests/server/shard/shard_fixture.h"

namespace tessera {
namespace {

constexpr int64_t kRows = 7;
constexpr int64_t kColumns = 3;

ModelShape ZerosOf(std::vector<ParameterSpec> parameters) {
  ModelShape shape;
  shape.parameters = std::move(parameters);
  for (const ParameterSpec& spec : shape.parameters) shape.size += spec.size();
  return shape;
}

}  // namespace

DrawnModel::DrawnModel(uint64_t seed, bool plain)
    : dice_(seed ^ 0xc0dec),
      plain_(plain),
      has_several_(!plain && dice_.Chance(0.5)),
      is_large_(!plain && dice_.Chance(0.01)) {}

ModelShape DrawnModel::Shape() const {
  // Of which qsgd codes the matrix, in buckets of a row, and leaves the vector as it is.
  if (is_large_) return ZerosOf({{"w", 101, 100, false}, {"b", 13, 1, true}});
  if (!has_several_) return ZeroMatrix(kRows, kColumns);
  // Rows that are more and fewer than the servers, a matrix of one column, and vectors.
  return ZerosOf({{"a", 5, 3, false},
                  {"b", 5, 1, true},
                  {"c", 2, 5, false},
                  {"d", 2, 1, false},
                  {"e", 1, 1, true}});
}

v1::Qsgd DrawnModel::Qsgd() {
  v1::Qsgd qsgd;
  qsgd.set_bits(2 + static_cast<int64_t>(dice_.Below(7)));
  qsgd.set_bucket(dice_.Chance(0.5) ? 512 : 33);
  qsgd.set_norm(dice_.Chance(0.5) ? "l2" : "max");
  return qsgd;
}

v1::Codec DrawnModel::Rounding() {
  v1::Codec codec;
  if (is_large_ && dice_.Chance(0.7)) {
    *codec.mutable_qsgd() = Qsgd();
    return codec;
  }
  switch (dice_.Below(3)) {
    case 0:
      codec.mutable_bf16();
      break;
    case 1:
      codec.mutable_f16();
      break;
    case 2:
      codec.mutable_int8();
      break;
  }
  return codec;
}

void DrawnModel::DrawPush(const v1::Job& job, v1::CodecPair* pair) {
  const v1::Method& method = job.method();
  if (method.has_quant_dp()) return;
  if (!method.has_slim_dp() && !method.has_ist() && !is_large_ && dice_.Chance(0.4)) {
    v1::Threshold& threshold = *pair->mutable_push()->mutable_threshold();
    threshold.set_tau(dice_.Chance(0.5) ? 1000 + static_cast<double>(dice_.Below(9000)) : 0);
    threshold.set_density(0.1 + 0.1 * static_cast<double>(dice_.Below(5)));
    threshold.set_packed(dice_.Chance(0.5));
    pair->set_flush(dice_.Chance(0.5));
    return;
  }
  if (!method.has_slim_dp() || dice_.Chance(0.7)) *pair->mutable_push() = Rounding();
  // What a push of some entries leaves out may be held back as well, also of f32.
  const bool may_hold = !method.has_ist() && !pair->push().has_qsgd();
  pair->set_error_feedback(may_hold && dice_.Chance(0.6));
  pair->set_flush(pair->error_feedback() && dice_.Chance(0.5));
}

void DrawnModel::DrawCodecs(v1::Job* job) {
  if (plain_) return;
  v1::Method& method = *job->mutable_method();
  if (is_large_ && method.has_data_parallel()) {
    const v1::Qsgd qsgd = Qsgd();
    v1::QuantDp& quant = *method.mutable_quant_dp();
    quant.set_bits(qsgd.bits());
    quant.set_bucket(qsgd.bucket());
    quant.set_norm(qsgd.norm());
  }
  if (dice_.Chance(0.5)) DrawPush(*job, job->mutable_codec());
  if (dice_.Chance(0.4)) *job->mutable_codec()->mutable_pull() = Rounding();
}

}  // namespace tessera
