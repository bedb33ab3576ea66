// What evaluations ask of the model that a worker trains.
#ifndef TESSERA_WORKER_TRAIN_EVALUATED_MODEL_H_
#define TESSERA_WORKER_TRAIN_EVALUATED_MODEL_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/base/ids.h"
#include "worker/data/dataset.h"
#include "worker/exchange/parameter_client.h"
#include "worker/model/batch.h"

namespace tessera {

// One thread, the train loop's.
class EvaluatedModel {
 public:
  virtual ~EvaluatedModel() = default;

  // What Calibrate and Score see are the values that `servers` have committed. A model that is held
  // whole is read now, as ParameterClient::Read with `after` and `word`; of another one rows are
  // read until EndEvaluation. Where keys are dense this is a pull into values(), too; a subnet that
  // is being trained stays what it is, unless EndEvaluation says otherwise.
  virtual absl::StatusOr<ExchangeResult> BeginEvaluation(ParameterClient* servers, Exchange after,
                                                         IdleNotice word) = 0;
  // Training goes on. True: the evaluation took the place of what was to be trained, and values() of
  // the same round are to be pulled again.
  virtual absl::StatusOr<bool> EndEvaluation() = 0;
  // Evaluation (docs/methods.md): the constants of batch norm over `rows` of the training data, and
  // the scores of `rows` of the test data under given constants.
  virtual absl::StatusOr<std::vector<float>> Calibrate(const Dataset& data,
                                                       absl::Span<const uint32_t> rows) = 0;
  virtual absl::StatusOr<Scores> Score(const Dataset& data, absl::Span<const uint32_t> rows,
                                       absl::Span<const float> constants) = 0;
};

}  // namespace tessera

#endif  // TESSERA_WORKER_TRAIN_EVALUATED_MODEL_H_
