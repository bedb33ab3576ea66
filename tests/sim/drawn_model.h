// What a simulated job trains and how its values travel, where its method leaves that open.
#ifndef TESSERA_TESTS_SIM_DRAWN_MODEL_H_
#define TESSERA_TESTS_SIM_DRAWN_MODEL_H_

#include <cstdint>

#include "common/layout/parameters.h"
#include "proto/job.pb.h"
#include "tests/sim/dice.h"

namespace tessera {

class DrawnModel {
 public:
  // `plain`: one matrix, as f32. Nothing else is decided by the same dice: jobs of one seed differ in nothing else.
  DrawnModel(uint64_t seed, bool plain);

  // Fills in what codecs the job's method takes, or makes it quant_dp where it is data_parallel.
  void DrawCodecs(v1::Job* job);
  // All zeros, so that sums of integers stay exact.
  ModelShape Shape() const;

 private:
  void DrawPush(const v1::Job& job, v1::CodecPair* pair);
  v1::Codec Rounding();
  v1::Qsgd Qsgd();

  Dice dice_;
  const bool plain_;
  const bool has_several_;  // parameters
  const bool is_large_;     // enough for qsgd
};

}  // namespace tessera

#endif  // TESSERA_TESTS_SIM_DRAWN_MODEL_H_
